"""Compare what the searches of an index find now with the true nearest items."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tfdml.index.engines._samples import TIE
from tfdml.index.local import Limits, nearest
from tfdml.index.rows import Snapshot


def recalls_now(
    state: Snapshot, queries: NDArray[np.float32], k: int, limits: Limits
) -> NDArray[np.float64]:
    """Return the recall@k of each query.

    Args:
        state: The gallery, with what was added and removed.
        queries: Checked queries `[Q, D]`.
        k: How many neighbors, at least 1.
        limits: Those of the searches.

    Returns:
        float64 `[Q]` from 0 to 1. An item that is as near as the last of the true
        neighbors counts as one of them.
    """
    if not state.count:
        raise ValueError("The index must hold at least one item.")
    found, scores = nearest(state, queries, k, None, None, limits)
    # As if a filter let so few items through that they are all compared with.
    all_compared = replace(limits, fewest_share=1)
    none_banned = np.empty((2, 0), np.int64)
    true, best = nearest(state, queries, k, None, none_banned, all_compared)
    is_found = (found[:, :, None] == true[:, None, :]).any(axis=2)
    worst = best[:, -1:]
    is_found |= scores >= worst - TIE * np.abs(worst)
    recalls: NDArray[np.float64] = is_found.sum(axis=1) / true.shape[1]
    return recalls
