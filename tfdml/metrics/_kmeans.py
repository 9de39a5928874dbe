"""Clusters of embeddings by k-means."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._arguments import one_of, whole
from tfdml._embeddings import as_embeddings, row_norms, unit_or_zero

_BLOCK_ELEMENTS = 2**23  # scores held at once: 32 MiB in float32
_SPREAD_START = 256  # clusters: above, k-means++ would take as long as the rest


def cluster(
    embeddings: ArrayLike,
    count: int,
    *,
    metric: Literal["cosine", "squared_euclidean"] = "cosine",
    iterations: int = 20,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Group items by k-means, Lloyd's algorithm.

    Every item joins the centre c of the least |x - c|^2, every centre moves to the mean
    of its items, and again. `"cosine"` does this with the embeddings scaled to unit
    length, as they are compared elsewhere; the centres are plain means.

    Up to 256 clusters start from k-means++ (each next centre is an item drawn in
    proportion to its squared distance from the centres so far), more of them from
    different items drawn at random, as in FAISS. A centre that loses all its items
    moves to the item that is farthest from its own centre. Of equal distances the
    lowest centre counts; they are computed in float32, which may part what is equal.
    With fewer distinct items than clusters some numbers are left without an item.

    Args:
        embeddings: Float array `[N, dimension]`, finite. With `"cosine"` a row of
            zeros stays where it is.
        count: Clusters, from 1 to N.
        metric: `"cosine"` (default) or `"squared_euclidean"`.
        iterations: How often the centres move, at least 1. It ends before where no item
            changes its cluster.
        seed: Of the first centres. The same seed gives the same clusters on the same
            machine.

    Returns:
        The cluster of each item, int64 `[N]`, from 0 to `count - 1`.

    Raises:
        ValueError: An argument is out of range, or an embedding is not finite.

    Example:
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [2.0, 0.1], [0.1, 3.0]]
        >>> clusters = cluster(embeddings, 2)
        >>> bool(clusters[0] == clusters[2]), bool(clusters[0] == clusters[1])
        (True, False)

    Reference:
        Lloyd, Least Squares Quantization in PCM, IEEE Transactions on Information
        Theory 1982. Arthur and Vassilvitskii, k-means++: The Advantages of Careful
        Seeding, SODA 2007.
    """
    rows = as_embeddings("embeddings", embeddings, unit=False)
    one_of("metric", metric, ("cosine", "squared_euclidean"))
    if whole("count", count) > len(rows):
        raise ValueError(
            f"`count` must be at most the number of items, {len(rows)}. "
            f"Received: count={count}."
        )
    count, iterations = int(count), whole("iterations", iterations)
    rows = _centered(unit_or_zero(rows) if metric == "cosine" else rows)
    generator = np.random.default_rng(whole("seed", seed, least=0))
    if count <= _SPREAD_START:
        first = _spread_items(rows, count, generator)
    else:
        first = generator.choice(len(rows), count, replace=False)
    centers = rows[first]
    clusters, scores = _nearest(rows, centers)
    moving = np.arange(count)
    for _ in range(iterations):
        moving = np.union1d(moving, _fill_empty(rows, centers, clusters))
        _move(rows, clusters, centers, moving)
        before = clusters.copy()
        _reassign(rows, centers, moving, clusters, scores)
        changed = before != clusters
        if not changed.any():
            break
        moving = np.union1d(before[changed], clusters[changed])
    return clusters


