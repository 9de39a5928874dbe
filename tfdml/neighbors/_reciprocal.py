"""Compare items by whom they have as mutual neighbors (k-reciprocal re-ranking)."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import in_range, whole
from tfdml._core.embeddings import as_embeddings, unit_or_zero
from tfdml.neighbors._exact import ExactSearcher

_AT_ONCE = 2**22  # numbers


class KReciprocalDistances:
    """Distances by mutual neighbors, of items of one set from all others.

    `N(i, k)` holds item `i` and its `k` nearest others, and
    `R(i, k) = {j in N(i, k): i in N(j, k)}` its mutual neighbors.

    - `R*(i)` is `R(i, k1)` joined by each `R(j, k1 / 2)` of a `j` in it that has more
      than two thirds of its items in `R(i, k1)`.
    - `V_i[j] = exp(-d(i, j))` for `j` in `R*(i)`, else 0, divided by its sum; then
      `V_i` is the mean of `V` over the `k2` nearest of `i`, itself one of them.
    - `J(i, j) = 1 - t / (2 - t)` with `t = sum_c min(V_i[c], V_j[c])`: the Jaccard
      distance.
    - The distance is `(1 - weight) J(i, j) + weight d(i, j)`.

    `d(i, j)` is the squared Euclidean distance of the items at length 1, divided by the
    largest from `i`. Queries and gallery are one set: other queries count as
    neighbors, as in the paper. To compare queries with a gallery, concatenate them:

        both = KReciprocalDistances(np.concatenate([queries, gallery]))
        distances = both.of(np.arange(len(queries)))[:, len(queries) :]

    Of equally near items the first counts as nearer, and each item is nearest to
    itself. Memory: about `N k2 k1` numbers of 16 bytes at most, and the distances that
    are asked for, 12 bytes for each.

    Args:
        embeddings: `[N, D]`, real and finite, compared by cosine. A row of zeros has
            the cosine 0 with all others.
        k1: How many neighbors are looked at, from 1 to `N - 1`.
        k2: Over how many items `V` is averaged, from 1 (not at all) to `k1 + 1`.
        weight: The share of the distance itself, from 0 to 1.

    Raises:
        ValueError: An argument is not as stated above.

    Reference:
        Zhong et al., Re-ranking Person Re-identification with k-reciprocal Encoding,
        CVPR 2017. As in the authors' code, two thirds must be exceeded.

    Example:
        >>> from tfdml.neighbors import KReciprocalDistances
        >>> items = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
        >>> distances = KReciprocalDistances(items, k1=1, k2=1).of([0])
        >>> distances.argsort().tolist()
        [[0, 1, 3, 2]]
    """

    def __init__(
        self,
        embeddings: ArrayLike,
        *,
        k1: int = 20,
        k2: int = 6,
        weight: float = 0.3,
    ) -> None:
        rows = as_embeddings("embeddings", embeddings, unit=False)
        k1, k2 = whole("k1", k1), whole("k2", k2)
        if k1 >= len(rows):
            raise ValueError(
                f"`k1` must be from 1 to {len(rows) - 1}, the number of other items. "
                f"Received: k1={k1}."
            )
        if k2 > k1 + 1:
            raise ValueError(
                f"`k2` must be from 1 to {k1 + 1}, the neighbors that `k1` leaves. "
                f"Received: k2={k2}."
            )
        self._weight = in_range("weight", weight, 0, 1)
        # In float64, so that equal rows have equal distances once these are rounded.
        self._unit = unit_or_zero(rows).astype(np.float64)
        searcher = ExactSearcher(rows, "cosine", zero_rows=True)
        own = np.arange(len(rows))
        others, _ = searcher.nearest(rows, k1, own)
        lists = np.concatenate([own[:, None], others], axis=1)
        # The item that is farthest is nearest to what lies opposite.
        _, opposite = searcher.nearest(-rows, 1)
        farthest = 2 + 2 * opposite[:, 0].astype(np.float64)
        self._farthest = np.where(farthest > 0, farthest, 1)
        self._vectors = self._averaged(self._encoded(lists), lists[:, :k2])
        self._inverted = self._vectors.inverted(len(rows))

    def of(self, items: ArrayLike) -> NDArray[np.float32]:
        """Return the distances of some items from all.

        Args:
            items: Which items, int64 `[Q]`. Ask for as many at a time as the memory
                allows.

        Returns:
            float32 `[Q, N]`; 0 or more, and at most 1.
        """
        rows = np.asarray(items, np.int64)
        distances = self._plain(rows[:, None], None)
        distances *= self._weight
        for place, item in enumerate(rows.tolist()):
            columns, values = self._vectors.row(item)
            owners, shared, theirs = self._inverted.rows(columns)
            least = np.minimum(values[owners], theirs)
            common = np.bincount(shared, least, minlength=len(self._unit))
            distances[place] += (1 - self._weight) * (1 - common / (2 - common))
        # The sums of weights are 1 up to rounding.
        return np.clip(distances, 0, 1).astype(np.float32)

    def _plain(
        self, rows: NDArray[np.int64], columns: NDArray[np.int64] | None
    ) -> NDArray[np.float64]:
        """Return d of an item, `[1]` or `[Q, 1]`, from some items or from all."""
        others = self._unit if columns is None else self._unit[columns]
        own = self._unit[rows.ravel()]
        squares = np.maximum(2 - 2 * (own @ others.T), 0)
        return np.minimum(squares / self._farthest[rows.ravel(), None], 1)

    def _encoded(self, lists: NDArray[np.int64]) -> "_Sparse":
        """Return V before it is averaged."""
        near = _mutual(lists)
        half = round((lists.shape[1] - 1) / 2)  # as NumPy rounds: halves to even
        nearer = [set(own.tolist()) for own in _mutual(lists[:, : half + 1])]
        sizes, columns, values = [], [], []
        for item, own in enumerate(near):
            mutual = set(own.tolist())
            joined = set(mutual)
            for other in mutual:
                theirs = nearer[other]
                if 3 * len(theirs & mutual) > 2 * len(theirs):
                    joined |= theirs
            found = np.array(sorted(joined))
            weights = np.exp(-self._plain(np.array([item]), found)[0])
            sizes.append(len(found))
            columns.append(found)
            values.append(weights / weights.sum())
        return _Sparse.of(sizes, np.concatenate(columns), np.concatenate(values))

    def _averaged(self, vectors: "_Sparse", lists: NDArray[np.int64]) -> "_Sparse":
        """Return the mean of the vectors in each list."""
        count, k2 = lists.shape
        if k2 == 1:
            return vectors
        step = max(1, _AT_ONCE // (k2 * max(1, vectors.longest)))
        sizes, columns, values = [], [], []
        for start in range(0, count, step):
            block = lists[start : start + step]
            owners, found, weights = vectors.rows(block.ravel())
            keys = owners // k2 * count + found
            distinct, places = np.unique(keys, return_inverse=True)
            sizes.append(np.bincount(distinct // count, minlength=len(block)))
            columns.append(distinct % count)
            values.append(np.bincount(places, weights) / k2)
        return _Sparse.of(
            np.concatenate(sizes), np.concatenate(columns), np.concatenate(values)
        )


class _Sparse(NamedTuple):
    """Rows of few numbers: those of row i lie from `starts[i]` to `starts[i + 1]`."""

    starts: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def of(
        cls, sizes: ArrayLike, columns: NDArray[np.int64], values: NDArray[np.float64]
    ) -> Self:
        """Return rows of some sizes."""
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(starts, columns, values)

    @property
    def longest(self) -> int:
        """How many numbers the longest row has."""
        return int(np.diff(self.starts).max(initial=0))

    def row(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the columns and values of a row."""
        part = slice(self.starts[number], self.starts[number + 1])
        return self.columns[part], self.values[part]

    def rows(
        self, numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return the place in `numbers`, column and value of all numbers of rows."""
        sizes = self.starts[numbers + 1] - self.starts[numbers]
        owners = np.repeat(np.arange(len(numbers)), sizes)
        before = np.cumsum(sizes) - sizes
        at = self.starts[numbers][owners] + np.arange(len(owners)) - before[owners]
        return owners, self.columns[at], self.values[at]

    def inverted(self, count: int) -> "_Sparse":
        """Return the columns as rows."""
        order = np.argsort(self.columns, kind="stable")
        rows = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        sizes = np.bincount(self.columns, minlength=count)
        return _Sparse.of(sizes, rows[order], self.values[order])


def _mutual(lists: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return of each list the items that have its first item in theirs."""
    count, length = lists.shape
    step = max(1, _AT_ONCE // length**2)
    found: list[NDArray[np.int64]] = []
    for start in range(0, count, step):
        block = lists[start : start + step]
        is_mutual = (lists[block] == block[:, :1, None]).any(axis=2)
        found += [own[kept] for own, kept in zip(block, is_mutual, strict=True)]
    return found
