"""Describe the images of a gallery, and the hits of a search."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .gallery import CLASS
from .stored_images import STORED_IMAGE

Attributes = Mapping[str, str | int | float | bool]
"""The attributes of an image, by name."""


@dataclass(frozen=True)
class Item:
    """An image of the gallery.

    Args:
        id: Its id.
        attributes: Its attributes in the index.
    """

    id: str
    attributes: Attributes = field(default_factory=dict)

    @property
    def class_name(self) -> str:
        """Return its class, or ""."""
        return str(self.attributes.get(CLASS, ""))

    @property
    def stored(self) -> str | None:
        """Return the name of its file among the stored images; None below the root."""
        name = self.attributes.get(STORED_IMAGE)
        return None if name is None else str(name)


@dataclass(frozen=True)
class Hit:
    """An image of the gallery near a query.

    Args:
        item: The image.
        similarity: The cosine similarity, or minus the squared Euclidean distance
            where the index compares by it.
        is_match: Whether it reaches the threshold; None if the gallery has no
            calibration.
    """

    item: Item
    similarity: float
    is_match: bool | None = None