def _centered(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Move and scale all alike, which changes no cluster, to where float32 is sharp."""
    moved = np.empty_like(rows)
    with np.errstate(over="ignore"):  # reported below
        np.subtract(
            rows, rows.mean(axis=0, dtype=np.float64), out=moved, casting="same_kind"
        )
    farthest = row_norms(moved).max()
    if not np.isfinite(farthest):
        raise ValueError(
            "`embeddings` are too large for float32: scale them down. "
            f"Received: numbers up to {np.abs(rows).max()}."
        )
    if farthest > 0:
        np.divide(moved, farthest, out=moved, casting="same_kind")
    return moved


def _spread_items(
    rows: NDArray[np.float32], count: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Draw the first centres by k-means++, each the best of a few candidates."""
    squares = row_norms(rows) ** 2
    chosen = np.empty(count, np.int64)
    candidates = generator.integers(0, len(rows), 1)
    nearest = np.full(len(rows), np.inf)
    for place in range(count):
        products = (rows @ rows[candidates].T).T
        distances = squares + squares[candidates, None] - 2 * products
        distances = np.minimum(np.maximum(distances, 0), nearest)
        distances[np.arange(len(candidates)), candidates] = 0
        best = distances.sum(axis=1).argmin()
        chosen[place], nearest = candidates[best], distances[best]
        sums = np.cumsum(nearest)
        draws = generator.random(2 + int(np.log(count))) * sums[-1]
        candidates = np.minimum(np.searchsorted(sums, draws, "right"), len(rows) - 1)
    return chosen


def _nearest(
    rows: NDArray[np.float32], centers: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the nearest centre c of each x and its score x.c - |c|^2 / 2."""
    halves = _half_squares(centers)
    clusters = np.empty(len(rows), np.int64)
    scores = np.empty(len(rows), np.float32)
    step = max(1, _BLOCK_ELEMENTS // len(centers))
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        found = rows[block] @ centers.T
        found -= halves
        clusters[block] = found.argmax(axis=1)
        scores[block] = found[np.arange(len(found)), clusters[block]]
    return clusters, scores


def _reassign(
    rows: NDArray[np.float32],
    centers: NDArray[np.float32],
    moved: NDArray[np.int64],
    clusters: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None:
    """Write the nearest centres and their scores after the `moved` centres moved.

    The product of all items with all centres is nearly all the time that k-means takes.
    An item whose own centre came no farther away is still closer to it than to all
    centres that stayed, or as close as to some of a higher number, so that only those
    that moved can win it: closer ones, and as close ones of a lower number.
    """
    is_moved = np.zeros(len(centers), bool)
    is_moved[moved] = True
    items = np.flatnonzero(is_moved[clusters])
    own = _own_scores(rows, centers, clusters, items)
    is_farther = np.zeros(len(rows), bool)
    is_farther[items] = own < scores[items]
    scores[items] = own
    farther, closer = np.flatnonzero(is_farther), np.flatnonzero(~is_farther)
    clusters[farther], scores[farther] = _nearest(rows[farther], centers)
    found, found_scores = _nearest(rows[closer], centers[moved])
    won = found_scores > scores[closer]
    won |= (found_scores == scores[closer]) & (moved[found] < clusters[closer])
    clusters[closer[won]] = moved[found[won]]
    scores[closer[won]] = found_scores[won]


def _own_scores(
    rows: NDArray[np.float32],
    centers: NDArray[np.float32],
    clusters: NDArray[np.int64],
    items: NDArray[np.int64],
) -> NDArray[np.float32]:
    halves = _half_squares(centers)
    scores = np.empty(len(items), np.float32)
    step = max(1, _BLOCK_ELEMENTS // rows.shape[1])
    for start in range(0, len(items), step):
        block = items[start : start + step]
        own = clusters[block]
        products = np.einsum("nd,nd->n", rows[block], centers[own])
        scores[start : start + step] = products - halves[own]
    return scores


def _half_squares(centers: NDArray[np.float32]) -> NDArray[np.float32]:
    return (row_norms(centers) ** 2 / 2).astype(np.float32)


def _move(
    rows: NDArray[np.float32],
    clusters: NDArray[np.int64],
    centers: NDArray[np.float32],
    moving: NDArray[np.int64],
) -> None:
    """Move centres to the means of their items; one without items stays."""
    is_moving = np.zeros(len(centers), bool)
    is_moving[moving] = True
    items = np.flatnonzero(is_moving[clusters])
    items = items[np.argsort(clusters[items], kind="stable")]
    names, starts, sizes = np.unique(
        clusters[items], return_index=True, return_counts=True
    )
    sums = np.add.reduceat(rows[items], starts, axis=0, dtype=np.float64)
    centers[names] = sums / sizes[:, None]


def _fill_empty(
    rows: NDArray[np.float32],
    centers: NDArray[np.float32],
    clusters: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Give each empty cluster the item farthest from its own centre.

    Returns:
        The clusters that gained or lost an item.
    """
    empty = np.flatnonzero(np.bincount(clusters, minlength=len(centers)) == 0)
    if not empty.size:
        return empty
    apart = row_norms(rows - centers[clusters])
    far = np.argsort(-apart, kind="stable")[: len(empty)]
    far = far[apart[far] > 0]
    empty = empty[: len(far)]
    lost = clusters[far]
    clusters[far] = empty
    return np.union1d(lost, empty)
