"""Search rows exactly, with scores that are higher the nearer a row is."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml.neighbors import ExactSearcher, Metric


class RowSearcher(ExactSearcher):
    """An `ExactSearcher` whose scores are higher the nearer, whatever the metric.

    The score of `"squared_euclidean"` is minus the squared distance, so that all that
    merges, sorts and limits scores need not know the metric.

    Args:
        gallery: As of `ExactSearcher`, as are the others.
        metric: How rows are compared.
        zero_rows: Whether rows of zeros are allowed with `"cosine"`.
    """

    def __init__(
        self, gallery: ArrayLike, metric: Metric, *, zero_rows: bool = False
    ) -> None:
        super().__init__(gallery, metric, zero_rows=zero_rows)
        self._is_distance = metric == "squared_euclidean"

    def nearest(
        self, queries: ArrayLike, k: int, exclude: ArrayLike | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Answer like `ExactSearcher.nearest`."""
        rows, scores = super().nearest(queries, k, exclude)
        return rows, np.subtract(0, scores) if self._is_distance else scores
