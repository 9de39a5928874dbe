"""What a search returns: pictures of the gallery, and how near they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.search.gallery.gallery import CLASS
from serving.search.gallery.stored_images import PICTURE

Attributes = Mapping[str, str | int | float | bool]
"""What an index knows of a picture, by name."""


@dataclass(frozen=True)
class Item:
    """A picture of the gallery.

    Args:
        id: Its id.
        attributes: What the index knows of it.
    """

    id: str
    attributes: Attributes = field(default_factory=dict)

    @property
    def class_name(self) -> str:
        """Its class, "" where it has none."""
        return str(self.attributes.get(CLASS, ""))

    @property
    def stored(self) -> str | None:
        """The name of its file among the stored pictures, None below the root."""
        name = self.attributes.get(PICTURE)
        return None if name is None else str(name)


@dataclass(frozen=True)
class Hit:
    """A picture of the gallery near a query.

    Args:
        item: The picture.
        similarity: The cosine similarity.
        is_match: Whether that is enough for an answer; None where the gallery has no
            calibration that tells.
    """

    item: Item
    similarity: float
    is_match: bool | None = None
