"""Check the arguments of exact searches."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arrays import as_array
from tfdml._core.embeddings import as_embeddings
from tfdml.messages import shown


def check_k(k: int, allowed: int) -> None:
    """Refuse a `k` that is not an integer from 1 to `allowed`.

    Raises:
        TypeError: `k` is not an integer.
        ValueError: `k` is out of range.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"`k` must be an integer. Received: k={shown(k)}.")
    if not 1 <= k <= allowed:
        raise ValueError(
            f"`k` must be from 1 to {allowed}, the gallery rows that a query may "
            f"return. Received: k={k}."
        )


def checked_queries(
    queries: ArrayLike, dimension: int, *, unit: bool
) -> NDArray[np.float32]:
    """Check queries of a gallery and return them in float32.

    Args:
        queries: Embeddings `[Q, D]`, real and finite.
        dimension: That of the gallery, D.
        unit: Whether a row of zeros is refused.

    Raises:
        ValueError: As `as_embeddings`, or not of the dimension of the gallery.
    """
    rows = as_embeddings("queries", queries, unit=unit)
    if rows.shape[1] != dimension:
        raise ValueError(
            f"`queries` must have the dimension of the gallery, {dimension}. "
            f"Received: {rows.shape[1]}."
        )
    return rows


def check_exclude(
    exclude: ArrayLike | None, queries: int, gallery: int
) -> NDArray[np.int64]:
    """Check which gallery rows each query must leave out.

    Args:
        exclude: Integers `[Q]` or `[Q, m]`, the rows of each query, -1 for none; `None`
            for none at all.
        queries: Number of queries, Q.
        gallery: Number of gallery rows.

    Returns:
        int64 `[Q, m]`.

    Raises:
        ValueError: The shape or dtype is wrong, or a row is out of range.
    """
    if exclude is None:
        return np.empty((queries, 0), np.int64)
    rows = as_array("exclude", exclude)
    if rows.dtype.kind not in "iu" or rows.ndim > 2 or rows.shape[:1] != (queries,):
        raise ValueError(
            f"`exclude` must hold integers, [Q] or [Q, m], for the {queries} queries. "
            f"Received: dtype={rows.dtype}, shape={rows.shape}."
        )
    if rows.size and (int(rows.min()) < -1 or int(rows.max()) >= gallery):
        raise ValueError(
            f"`exclude` must be -1 or a gallery row below {gallery}. "
            f"Received: values from {rows.min()} to {rows.max()}."
        )
    return rows.reshape(queries, -1).astype(np.int64)
