"""Search with ScaNN, which on unchecked input ends the process (1.4.2).

Its own saved ids are a pickle, so it is given none.
"""

import math
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tfdml.index._recall import MeasuredRecall
from tfdml.index.engines._coded import WORTH_THREADS, CodedSearcher
from tfdml.index.engines._prepared import PreparedRows
from tfdml.index.engines._scann_library import import_scann
from tfdml.index.engines._settings import REORDER_K, IndexSettings, tree_training
from tfdml.messages import cut, shortened


class ScannSearcher(CodedSearcher):
    """Searches with Google's ScaNN; see `CodedSearcher`."""

    engine = "scann"

    def __init__(
        self,
        searcher: Any,
        settings: IndexSettings,
        *,
        threads: int | None = None,
        **more: Any,
    ) -> None:
        super().__init__(searcher, settings, threads=threads, **more)
        if self.threads > 1 and threads is None:
            # One thread less: the caller works too. With 0, ScaNN would crash.
            searcher.set_num_threads(self.threads - 1)

    @classmethod
    def of_rows(cls, prepared: PreparedRows, settings: IndexSettings) -> Self:
        """See `CodedSearcher.of_rows`."""
        scann = import_scann()
        builder = scann.builder(prepared.rows, REORDER_K, "dot_product")
        if settings.method == "tree":
            builder = builder.tree(
                settings.leaves,
                settings.leaves_to_search,
                spherical=settings.spherical,
                **tree_training(settings.leaves),
            )
        if settings.method == "exact":
            builder = builder.score_brute_force()
        else:
            builder = builder.score_ah(
                settings.dimensions_per_block,
                anisotropic_quantization_threshold=settings.anisotropic_threshold,
            ).reorder(settings.reorder)
        built = builder.build()
        return cls(built, settings, unit=prepared.unit, scale=prepared.scale)

    @classmethod
    def read(
        cls,
        data: Path,
        settings: IndexSettings,
        gallery: NDArray[np.float32],
        *,
        unit: bool,
        scale: float,
        recall: MeasuredRecall | None = None,
    ) -> Self:
        """See `CodedSearcher.read`."""
        # ScaNN's load_searcher() also runs a pickle, `scann_docids.pkl`, where it
        # finds one. This is the rest of it.
        scann = import_scann()
        assets = (data / "scann_assets.pbtxt").read_text(encoding="utf-8")
        searcher = scann.ScannSearcher(scann.scann_pybind.ScannNumpy(str(data), assets))
        return cls(searcher, settings, unit=unit, scale=scale, recall=recall)

    def write(self, data: Path) -> None:
        """See `CodedSearcher.write`."""
        try:
            # Absolute paths, the default, would read the original's files in a copy.
            self._searcher.serialize(str(data), relative_path=True)
        except RuntimeError as error:
            raise OSError(
                f"ScaNN cannot write to {cut(data)}: {shortened(error)}."
            ) from error

    def _block(
        self, queries: NDArray[np.float32], k: int, settings: dict[str, int]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        if len(queries) == 1:  # in less time than a batch, and never padded
            row, score = self._searcher.search(queries[0], **settings)
            if len(row) == k:
                return row[None], score[None]
        return super()._block(queries, k, settings)

    def _size(self) -> int:
        return int(self._searcher.size())

    def _call(
        self, queries: NDArray[np.float32], settings: dict[str, int]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        found: tuple[NDArray[Any], NDArray[Any]]
        if not self._is_for_threads(queries):
            found = self._searcher.search_batched(queries, **settings)
            return found
        # Several parts for each thread, as one may be held up.
        part = max(math.ceil(len(queries) / (4 * self.threads)), WORTH_THREADS // 2)
        found = self._searcher.search_batched_parallel(
            queries, **settings, batch_size=part
        )
        return found
