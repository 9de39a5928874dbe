"""Search an index by comparing with all rows; see `tfdml.neighbors.ExactSearcher`."""

from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tfdml.index._recall import MeasuredRecall
from tfdml.index.engines._settings import IndexSettings
from tfdml.index.rows import RowSearcher
from tfdml.neighbors import Metric


class ExactRows:
    """Nearest rows by any metric, found by comparing with all.

    It has the methods of a `CodedSearcher`.

    Args:
        gallery: Embeddings `[N, D]`, finite, `N` at least 1; neither copied nor
            modified.
        settings: Exact ones.
        metric: How rows are compared.
        recall: The recall to be told, if there is a target.
        searcher: What to compare with, if it is at hand.

    Attributes:
        settings: How it searches.
        recall: As given.
        scale: 1; a coded searcher divides rows by it.
    """

    scale = 1.0

    def __init__(
        self,
        gallery: NDArray[np.float32],
        settings: IndexSettings,
        *,
        metric: Metric,
        recall: MeasuredRecall | None = None,
        searcher: RowSearcher | None = None,
    ) -> None:
        self.settings = settings
        self.recall = recall
        self._metric: Metric = metric
        self._searcher = searcher or RowSearcher(gallery, metric)

    def using(
        self,
        settings: IndexSettings,
        *,
        threads: int | None = None,
        recall: MeasuredRecall | None = None,
    ) -> Self:
        """Return a searcher of the same rows with another reason; all cores work."""
        return type(self)(
            self._searcher.gallery,
            settings,
            metric=self._metric,
            recall=recall,
            searcher=self._searcher,
        )

    def write(self, data: Path) -> None:
        """Write nothing: the rows are all it has."""

    def nearest(
        self,
        queries: NDArray[np.float32],
        k: int,
        norms: NDArray[np.float64] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """See `CodedSearcher.nearest`."""
        return self._searcher.nearest(queries, k)

    def nearest_others(
        self, queries: NDArray[np.float32], own: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """See `CodedSearcher.nearest_others`."""
        return self._searcher.nearest(queries, k, own)
