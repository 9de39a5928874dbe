"""Describe what a search asks for, from the request or command line to the index."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfdml.index import Where

from ...storage.remote_image import RemoteImage
from .uploads import Crop


@dataclass(frozen=True)
class Upload:
    """An encoded image from a stranger; only usual formats and sizes are accepted.

    Args:
        content: The encoded image.
        name: What an error calls it; "" where it is the only image.
    """

    content: bytes
    name: str = ""


@dataclass(frozen=True)
class Address:
    """The address of an image, which must be fetched before the search."""

    url: str


@dataclass(frozen=True)
class File:
    """An image of our own, of any format: where it is, or the encoded content.

    Args:
        image: Path of its file, its place in the cloud, or its content.
        name: What an error calls it; "" where it is the only image.
    """

    image: bytes | Path | RemoteImage
    name: str = ""


@dataclass(frozen=True)
class Embedding:
    """An embedding `[D]`, of any length but 0."""

    values: Sequence[float]


@dataclass(frozen=True)
class Member:
    """An image of the gallery, which is not among its own hits."""

    id: str


@dataclass(frozen=True)
class Text:
    """A text, for a model with a text tower."""

    text: str


Source = Upload | Address | File | Embedding | Member | Text
"""One thing to search with."""


@dataclass(frozen=True)
class Examples:
    """Several things to search with at once, and others to stay away from.

    They are combined by `tfdml.neighbors.combine_queries`. Images of the gallery among
    them are not among the hits.

    Args:
        positives: What the hits are to be like, at least one.
        negatives: What they are not to be like.
        negative_weight: How much the negatives count, at least 0 and below 1.
    """

    positives: Sequence[Source]
    negatives: Sequence[Source] = ()
    negative_weight: float = 0.5

    @property
    def all(self) -> list[Source]:
        """Both, the positives first."""
        return [*self.positives, *self.negatives]


@dataclass(frozen=True)
class Query:
    """A search: what to search with, and what may be found.

    Args:
        source: What to search with.
        k: How many hits to return, at least 1; fewer where fewer may be found.
        where: A filter on attributes, see `tfdml.index`.
        exclude: Ids of images that must not be found.
        crop: The region of the image to search with; by default all of it. An
            embedding or text has none, and of `Examples`, only a single positive.
        expand: How many neighbors the query is moved toward before a second search;
            0 for one plain search. Hits then say nothing about a match.
    """

    source: Source | Examples
    k: int
    where: Where | None = None
    exclude: Sequence[str] = ()
    crop: Crop | None = None
    expand: int = 0

    @property
    def needs_model(self) -> bool:
        """Whether the model must embed an image first."""
        if isinstance(self.source, Examples):
            sources = self.source.all
        else:
            sources = [self.source]
        known = Embedding if self.crop is not None else Embedding | Member
        return not all(isinstance(source, known) for source in sources)

    @property
    def is_from_outside(self) -> bool:
        """Whether this is one image that the gallery does not have."""
        return not isinstance(self.source, Examples | Member)

    @property
    def is_plain(self) -> bool:
        """Whether hits are compared with one image, as a calibrated threshold needs."""
        return not (self.expand or isinstance(self.source, Examples | Text))
