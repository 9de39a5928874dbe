"""Find the nearest rows of a gallery on a GPU."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml._core.exact_search._gpu import Best, Sums
from tfdml._core.exact_search._gpu_blocks import Block, run_blocks
from tfdml._core.exact_search._scores import PreparedGallery


def find_nearest_on_gpu(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    exclude: NDArray[np.int64],
    indices: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> NDArray[np.int64]:
    """Answer those queries of `nearest_in` that a GPU can decide.

    The GPU is asked for a few candidates more than k. They are all that can be among
    the best k if the last of them is too far behind the k-th, whatever the rounding. It
    is asked again, for more, where they are not.

    Args:
        gallery: The gallery.
        queries: Checked embeddings `[Q, D]`.
        exclude: The rows that each leaves out, `[Q, m]`, -1 for none.
        indices: For the answers, `[Q, k]`.
        scores: For their scores, `[Q, k]`.

    Returns:
        The queries without an answer, int64.
    """
    left, most = np.arange(len(queries)), gallery.limits.gpu_spare
    if exclude.shape[1] > most:  # which would make the mask below large
        return left
    for spare in sorted({min(most, max(5, indices.shape[1] // 8)), most}):
        left = _find(gallery, queries, exclude, indices, scores, left, spare)
    return left


def _find(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    exclude: NDArray[np.int64],
    indices: NDArray[np.int64],
    scores: NDArray[np.float32],
    chosen: NDArray[np.int64],
    spare: int,
) -> NDArray[np.int64]:
    gpu = gallery.on_gpu(len(chosen))
    if gpu is None:
        return chosen
    k = indices.shape[1]
    count = min(len(gallery), k + exclude.shape[1] + spare)
    is_done = np.zeros(len(queries), bool)

    def launch(block: Block) -> Iterator[tuple[None, Best | Sums]]:
        best = gpu.best(block.prepared.rows, count, block.size)
        is_own = queries is gallery.gallery
        asked = block.queries if is_own else queries[block.queries]
        originals = gallery.originals_on_gpu()
        yield None, originals.with_sums(best, asked) if originals else best

    def finish(block: Block, _: None, found: tuple[NDArray[Any], ...]) -> None:
        size = len(block.queries)
        numbers, columns, *sums = (side[:size] for side in found)
        allowed = columns[:, :, None] != exclude[block.queries][:, None, :]
        allowed = allowed.all(axis=2)
        kth = np.argmax(np.cumsum(allowed, axis=1) == k, axis=1)
        lowest = numbers[np.arange(size), kth] - block.prepared.slack
        done = block.prepared.is_known
        if count < len(gallery):
            done = done & (numbers[:, -1] < lowest)
        near = allowed & (numbers >= lowest[:, None]) & done[:, None]
        rows, places = np.nonzero(near)
        found_columns = columns[rows, places]
        values = gallery.scores(
            queries,
            block.queries[rows],
            found_columns,
            sums[0][rows, places] if sums else None,
        )
        if not block.confirms(gallery, rows, numbers[rows, places], values):
            return
        order, badness = np.full(near.shape, len(gallery)), np.full(near.shape, np.inf)
        order[rows, places] = found_columns
        badness[rows, places] = -gallery.sign * values
        best = np.lexsort((order, badness), axis=1)[done, :k]
        answered = block.queries[done]
        indices[answered] = np.take_along_axis(columns[done], best, axis=1)
        scores[answered] = -gallery.sign * np.take_along_axis(badness[done], best, 1)
        is_done[answered] = True

    run_blocks(gallery, queries, chosen, launch, finish)
    return chosen[~is_done[chosen]]
