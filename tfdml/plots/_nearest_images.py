"""Draw the nearest images of some images of a set."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import whole
from tfdml._core.embeddings import as_embeddings
from tfdml._core.labels import as_labels
from tfdml.messages import shown
from tfdml.neighbors import nearest_neighbors
from tfdml.plots._gallery import plot_retrieval_gallery

_QUERIES = 4


def plot_nearest_images(
    embeddings: ArrayLike,
    images: NDArray[np.uint8],
    labels: ArrayLike,
    *,
    queries: Sequence[int] | NDArray[np.int64] | None = None,
    k: int = 7,
    seed: int = 0,
) -> Any:
    """Draw some images as queries, each with its nearest among all others.

    Similarities are cosines. This is `plot_retrieval_gallery` of an exact search.

    Args:
        embeddings: Float array `[N, D]`.
        images: uint8 `[N, height, width, 3]`.
        labels: `[N]`, integers or strings: the titles. Hits with the label of the query
            are marked as positives.
        queries: Positions of the queries. Default: 4 drawn at random.
        k: How many images are found, from 1 to N - 1.
        seed: Seed of the queries that are drawn at random, at least 0.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: The shapes do not fit, a number is not finite, or an argument is out
            of its range.

    Example:
        >>> embeddings = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]
        >>> images = np.zeros((3, 8, 8, 3), dtype="uint8")
        >>> figure = plot_nearest_images(embeddings, images, ["a", "a", "b"], k=1)
        >>> len(figure.axes[0].images)  # each of the three, and its nearest
        6
    """
    gallery = as_embeddings("embeddings", embeddings, unit=False)
    count = len(gallery)
    if np.shape(images)[:1] != (count,):
        raise ValueError(
            f"`images` must be the {count} images of the embeddings. "
            f"Received: shape {np.shape(images)}."
        )
    names = as_labels("labels", labels, count)
    whole("seed", seed, 0)
    if queries is None:
        chosen = np.random.default_rng(seed).permutation(count)[:_QUERIES]
    else:
        chosen = np.asarray(queries).reshape(-1)
        if (
            chosen.dtype.kind not in "iu"
            or not ((chosen >= 0) & (chosen < count)).all()
        ):
            raise ValueError(
                f"`queries` must be positions from 0 to {count - 1}. "
                f"Received: {shown(chosen.tolist())}."
            )
    found, scores = nearest_neighbors(
        gallery[chosen], gallery, k, exclude=chosen, zero_rows=True
    )
    return plot_retrieval_gallery(
        [
            (
                images[query],
                str(names[query]),
                [
                    (images[i], str(names[i]), float(s), bool(names[i] == names[query]))
                    for i, s in zip(hits, row, strict=True)
                ],
            )
            for query, hits, row in zip(chosen, found, scores, strict=True)
        ]
    )
