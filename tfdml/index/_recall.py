"""Describe a recall: the one to be reached, and the one that was measured."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tfdml._core.wilson import NORMAL_QUANTILE, score_interval

LEAST_QUERIES = 200
"""The fewest queries that a caller may give: half choose, half measure."""


@dataclass(frozen=True)
class MeasuredRecall:
    """The share of the true nearest items that an index finds, as measured.

    Attributes:
        value: recall@k, the mean over the queries.
        k: How many neighbors were searched for.
        queries: How many queries were used; 0 if all items are compared, which finds
            every neighbor.
        low: Lower end of the 95% interval.
        high: Upper end.
        target: The recall to be reached.
        own_queries: Whether the queries are the caller's. If not, they are items.
    """

    value: float
    k: int
    queries: int
    low: float
    high: float
    target: float
    own_queries: bool

    @classmethod
    def of_exact(cls, target: "RecallTarget") -> Self:
        """Return the recall of comparing with all items."""
        return cls(1.0, 10, 0, 1.0, 1.0, target.value, target.queries is not None)

    def __str__(self) -> str:
        """Return a line of text."""
        if not self.queries:
            return "recall 1 by comparing with all items"
        of = "queries of the caller" if self.own_queries else "items as queries"
        return (
            f"recall@{self.k} {self.value:.4f} ({self.low:.4f} to {self.high:.4f}, "
            f"{self.queries} {of}, target {self.target:g})"
        )


@dataclass(frozen=True)
class RecallTarget:
    """The recall that an index is built and rebuilt for.

    Args:
        value: The recall@10 to be reached.
        queries: Those of the caller, checked float32 `[Q, D]`; None for items.
        seed: Seed of the drawing of queries.
    """

    value: float
    queries: NDArray[np.float32] | None
    seed: int


def recall_interval(
    recalls: NDArray[np.float64], quantile: float = NORMAL_QUANTILE
) -> tuple[float, float]:
    """Return the interval of a mean recall.

    It is Wilson's, for as many independent trials as would have the same variance: the
    neighbors of one query are found or missed together. If all queries have the same
    recall, each is one trial.

    Args:
        recalls: Of each query, from 0 to 1, `[Q]`.
        quantile: Half its width in standard deviations. Default: 95% confidence.
    """
    mean, variance = float(recalls.mean()), float(recalls.var()) / len(recalls)
    trials = mean * (1 - mean) / variance if variance else len(recalls)
    return score_interval(mean, trials, quantile)
