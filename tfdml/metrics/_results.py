"""Hold the metrics of each query and average them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import one_of
from tfdml._core.labels import as_labels

Average = Literal["micro", "macro"]
WithoutPositive = Literal["skip", "zero"]


@dataclass(frozen=True, eq=False)
class RankingCurve:
    """Mean precision of rankings at levels of recall.

    The precision of a query is defined at its positives: i / rank_i at recall i / R for
    the i-th of its R positives.

    Args:
        recall: 0, 0.01, ... 1, float64 `[101]`.
        interpolated: The highest precision at a recall of at least r, float64 `[101]`:
            every tenth is the 11-point curve of TREC and of Manning, Raghavan and
            Schütze, Introduction to Information Retrieval, Cambridge University Press
            2008, section 8.4.
        linear: Precision drawn straight from one positive to the next, and level before
            the first, float64 `[101]`.
    """

    recall: NDArray[np.float64]
    interpolated: NDArray[np.float64]
    linear: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class QueryResults:
    """Metrics of each query with a positive, and the queries without one.

    Args:
        queries: The items that these queries are, int64 `[Q]`, rising.
        classes: The class of each, integers or strings `[Q]`; without classes, what the
            query is a sample of, such as its sequence.
        values: Metrics by name, each float64 `[Q]`.
        first_ranks: Rank of the first positive, from 1, int64 `[Q]`; None where labels
            are continuous.
        curve: Precision against recall; None where labels are continuous.
        without_positive: The items that are queries without a positive, int64 `[U]`.
        classes_without_positive: The class of each of those, `[U]`.
    """

    queries: NDArray[np.int64]
    classes: NDArray[Any]
    values: Mapping[str, NDArray[np.float64]]
    first_ranks: NDArray[np.int64] | None
    curve: RankingCurve | None
    without_positive: NDArray[np.int64]
    classes_without_positive: NDArray[Any]

    def means(
        self, *, average: Average = "micro", without_positive: WithoutPositive = "skip"
    ) -> dict[str, float]:
        """Return the mean of each metric.

        Args:
            average: `"micro"`: each query counts the same. `"macro"`: each class does,
                by the mean of its queries.
            without_positive: `"skip"`: queries without a positive are left out, as
                pytorch-metric-learning does; `"zero"`: each metric is 0 for them, as in
                the code of most papers.

        Raises:
            ValueError: An argument is not one of these.
        """
        one_of("average", average, get_args(Average))
        one_of("without_positive", without_positive, get_args(WithoutPositive))
        classes, more = self.classes, 0
        if without_positive == "zero":
            more = len(self.without_positive)
            classes = np.concatenate([classes, self.classes_without_positive])
        padded = {n: np.pad(v, (0, more)) for n, v in self.values.items()}
        if average == "micro":
            return {name: float(np.mean(values)) for name, values in padded.items()}
        _, of = np.unique(classes, return_inverse=True)
        sizes = np.bincount(of)
        return {
            name: float(np.mean(np.bincount(of, weights=values) / sizes))
            for name, values in padded.items()
        }

    def by(self, groups: ArrayLike) -> dict[Any, dict[str, float]]:
        """Average over the queries of each group, and count them.

        Args:
            groups: The group of each item, such as its category, integers or strings
                `[N]`.

        Returns:
            By group: the mean of each metric over its queries that have a positive
            (left out where none has), `queries` and `queries_without_positive`.

        Raises:
            ValueError: `groups` is too short for the queries.
        """
        names = as_labels("groups", groups)
        last = max(self.queries.max(initial=-1), self.without_positive.max(initial=-1))
        if len(names) <= last:
            raise ValueError(
                f"`groups` must have one entry per item, {last + 1} or more. Received: "
                f"{len(names)}."
            )
        found, of = np.unique(names, return_inverse=True)
        answered = np.bincount(of[self.queries], minlength=len(found))
        unanswered = np.bincount(of[self.without_positive], minlength=len(found))
        sums = {
            name: np.bincount(of[self.queries], values, minlength=len(found))
            for name, values in self.values.items()
        }
        return {
            name: {n: float(s[i] / answered[i]) for n, s in sums.items() if answered[i]}
            | {
                "queries": int(answered[i]),
                "queries_without_positive": int(unanswered[i]),
            }
            for i, name in enumerate(found.tolist())
            if answered[i] + unanswered[i]
        }
