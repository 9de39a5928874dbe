"""Measure hubness: a few items among the nearest neighbors of too many others."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import whole
from tfdml._core.arrays import as_array
from tfdml.messages import shown


def hubness(neighbors: ArrayLike, gallery: int) -> dict[str, float]:
    """Measure how unevenly gallery items occur among the k nearest of the queries.

    With N_k(x), how many queries have item x among their k nearest, and its mean mu and
    standard deviation sigma over the gallery:

    - `skewness`: S_k = mean of (N_k - mu)^3 / sigma^3. 0 for a symmetric distribution;
      hubs make it positive. It is the biased skewness of the population (SciPy's
      default), and 0 where every item occurs equally often and sigma is 0.
    - `anti_hubs`: the share of items with N_k = 0, which no query finds.
    - `largest`: the largest N_k.
    - `mean`: mu = Q k / gallery.

    Args:
        neighbors: Integers `[Q, k]` from 0 to `gallery` - 1: the k nearest gallery
            items of each query, in any order, none twice. Where the gallery is
            searched with itself, leave each item out of its own neighbors.
        gallery: Number of items in the gallery, at least 1.

    Returns:
        The four numbers.

    Raises:
        ValueError: There is no query or no neighbor, an index is not in the gallery
            or occurs twice in a row, or `gallery` is below 1.
        TypeError: `neighbors` are not integers.

    Example:
        >>> hubness([[1], [0], [1], [1]], gallery=4)["anti_hubs"]
        0.5

    Reference:
        Radovanović, Nanopoulos and Ivanović, Hubs in Space: Popular Nearest Neighbors
        in High-Dimensional Data, JMLR 2010: the k-occurrences N_k and their
        standardized third moment.
    """
    return hubness_of_occurrences(k_occurrences(neighbors, gallery))


def k_occurrences(neighbors: ArrayLike, gallery: int) -> NDArray[np.int64]:
    """Count how many queries have each gallery item among their k nearest: N_k.

    Args:
        neighbors: Integers `[Q, k]`, as `hubness` takes them.
        gallery: Number of items in the gallery, at least 1.

    Returns:
        int64 `[gallery]`; the sum is Q k.

    Raises:
        ValueError: As `hubness`.
        TypeError: `neighbors` are not integers.

    Example:
        >>> k_occurrences([[1, 2], [0, 2], [1, 0]], gallery=4).tolist()
        [2, 2, 2, 0]
    """
    gallery = whole("gallery", gallery)
    found = as_array("neighbors", neighbors)
    if found.ndim != 2 or not found.size:
        raise ValueError(
            "`neighbors` must be [Q, k], at least one query and one neighbor. "
            f"Received: shape {found.shape}."
        )
    if found.dtype.kind not in "iu":
        raise TypeError(f"`neighbors` must be integers. Received: {found.dtype}.")
    outside = (found < 0) | (found >= gallery)
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise ValueError(
            f"`neighbors` must be from 0 to {gallery - 1}, the last item of the "
            f"gallery. Received: {found[row, column]} in row {row}."
        )
    ordered = np.sort(found, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if twice.any():
        row = int(np.argmax(twice))
        raise ValueError(
            "`neighbors` must not hold an item twice in a row. "
            f"Received: {shown(found[row].tolist())} in row {row}."
        )
    return np.bincount(found.ravel().astype("int64"), minlength=gallery)


def hubness_of_occurrences(occurrences: ArrayLike) -> dict[str, float]:
    """Measure hubness from the number of occurrences of each item.

    Args:
        occurrences: N_k, integers `[gallery]`, at least 0, at least one item.

    Returns:
        What `hubness` returns.

    Raises:
        ValueError: The shape is wrong, there is no item, or a count is below 0.
        TypeError: `occurrences` are not integers.

    Example:
        >>> hubness_of_occurrences([0, 1, 2])
        {'skewness': 0.0, 'anti_hubs': 0.3333333333333333, 'largest': 2.0, 'mean': 1.0}
    """
    counts = as_array("occurrences", occurrences)
    if counts.ndim != 1 or not counts.size:
        raise ValueError(
            "`occurrences` must be [gallery], at least one item. "
            f"Received: shape {counts.shape}."
        )
    if counts.dtype.kind not in "iu":
        raise TypeError(f"`occurrences` must be integers. Received: {counts.dtype}.")
    if counts.min() < 0:
        raise ValueError(f"`occurrences` must be at least 0. Received: {counts.min()}.")
    counts = counts.astype("float64")
    centered = counts - counts.mean()
    even = counts.min() == counts.max()
    skewness = 0.0 if even else (centered**3).mean() / (centered**2).mean() ** 1.5
    return {
        "skewness": float(skewness),
        "anti_hubs": float((counts == 0).mean()),
        "largest": float(counts.max()),
        "mean": float(counts.mean()),
    }
