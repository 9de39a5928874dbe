"""Report a build, a shard or a change of an index to its user."""

from collections.abc import Sequence
from dataclasses import dataclass

from tfdml.command_parser import command
from tfdml.index import Index, LocalIndex

from .gallery import Gallery
from .shards import Part


def method_of(index: Index) -> str:
    """Return the search method of an index, in one word."""
    if not isinstance(index, LocalIndex):
        return str(index.stats().details.get("index_type", "exact"))
    # An index that was built empty compares with everything that was added since.
    return "exact" if index.settings is None else index.settings.method


def engine_of(index: Index) -> str:
    """Return what an index searches with, see `tfdml.index.IndexSettings`."""
    return str(index.stats().details.get("engine", "exact"))


def recall_of(index: Index) -> float | None:
    """Return the measured recall of an index; None if it was not measured."""
    measured = index.stats().details.get("recall")
    return None if measured is None else float(measured["value"])


@dataclass(frozen=True)
class IndexReport:
    """The result of a build.

    Args:
        gallery: Where the images are, and which model embedded them.
        images: Number of images in the index.
        classes: Number of their classes.
        dimension: Dimension of the embeddings.
        method: How the index searches, see `tfdml.index.IndexSettings`.
        engine: What it searches with, see there.
        recall: Its measured recall; None if it was not measured.
        skipped: Why an image was skipped, one text per image.
        notes: What was left out of the folder, or is odd in it, one text per kind.
        embedding_dimension: Dimension of the model's embeddings, of which the index may
            keep the first numbers only.
    """

    gallery: Gallery
    images: int
    classes: int
    dimension: int
    method: str
    engine: str
    recall: float | None
    skipped: tuple[str, ...]
    notes: tuple[str, ...] = ()
    embedding_dimension: int | None = None

    def __str__(self) -> str:
        gallery = self.gallery
        lines = [
            f"{self.images} images of {self.classes} classes indexed: "
            f"dimension {self.dimension}{self._of_all}, {self.method} search, "
            f"model {gallery.model_name} version {gallery.model_version}."
        ]
        known = gallery.calibration
        if known is not None:
            lines.append(
                f"No match below a similarity of {known.threshold:.4f}, chosen in a "
                f"gallery of {known.gallery}."
            )
        return "\n".join([*lines, *self.notes, *_left_out(self.skipped)])

    @property
    def _of_all(self) -> str:
        whole = self.embedding_dimension
        return "" if whole in (None, self.dimension) else f" of {whole}"


@dataclass(frozen=True)
class ShardReport:
    """The result of embedding a shard."""

    part: Part
    embedded: int
    images: int
    skipped: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"Shard {self.part}: {self.embedded} of the {self.images} images embedded. "
            f"Merge all shards with `{command('serving', 'index merge')}`."
        ]
        return "\n".join([*lines, *self.notes, *_left_out(self.skipped)])


@dataclass(frozen=True)
class AddReport:
    """The result of adding images to an index.

    Args:
        added: Number of images added.
        stored: How many of them were copied into the folder of the index, because they
            are not below the folder that was indexed.
        images: Number of images in the index now.
        existing: How many were skipped because the index has their ids already.
        skipped: Why an image was skipped, one text per image.
        notes: What was left out of the folder, or is odd in it, one text per kind.
    """

    added: int
    stored: int
    images: int
    existing: int
    skipped: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.added} images added; the index now has {self.images}."]
        if self.stored:
            lines.append(f"{self.stored} of them were copied into its folder.")
        if self.existing:
            lines.append(f"{self.existing} images were already in the index.")
        return "\n".join([*lines, *self.notes, *_left_out(self.skipped)])


@dataclass(frozen=True)
class RemoveReport:
    """The result of removing images from an index.

    Args:
        removed: Number of images removed.
        images: Number of images in the index now.
    """

    removed: int
    images: int

    def __str__(self) -> str:
        return f"{self.removed} images removed; the index now has {self.images}."


def _left_out(skipped: Sequence[str]) -> list[str]:
    if not skipped:
        return []
    count = f"{len(skipped)} unreadable images skipped:"
    return [count, *(f"  {reason}" for reason in skipped)]
