"""Cut embeddings to their first dimensions."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import whole
from tfdml._core.embeddings import as_embeddings, unit_or_zero
from tfdml._core.exact_search import Metric
from tfdml.messages import shown


def first_dimensions(
    embeddings: ArrayLike, dimensions: int, *, metric: Metric = "cosine"
) -> NDArray[np.float32]:
    """Return the first numbers of each embedding, scaled to length 1 again.

    An embedding that was trained for it, by a Matryoshka loss, is a good one of fewer
    dimensions, too. Of any other, the first numbers are as good as a random choice.

    Args:
        embeddings: `[N, D]`, real and finite. `N` may be 0.
        dimensions: How many numbers to keep, from 1 to `D`.
        metric: How they will be compared. With `"cosine"` (default) rows are scaled to
            length 1; with `"dot_product"` and `"squared_euclidean"` they stay as long
            as they are.

    Returns:
        float32 `[N, dimensions]`, a new array.

    Raises:
        ValueError: A shape, dtype or value is wrong, `dimensions` is out of range, or,
            with `"cosine"`, the first numbers of a row are all zero.

    Example:
        >>> from tfdml.neighbors import first_dimensions
        >>> first_dimensions([[3.0, 4.0, 12.0]], 2).round(3).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """
    rows = as_embeddings("embeddings", embeddings, unit=False)
    kept = whole("dimensions", dimensions)
    if kept > rows.shape[1]:
        raise ValueError(
            f"`dimensions` must be from 1 to {rows.shape[1]}, the numbers of an "
            f"embedding. Received: dimensions={shown(dimensions)}."
        )
    if metric != "cosine":
        return rows[:, :kept].copy()
    cut = unit_or_zero(rows[:, :kept])
    zeros = np.flatnonzero(~cut.any(axis=1))
    if zeros.size:
        raise ValueError(
            f"`embeddings` must not be zero in the first {kept} dimensions: their "
            f"cosine is not defined. Received: zeros in row {zeros[0]}. Keep more "
            "`dimensions`, or leave that row out."
        )
    return cut
