"""Count what comes before positives on a GPU."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfdml._core.exact_search._gpu import POSITIVES, Around
from tfdml._core.exact_search._gpu_blocks import Block, run_blocks
from tfdml._core.exact_search._scores import GpuQueries, PreparedGallery
from tfdml._core.exact_search._ties import Ties, tie_keys

_MOST_EXCLUDED = 1024  # each is compared with each positive
_MOST_POSITIVES = 1024  # so many passes over the gallery cost as much as a sort


def find_ranks_on_gpu(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    positives: NDArray[np.int64],
    sizes: NDArray[np.int64],
    exclude: NDArray[np.int64],
    ties: Ties,
    ranks: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Find those ranks of `ranks_in` that a GPU can decide.

    The GPU tells the gallery rows that may tie with some positive of a query, whatever
    the rounding, from those that surely come before or after each. Those that may tie
    are scored in float64 and sorted.

    Args:
        gallery: The gallery.
        queries: Checked embeddings `[Q, D]`.
        positives: Those of all queries, of each in rising order, `[P]`.
        sizes: How many each query has, `[Q]`.
        exclude: The rows that each leaves out, `[Q, m]`, -1 for none.
        ties: As in `positive_ranks`.
        ranks: For the ranks, `[P]`, in the order of `positives`.

    Returns:
        Whether all ranks of each query have been found, `[Q]`.
    """
    is_left = sizes > 0
    chosen = np.flatnonzero(is_left & (sizes <= _MOST_POSITIVES))
    gpu = gallery.on_gpu(len(chosen))
    if gpu is None or exclude.shape[1] > _MOST_EXCLUDED:
        return ~is_left
    # Queries with as many positives come together: little is filled up.
    chosen = chosen[np.argsort(sizes[chosen], kind="stable")]
    starts = np.cumsum(sizes) - sizes
    is_ranked = np.zeros(len(positives), bool)
    count = len(gallery)

    def launch(block: Block) -> Iterator[tuple[int, Around]]:
        numbers = gpu.numbers(block.prepared.rows, block.size)
        left_out = np.sort(exclude[block.queries], axis=1)
        is_repeated = np.diff(left_out, axis=1, prepend=-2) == 0
        left_out, reach = np.where(is_repeated, -1, left_out), _reach(block.prepared)
        first, last = starts[block.queries], sizes[block.queries] - 1
        for begin in range(0, int(last.max()) + 1, POSITIVES):
            places = np.arange(begin, min(begin + POSITIVES, int(last.max()) + 1))
            places = np.minimum(places, last[:, None])  # filled up with the last one
            rows = positives[first[:, None] + places]
            yield begin, gpu.around(numbers, rows, left_out, reach)

    def finish(block: Block, begin: int, found: tuple[NDArray[Any], ...]) -> None:
        own, above, open_counts, bits = (side[: len(block.queries)] for side in found)
        left = np.clip(sizes[block.queries] - begin, 0, POSITIVES)
        # Above this, comparing pairs would cost more than a float64 product.
        few = np.maximum(5 * left, count // 64 + left)
        done = (left > 0) & block.prepared.is_known & (open_counts <= few)
        rows, columns = _open_rows(bits, np.flatnonzero(done))
        owners, places = np.nonzero(exclude[block.queries] >= 0)
        left_out = owners * count + exclude[block.queries][owners, places]
        kept = ~np.isin(rows * count + columns, left_out)
        rows, columns = rows[kept], columns[kept]
        scores = gallery.scores(queries, block.queries[rows], columns)

        keys = rows * count + columns
        wanted = _Positives.of(positives, starts, sizes, block.queries, count)
        at, is_positive = wanted.find(keys)
        order = np.lexsort(
            (columns, tie_keys(ties, is_positive), -gallery.sign * scores, rows)
        )
        firsts = np.searchsorted(rows[order], np.arange(len(block.queries)))
        before = np.empty(len(order), np.int64)
        before[order] = np.arange(len(order)) - firsts[rows[order]]

        place = at - starts[block.queries][rows] - begin
        mine = is_positive & (place >= 0) & (place < left[rows])
        rows, at, place, before = rows[mine], at[mine], place[mine], before[mine]
        if not block.confirms(gallery, rows, own[rows, place], scores[mine]):
            return
        ranks[at] = above[rows, place].astype(np.int64) + before + 1
        is_ranked[at] = True

    run_blocks(gallery, queries, chosen, launch, finish)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return np.bincount(owners[is_ranked], minlength=len(sizes)) == sizes


class _Positives(NamedTuple):
    """The positives of some queries, to be found by query and gallery row."""

    keys: NDArray[np.int64]
    """Rising."""
    at: NDArray[np.int64]
    """Where each is among the positives of all queries."""

    @classmethod
    def of(
        cls,
        positives: NDArray[np.int64],
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        queries: NDArray[np.int64],
        count: int,
    ) -> "_Positives":
        """Take those of some queries; a key is place in them x `count` + row."""
        owners = np.repeat(np.arange(len(queries)), sizes[queries])
        ends = np.cumsum(sizes[queries])
        shift = starts[queries] - (ends - sizes[queries])
        at = np.arange(len(owners)) + shift[owners]
        return cls(owners * count + positives[at], at)

    def find(
        self, keys: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return where each of some keys is, and whether it is there at all."""
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.at[place], self.keys[place] == keys


def _reach(queries: GpuQueries) -> NDArray[np.float32]:
    """Return the slack with what rounding adds to a number plus or minus it."""
    info = np.finfo(np.float32)
    wide = queries.slack * 1.0001 + 4 * float(info.eps) * queries.scale
    return np.nextafter(
        (wide + float(info.tiny)).astype(np.float32), np.float32(np.inf)
    )


def _open_rows(
    bits: NDArray[np.uint8], queries: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs that `Around` holds bits of, for some of its queries.

    Returns:
        Queries in rising order, and gallery rows.
    """
    slab = bits.shape[1]
    words = bits.view(np.uint64)
    if len(queries) < len(bits):
        words = words[queries]
    rows, columns = np.nonzero(words)
    octets = words[rows, columns][:, None].view(np.uint8)
    pairs, places = np.nonzero(np.unpackbits(octets, axis=1, bitorder="little"))
    octet, bit = np.divmod(places, 8)
    return queries[rows[pairs]], bit * slab + 8 * columns[pairs] + octet
