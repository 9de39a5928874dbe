"""From the ranks of positives to metrics."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LEVELS = 100
"""Precision is told at recall 0, 1 / LEVELS, 2 / LEVELS, ... 1."""


class Ranked(NamedTuple):
    """The ranks of all positives of some queries, in one."""

    ranks: NDArray[np.int64]
    owners: NDArray[np.int64]
    """Which query each rank is of."""
    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    """The how-manieth positive of its query each is, from 1."""

    @classmethod
    def of(cls, ranks: list[NDArray[np.int64]]) -> "Ranked":
        """Join the rising ranks of each query, at least one each."""
        sizes = np.array([len(found) for found in ranks])
        starts = np.cumsum(sizes) - sizes
        owners = np.repeat(np.arange(len(sizes)), sizes)
        ordinals = np.arange(len(owners)) - starts[owners] + 1
        return cls(np.concatenate(ranks), owners, sizes, starts, ordinals)

    def values(
        self, ks: Sequence[int], allowed: NDArray[np.int64]
    ) -> dict[str, NDArray[np.float64]]:
        """Return the metrics of each query."""

        def total(weights: NDArray[Any]) -> NDArray[np.float64]:
            size = len(self.sizes)
            sums = np.bincount(self.owners, weights, minlength=size)
            return sums.astype(np.float64, copy=False)

        values = {}
        for k in ks:
            found = total(self.ranks <= k)
            values[f"precision_at_{k}"] = found / k
            values[f"recall_at_{k}"] = (found > 0).astype(np.float64)
        precision = self.ordinals / self.ranks
        is_within = self.ranks <= self.sizes[self.owners]
        values["r_precision"] = total(is_within) / self.sizes
        values["map_at_r"] = total(precision * is_within) / self.sizes
        values["mean_average_precision"] = total(precision) / self.sizes
        values["mean_reciprocal_rank"] = 1 / self.ranks[self.starts]
        pairs = self.sizes * (allowed - self.sizes)
        values["roc_auc"] = 1 - total(self.ranks - self.ordinals) / np.maximum(pairs, 1)
        return values

    def precision_at_recall(self) -> NDArray[np.float64]:
        """Sum over queries the precision at each level of recall, `[2, 101]`."""
        precision = self.ordinals / self.ranks
        ends = self.starts + self.sizes
        sums = np.empty((2, LEVELS + 1))
        for level in range(LEVELS + 1):
            reached = level * self.sizes  # in hundredths of a positive
            place = np.maximum(-(-reached // LEVELS), 1) - 1
            # The highest precision from that positive on; the 0 lets the last end be.
            spans = np.stack([self.starts + place, ends], axis=1).ravel()
            highest = np.maximum.reduceat(np.append(precision, 0), spans)[::2]
            sums[0, level] = highest.sum()
            left = np.clip(reached // LEVELS, 1, self.sizes) - 1
            right = np.minimum(left + 1, self.sizes - 1)
            share = np.maximum(reached / LEVELS - (left + 1), 0)
            before, after = (
                precision[self.starts + left],
                precision[self.starts + right],
            )
            sums[1, level] = (before + share * (after - before)).sum()
        return sums
