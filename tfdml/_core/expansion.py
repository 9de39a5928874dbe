"""Move rows toward their neighbors, for checked arguments."""

import numpy as np
from numpy.typing import NDArray

from tfdml._core.embeddings import unit_or_zero

_NUMBERS = 2**22  # of neighbors that are gathered at once: 16 MiB


def weights_of(scores: NDArray[np.float32], alpha: float) -> NDArray[np.float64]:
    """Return what neighbors of some cosines weigh: their power, 0 below 0."""
    weights: NDArray[np.float64] = np.maximum(scores, 0).astype(np.float64) ** alpha
    weights[scores <= 0] = 0
    return weights


def moved(
    queries: NDArray[np.float32],
    gallery: NDArray[np.float32],
    found: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return each query at length 1 and the weighted sum of its rows, float64."""
    sums = unit_or_zero(queries).astype(np.float64)
    dimension = gallery.shape[1]
    step = max(1, _NUMBERS // (found.shape[1] * dimension))
    for start in range(0, len(found), step):
        block = slice(start, start + step)
        near = unit_or_zero(gallery[found[block].ravel()])
        near = near.reshape(-1, found.shape[1], dimension)
        sums[block] += np.einsum("qk,qkd->qd", weights[block], near)
    return sums
