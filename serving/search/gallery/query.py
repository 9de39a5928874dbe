"""Describe what a search asks for, from the request or command line to the index."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfdml.index import Where

from .uploads import Crop


@dataclass(frozen=True)
class Upload:
    """An encoded image from a stranger; only usual formats and sizes are accepted."""

    content: bytes


@dataclass(frozen=True)
class Address:
    """The address of an image, which must be fetched before the search."""

    url: str


@dataclass(frozen=True)
class File:
    """An image of our own, of any format: a path, or the encoded content."""

    image: bytes | Path


@dataclass(frozen=True)
class Embedding:
    """An embedding `[D]`, of any length but 0."""

    values: Sequence[float]


@dataclass(frozen=True)
class Member:
    """An image of the gallery, which is not among its own hits."""

    id: str


@dataclass(frozen=True)
class Query:
    """A search: what to search with, and what may be found.

    Args:
        source: What to search with.
        k: How many hits to return, at least 1; fewer where fewer may be found.
        where: A filter on attributes, see `tfdml.index`.
        exclude: Ids of images that must not be found.
        crop: The region of the image to search with; by default all of it. An
            embedding has none.
        expand: How many neighbors the query is moved toward before a second search;
            0 for one plain search. Hits then say nothing about a match.
    """

    source: Upload | Address | File | Embedding | Member
    k: int
    where: Where | None = None
    exclude: Sequence[str] = ()
    crop: Crop | None = None
    expand: int = 0

    @property
    def needs_model(self) -> bool:
        """Whether the model must embed an image first."""
        if isinstance(self.source, Member):
            return self.crop is not None
        return not isinstance(self.source, Embedding)
