"""The index that searches with ScaNN."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._arguments import whole
from tfdml._embeddings import as_embeddings
from tfdml.index._interface import Embed, Metric
from tfdml.index._recall import LEAST_QUERIES, MeasuredRecall, RecallTarget
from tfdml.index.local import LocalIndex
from tfdml.index.rows import Ids
from tfdml.index.scann._searcher import ScannSearcher, ScannSettings
from tfdml.index.scann._tuning import searcher_for_target

_MEASURED_FROM = 20_000  # below, comparing with all is as fast as anything
_MOST_QUERIES = 2_000
_QUERIES = "target_queries.npy"


class ScannIndex(LocalIndex):
    """An index that searches with ScaNN, for galleries of up to millions of rows.

    Below 20,000 rows it compares with all of them. Above, it is built for a recall:
    of the settings that reach it, the fastest is taken, by measuring on items of the
    gallery. The choice of neighbours is then approximate; `recall` says how many of
    the true ones are found, `settings` how and why. Where no setting reaches the
    target, as in high dimensions without clusters, it compares with all rows. Their
    scores are exact in any case. Rows of equal score come in any order.

    Added rows are compared with one by one until the index is built again, for the
    same recall, which `compact` does, and many changes by themselves.

    What is measured is recall@10. For `k` above 10, as many times more rows are scored
    exactly; recall@k was not measured then.

    The gallery must fit in memory. ScaNN trains its codes on random samples, so two
    builds of one gallery may differ in a few neighbours. It reads its files in C++:
    load a folder only if you trust its writer.

    Example:
        >>> import numpy as np
        >>> from tfdml.index import ScannIndex
        >>> gallery = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
        >>> index = ScannIndex.build(gallery, ids=["right", "up", "between"])
        >>> ids, scores = index.search(np.array([[2.0, 0.0]]), k=2)
        >>> ids.tolist(), index.settings.method
        ([['right', 'between']], 'exact')
    """

    _takes_norms = True
    _target: RecallTarget | None = None

    @classmethod
    def build(
        cls,
        embeddings: ArrayLike,
        ids: Ids | None = None,
        attributes: Mapping[str, Sequence[Any]] | None = None,
        *,
        metric: Metric = "cosine",
        model_fingerprint: str = "",
        embed: Embed | None = None,
        target_recall: float | None = 0.99,
        queries: ArrayLike | None = None,
        seed: int = 0,
    ) -> Self:
        """Build an index of a gallery.

        Args:
            embeddings: As in `ExactIndex.build`, as of all that follow.
            ids: One for each row.
            attributes: See `Index.add`.
            metric: `"cosine"` or `"dot_product"`.
            model_fingerprint: Names the model that made the embeddings.
            embed: See `Index`.
            target_recall: The share of the 10 nearest rows that a search must find,
                above 0 and below 1. None chooses by the size of the gallery alone,
                and measures nothing.
            queries: What to measure with, `[Q, D]`, at least 200, of which 2,000 are
                drawn if there are more; saved with the index. Default: rows of the
                gallery, each of which is then not a neighbour of itself.
            seed: Draws what is measured with.

        Returns:
            The index.

        Raises:
            ValueError: A shape, dtype, value, id or attribute is not as it should be.
            ImportError: ScaNN cannot be imported.
        """
        target = _checked_target(target_recall, queries, seed, metric)
        index = cls._from_rows(
            embeddings,
            ids,
            attributes,
            metric,
            model_fingerprint,
            embed,
            target=target,
        )
        if target is not None:
            _check_dimension(target.queries, index.dimension)  # of an empty gallery too
        index._target = target
        return index

    @property
    def settings(self) -> ScannSettings | None:
        """How this index searches, and why; None as long as it has only added rows."""
        searcher = self._table.snapshot.searcher
        return None if searcher is None else searcher.settings

    @property
    def recall(self) -> MeasuredRecall | None:
        """What was measured at the last build.

        None where nothing was: as long as it has only added rows, and without a target.
        """
        searcher = self._table.snapshot.searcher
        return None if searcher is None else searcher.recall

    def __str__(self) -> str:
        """Say what it holds and how it searches."""
        said = f"ScannIndex of {self.count()} items, dimension {self.dimension}"
        if self.settings is not None:
            said += f", {self.settings.method}"
        return f"{said}, {self.recall or 'recall not measured'}"

    @classmethod
    def _build(
        cls, gallery: NDArray[np.float32], metric: Metric, **options: Any
    ) -> ScannSearcher:
        target: RecallTarget | None = options["target"]
        unit = metric == "cosine"
        if target is None:
            return ScannSearcher.build(gallery, unit=unit)
        _check_dimension(target.queries, gallery.shape[1])
        if len(gallery) >= _MEASURED_FROM:
            return searcher_for_target(gallery, unit=unit, target=target)
        searcher = ScannSearcher.build(gallery, unit=unit)
        found_all = MeasuredRecall.of_exact(target)
        return searcher.using(searcher.settings, recall=found_all)

    def _build_again(
        self, gallery: NDArray[np.float32], searcher: Any
    ) -> ScannSearcher:
        return self._build(gallery, self._metric, target=self._target)

    def _write(self, searcher: Any, data: Path) -> None:
        if searcher is not None:
            searcher.write(data)
        if self._target is not None and self._target.queries is not None:
            np.save(data / _QUERIES, self._target.queries, allow_pickle=False)

    def _describe(self, searcher: Any) -> dict[str, Any]:
        target = self._target
        described: dict[str, Any] = {
            "target": target and {"value": target.value, "seed": target.seed}
        }
        if searcher is None:
            return described
        return described | {
            "settings": asdict(searcher.settings),
            "recall": searcher.recall and asdict(searcher.recall),
            "scale": searcher.scale,
        }

    @classmethod
    def _read(
        cls, manifest: dict[str, Any], data: Path, embeddings: NDArray[np.float32]
    ) -> ScannSearcher:
        recall = manifest["recall"]
        return ScannSearcher.read(
            data,
            ScannSettings(**manifest["settings"]),
            unit=manifest["metric"] == "cosine",
            scale=manifest["scale"],
            recall=recall and MeasuredRecall(**recall),
        )

    @classmethod
    def _restore(
        cls,
        manifest: dict[str, Any],
        data: Path,
        model_fingerprint: str | None,
        embed: Embed | None,
    ) -> Self:
        index = super()._restore(manifest, data, model_fingerprint, embed)
        target = manifest["target"]
        if target is not None:
            queries = None
            if _QUERIES in manifest["files"]:
                queries = np.load(data / _QUERIES, allow_pickle=False)
            index._target = RecallTarget(target["value"], queries, target["seed"])
        return index


def _checked_target(
    value: float | None, queries: ArrayLike | None, seed: int, metric: Metric
) -> RecallTarget | None:
    if value is None:
        if queries is not None:
            raise ValueError("`queries` need a `target_recall` to be measured with.")
        return None
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise ValueError(
            "`target_recall` must be above 0 and below 1, or None. Received: "
            f"target_recall={value!r}. For all neighbours use `ExactIndex`."
        )
    seed = whole("seed", seed, least=0)
    if queries is None:
        return RecallTarget(float(value), None, seed)
    checked = as_embeddings("queries", queries, unit=metric == "cosine")
    if len(checked) < LEAST_QUERIES:
        raise ValueError(
            f"`queries` must have at least {LEAST_QUERIES} rows: fewer say little of "
            f"the recall. Received: {len(checked)}."
        )
    # A copy, and no more than are measured with.
    drawn = np.random.default_rng(seed).permutation(len(checked))[:_MOST_QUERIES]
    return RecallTarget(float(value), checked[drawn], seed)


def _check_dimension(queries: NDArray[np.float32] | None, dimension: int) -> None:
    if queries is not None and queries.shape[1] != dimension:
        raise ValueError(
            f"`queries` must have the dimension of the gallery, {dimension}. "
            f"Received: shape={queries.shape}."
        )
