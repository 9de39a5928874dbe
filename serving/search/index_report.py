"""What a build of an index, or of one shard of it, reports to its user."""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.search.gallery import Gallery
from serving.search.shards import Part

__all__ = ["IndexReport", "ShardReport"]


@dataclass(frozen=True)
class IndexReport:
    """What a build put into the index and what it left out."""

    gallery: Gallery
    dimension: int
    method: str
    skipped: tuple[str, ...]

    def __str__(self) -> str:
        gallery = self.gallery
        lines = [
            f"{len(gallery.paths)} images of {len(gallery.classes())} classes indexed: "
            f"dimension {self.dimension}, {self.method} search, "
            f"model {gallery.model_name} version {gallery.model_version}."
        ]
        known = gallery.calibration
        if known is not None:
            lines.append(
                f"No match below a similarity of {known.threshold:.4f}, chosen in a "
                f"gallery of {known.gallery}."
            )
        return "\n".join(lines + _left_out(self.skipped))


@dataclass(frozen=True)
class ShardReport:
    """What was embedded into a shard and what was left out."""

    part: Part
    embedded: int
    images: int
    skipped: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"Shard {self.part}: {self.embedded} of the {self.images} images embedded. "
            "Merge all shards with `python -m serving merge`."
        ]
        return "\n".join(lines + _left_out(self.skipped))


def _left_out(skipped: Sequence[str]) -> list[str]:
    if not skipped:
        return []
    count = f"{len(skipped)} unreadable images left out:"
    return [count, *(f"  {reason}" for reason in skipped)]
