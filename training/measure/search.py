"""Exact searches among the images of a split, as its metrics make them."""

import numpy as np

from tfdml.neighbors import nearest_neighbors
from training.data.split import Split


def search_split(
    split: Split, embeddings: np.ndarray, asked: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Find the gallery images nearest to some images, by cosine similarity.

    The image itself is left out and, of classes with known sequences, all of its own
    sequence.

    Args:
        split: The images.
        embeddings: Float array `[N, dimension]`.
        asked: Which images search, positions in the split, `[Q]`.
        k: How many are found, at least 1; fewer, perhaps none, where what one of them
            may find is less.

    Returns:
        Positions in the split, int64 `[Q, k]`, the nearest first, and similarities,
        float32 `[Q, k]`.
    """
    searched = np.flatnonzero(split.data.is_gallery())
    place = np.full(len(split.data), -1)
    place[searched] = np.arange(len(searched))
    exclude = _left_out(split, asked, place)
    k = min(k, len(searched) - int((exclude >= 0).sum(axis=1).max()))
    if k < 1:
        empty = np.empty((len(asked), 0))
        return empty.astype(np.int64), empty.astype(np.float32)
    found, scores = nearest_neighbors(
        embeddings[asked], embeddings[searched], k, exclude=exclude, zero_rows=True
    )
    return searched[found], scores


def _left_out(split: Split, asked: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return the gallery rows that a query is not compared with, padded with -1."""
    sequences = split.data.sequences
    if sequences is None or split.data.is_continuous:
        return place[asked][:, np.newaxis]
    clip_of = np.unique(sequences, return_inverse=True)[1]
    searched = np.flatnonzero(place >= 0)
    order = searched[np.argsort(clip_of[searched], kind="stable")]
    sizes = np.bincount(clip_of[searched], minlength=clip_of.max() + 1)
    clips = np.split(place[order], np.cumsum(sizes)[:-1])
    exclude = np.full((len(asked), max(1, sizes[clip_of[asked]].max())), -1)
    for row, query in zip(exclude, asked, strict=True):
        rows = clips[clip_of[query]]
        row[: len(rows)] = rows
    return exclude
