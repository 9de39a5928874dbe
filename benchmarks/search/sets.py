"""Draw the galleries and queries of the search benchmarks."""

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Gallery:
    """A gallery that can be drawn: unit vectors around random centers.

    Args:
        items: How many.
        dimension: Of the embeddings.
        clusters: Number of centers.
        spread: Length of an item's way from its center over that of the center.
    """

    items: int
    dimension: int
    clusters: int
    spread: float


SETS = {
    "clustered": Gallery(200_000, 128, 2_000, 0.75),
    # As many images and classes as Stanford Online Products has: about 5 of each, so
    # that half of the 10 nearest are of other classes and nearly as far as any.
    "realistic": Gallery(60_502, 512, 11_316, 0.8),
    "million": Gallery(1_000_000, 128, 10_000, 0.75),
}


def scaled(gallery: Gallery, scale: float) -> Gallery:
    """Return a gallery of fewer items and clusters."""
    return replace(
        gallery,
        items=max(1, round(gallery.items * scale)),
        clusters=max(1, round(gallery.clusters * scale)),
    )


def draw(gallery: Gallery, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw a gallery, and queries around the same centers.

    Returns:
        Unit vectors, float32 `[items, dimension]` and `[queries, dimension]`.
    """
    generator = np.random.default_rng(0)
    shape = gallery.clusters, gallery.dimension
    centers = generator.standard_normal(shape, dtype=np.float32)
    labels = generator.integers(gallery.clusters, size=gallery.items + queries)
    rows = generator.standard_normal((len(labels), gallery.dimension), dtype=np.float32)
    rows *= gallery.spread
    for start in range(0, len(rows), 2**16):  # in parts: the largest set is 512 MB
        part = slice(start, start + 2**16)
        rows[part] += centers[labels[part]]
        rows[part] /= np.linalg.norm(rows[part], axis=1, keepdims=True)
    return rows[: gallery.items].copy(), rows[gallery.items :].copy()
