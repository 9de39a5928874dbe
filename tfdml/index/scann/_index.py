"""Search with ScaNN."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import whole
from tfdml._core.embeddings import as_embeddings
from tfdml.index._interface import Embed, Metric
from tfdml.index._recall import LEAST_QUERIES, MeasuredRecall, RecallTarget
from tfdml.index.local import LocalIndex
from tfdml.index.rows import Ids
from tfdml.index.scann._searcher import ScannSearcher
from tfdml.index.scann._settings import ScannLimits, ScannSettings
from tfdml.index.scann._tuning import searcher_for_target
from tfdml.messages import shown

_MOST_QUERIES = 2_000
_QUERIES = "target_queries.npy"


class ScannIndex(LocalIndex):
    """An index that searches with ScaNN, for galleries of up to millions of rows.

    Below 20,000 rows it compares with all of them. From there on, it is built for a
    recall: of the settings that reach it, measured with items of the gallery, the
    fastest is used. The choice of neighbors is then approximate; `recall` says how
    many of the true ones are found, `settings` how and why. If no setting reaches the
    target, as in high dimensions without clusters, it compares with all rows. Scores
    are exact in any case. Rows of equal score come in any order.

    Added rows are compared with one by one until the index is rebuilt for the same
    recall: by `compact`, or automatically after many changes.

    The recall measured is recall@10. For `k` above 10, proportionally more rows are
    scored exactly; recall@k is not measured.

    The gallery must fit in memory. ScaNN trains its codes on random samples, so two
    builds of one gallery may differ in a few neighbors. It reads its files in C++:
    only load folders whose writer you trust.

    Example:
        >>> import numpy as np
        >>> from tfdml.index import ScannIndex
        >>> gallery = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
        >>> index = ScannIndex.build(gallery, ids=["right", "up", "between"])
        >>> ids, scores = index.search(np.array([[2.0, 0.0]]), k=2)
        >>> ids.tolist(), index.settings.method
        ([['right', 'between']], 'exact')
    """

    scann_limits: ClassVar[ScannLimits] = ScannLimits()
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
                above 0 and below 1. None chooses by the size of the gallery alone and
                measures nothing.
            queries: What to measure with, `[Q, D]`, at least 200; of more than 2,000,
                as many are drawn. They are saved with the index. Default: rows of the
                gallery, none of which counts as a neighbor of itself.
            seed: Seed of the drawing.

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
        """How this index searches, and why; None as long as all its rows were added."""
        searcher = self._table.snapshot.searcher
        return None if searcher is None else searcher.settings

    @property
    def recall(self) -> MeasuredRecall | None:
        """The recall measured at the last build.

        None without a target, and as long as all rows were added.
        """
        searcher = self._table.snapshot.searcher
        return None if searcher is None else searcher.recall

    def __str__(self) -> str:
        """Return a line on what it holds and how it searches."""
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
            return ScannSearcher.build(gallery, unit=unit, limits=cls.scann_limits)
        _check_dimension(target.queries, gallery.shape[1])
        if len(gallery) >= cls.scann_limits.measured_from:
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
            raise ValueError(
                "`queries` must come with a `target_recall` to be measured for."
            )
        return None
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise ValueError(
            "`target_recall` must be above 0 and below 1, or None. Received: "
            f"target_recall={shown(value)}. To find all neighbors, use `ExactIndex`."
        )
    seed = whole("seed", seed, least=0)
    if queries is None:
        return RecallTarget(float(value), None, seed)
    checked = as_embeddings("queries", queries, unit=metric == "cosine")
    if len(checked) < LEAST_QUERIES:
        raise ValueError(
            f"`queries` must have at least {LEAST_QUERIES} rows: fewer say little "
            f"about the recall. Received: {len(checked)}."
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
