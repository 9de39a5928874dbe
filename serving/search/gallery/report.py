"""What a build, a shard or a change of an index reports to its user."""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.search.gallery.gallery import Gallery
from serving.search.gallery.shards import Part
from tfdml.index import ScannIndex


def method_of(index: ScannIndex) -> str:
    """Return how an index searches, in a word."""
    # All of an index that was built of nothing was added since, and is compared with.
    return "exact" if index.settings is None else index.settings.method


def recall_of(index: ScannIndex) -> float | None:
    """Return the measured recall of an index, None where none was measured."""
    measured = index.stats().details.get("recall")
    return None if measured is None else float(measured["value"])


@dataclass(frozen=True)
class IndexReport:
    """What a build put into the index and what it left out.

    Args:
        gallery: Where the pictures are, and what embedded them.
        images: How many are in the index.
        classes: Of how many classes.
        dimension: Numbers in an embedding.
        method: How the index searches, see `tfdml.index.ScannSettings`.
        recall: Its measured recall, None where none was measured.
        skipped: Why a picture was left out, one text for each.
    """

    gallery: Gallery
    images: int
    classes: int
    dimension: int
    method: str
    recall: float | None
    skipped: tuple[str, ...]

    def __str__(self) -> str:
        gallery = self.gallery
        lines = [
            f"{self.images} images of {self.classes} classes indexed: "
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
            "Merge all shards with `python -m serving index merge`."
        ]
        return "\n".join(lines + _left_out(self.skipped))


@dataclass(frozen=True)
class AddReport:
    """What was added to an index and what was left out.

    Args:
        added: How many pictures were added.
        stored: How many of them were copied into the folder of the index, because they
            are not below the folder that was indexed.
        images: How many pictures the index has now.
        existing: How many were left out because the index has their ids already.
        skipped: Why a picture was left out, one text for each.
    """

    added: int
    stored: int
    images: int
    existing: int
    skipped: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.added} images added; the index has {self.images} now."]
        if self.stored:
            lines.append(f"{self.stored} of them were copied into its folder.")
        if self.existing:
            lines.append(f"{self.existing} images were in the index already.")
        return "\n".join(lines + _left_out(self.skipped))


@dataclass(frozen=True)
class RemoveReport:
    """What was removed from an index.

    Args:
        removed: How many pictures were removed.
        images: How many pictures the index has now.
    """

    removed: int
    images: int

    def __str__(self) -> str:
        return f"{self.removed} images removed; the index has {self.images} now."


def _left_out(skipped: Sequence[str]) -> list[str]:
    if not skipped:
        return []
    count = f"{len(skipped)} unreadable images left out:"
    return [count, *(f"  {reason}" for reason in skipped)]
