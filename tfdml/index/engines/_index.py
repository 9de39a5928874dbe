"""Search with the engine that suits the gallery and the machine."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import one_of, whole
from tfdml.index._interface import Embed, Metric
from tfdml.index._recall import MeasuredRecall, RecallTarget
from tfdml.index.engines._choice import CODED, NAMES, engine_here
from tfdml.index.engines._combining import write_scann
from tfdml.index.engines._exact import ExactRows
from tfdml.index.engines._prepared import PreparedRows
from tfdml.index.engines._recall_now import recalls_now
from tfdml.index.engines._rescored import RescoredSearcher
from tfdml.index.engines._samples import Searcher
from tfdml.index.engines._settings import (
    CodeKind,
    Codes,
    Engine,
    EngineLimits,
    IndexSettings,
    choose_settings,
    exact_settings,
)
from tfdml.index.engines._shortlist import (
    check_code_dimensions,
    checked_codes,
    searcher_of_codes,
)
from tfdml.index.engines._target import (
    check_target_dimension,
    checked_target,
    cut_target,
)
from tfdml.index.engines._tuning import searcher_for_target
from tfdml.index.local import MemoryIndex
from tfdml.index.rows import Ids
from tfdml.messages import cut, shown
from tfdml.versioned_folder import IndexFileError

_QUERIES = "target_queries.npy"
_LOGGER = logging.getLogger(__name__)


class LocalIndex(MemoryIndex):
    """An index that chooses its engine, for galleries of up to millions of rows.

    Below 20,000 rows, it compares a query with all of them. From 20,000 rows on, it
    searches with ScaNN, or with FAISS where ScaNN has no wheel (macOS, Windows, Python
    3.14), and is built for a target recall: of the settings that reach it, measured
    with items of the gallery, the fastest is used. The choice of neighbors is then
    approximate; `recall` says how many of the true ones are found, and `settings` how
    and why. If no setting reaches the target, as in high dimensions without clusters,
    or if neither engine is installed, it compares a query with all rows. Scores are
    always exact. Rows with equal scores come in any order.

    Added rows are compared one by one until the index is rebuilt for the same
    recall, by `compact` or automatically after many changes.

    The recall measured is recall@10. For `k` above 10, proportionally more rows are
    scored exactly; recall@k is not measured.

    An index that is loaded where its engine is missing compares a query with all rows,
    and says so in `settings`. `compact` rebuilds it with the engine that is installed,
    and so does `save`.

    The gallery must fit in memory. ScaNN trains its codes on random samples, so two
    builds of the same gallery may differ in a few neighbors. Engines read their files
    in C++, so only load folders from sources that you trust.

    Example:
        >>> import numpy as np
        >>> from tfdml.index import LocalIndex
        >>> gallery = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
        >>> index = LocalIndex.build(gallery, ids=["right", "up", "between"])
        >>> ids, scores = index.search(np.array([[2.0, 0.0]]), k=2)
        >>> ids.tolist(), index.settings.method
        ([['right', 'between']], 'exact')
    """

    engine_limits: ClassVar[EngineLimits] = EngineLimits()
    _takes_norms = True
    _class_names = ("LocalIndex", "ScannIndex")
    _target: RecallTarget | None = None
    _wanted: Engine | None = None
    _codes: Codes | None = None

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
        dimensions: int | None = None,
        target_recall: float | None = 0.99,
        queries: ArrayLike | None = None,
        seed: int = 0,
        engine: Engine | None = None,
        codes: CodeKind | None = None,
        code_dimensions: int | None = None,
    ) -> Self:
        """Build an index of a gallery.

        Args:
            embeddings: As in `ExactIndex.build`, as of all that follow.
            ids: One for each row.
            attributes: See `Index.add`.
            metric: `"cosine"` or `"dot_product"`; or `"squared_euclidean"`, with which
                a query is compared with all rows, whatever their number.
            model_fingerprint: Names the model that made the embeddings.
            embed: See `Index`.
            dimensions: Keep so many numbers of each embedding.
            target_recall: The share of the 10 nearest rows that a search must find,
                above 0 and below 1. None chooses by the size of the gallery alone and
                measures nothing.
            queries: What to measure with, `[Q, D]`, at least 200; of more than 2,000,
                as many are drawn. They are saved with the index. Default: rows of the
                gallery, none of which counts as a neighbor of itself.
            seed: Seed of the drawing.
            engine: `"scann"`, `"faiss"` or `"exact"` for the one to use from 20,000
                rows on. Default: the first of them that can be imported. With
                `"squared_euclidean"` only `"exact"`.
            codes: Search from 1,000 rows on with short codes in memory, and score a
                shortlist with the embeddings, which a loaded index leaves in their
                file. `"int8"` takes 1 byte per number, `"binary"` 1 bit (with cosine
                only), and `"float32"` 4 bytes, of the first `code_dimensions` alone.
                The shortlist is the shortest that reaches the recall. Needs FAISS, so
                that `engine` must be left out or `"faiss"`.
            code_dimensions: How many of the first numbers of an embedding the codes
                hold. Default: all.

        Returns:
            The index.

        Raises:
            ValueError: A shape, dtype, value, id or attribute is not as it should be.
            ImportError: `engine`, or FAISS for codes, cannot be imported.
        """
        wanted_codes = checked_codes(codes, code_dimensions, metric, engine)
        target = checked_target(target_recall, queries, seed, metric)
        target = cut_target(target, embeddings, dimensions, metric)
        if engine is not None:
            one_of("engine", engine, get_args(Engine))
            if engine != "exact" and metric == "squared_euclidean":
                raise ValueError(
                    "`engine` must be 'exact' or left out with metric="
                    f"'squared_euclidean'. Received: engine={shown(engine)}."
                )
            if engine != "exact":
                CODED[engine][1]()
        index = cls._from_rows(
            embeddings,
            ids,
            attributes,
            metric,
            model_fingerprint,
            embed,
            dimensions,
            target=target,
            wanted=engine,
            codes=wanted_codes,
        )
        check_code_dimensions(wanted_codes, index.dimension)
        if target is not None:
            check_target_dimension(
                target.queries, index.dimension
            )  # of an empty gallery too
        index._target, index._wanted, index._codes = target, engine, wanted_codes
        return index

    @property
    def settings(self) -> IndexSettings | None:
        """How this index searches, and why; None as long as all its rows were added."""
        searcher = self._table.snapshot.searcher
        return None if searcher is None else searcher.settings

    def measure_recall(self, queries: ArrayLike, k: int = 10) -> NDArray[np.float64]:
        """Compare what searches find now with the true nearest items.

        Unlike `recall` this takes items into account that came after the build.

        Args:
            queries: `[Q, D]`, such as those that users have sent.
            k: How many neighbors, at least 1.

        Returns:
            The recall@k of each query, float64 `[Q]`, from 0 to 1.

        Raises:
            ValueError: `queries` or `k` is invalid, or the index is empty.
        """
        checked, _ = self._width.of_queries(queries)
        return recalls_now(self._table.snapshot, checked, whole("k", k), self.limits)

    @property
    def recall(self) -> MeasuredRecall | None:
        """The recall measured at the last build.

        None without a target, and as long as all rows were added.
        """
        searcher = self._table.snapshot.searcher
        return None if searcher is None else searcher.recall

    def __str__(self) -> str:
        """Return a line on what it holds and how it searches."""
        said = f"LocalIndex of {self.count()} items, dimension {self.dimension}"
        settings = self.settings
        if settings is not None:
            engine = "" if settings.engine == "exact" else f"{NAMES[settings.engine]}, "
            said += f", {engine}{settings.method}"
        return f"{said}, {self.recall or 'recall not measured'}"

    @classmethod
    def _build(
        cls, gallery: NDArray[np.float32], metric: Metric, **options: Any
    ) -> Searcher:
        target: RecallTarget | None = options["target"]
        unit, rows, limits = metric == "cosine", len(gallery), cls.engine_limits
        if target is not None:
            check_target_dimension(target.queries, gallery.shape[1])
        if (codes := options["codes"]) is not None:
            check_code_dimensions(codes, gallery.shape[1])
            return searcher_of_codes(
                gallery, metric=metric, codes=codes, target=target, limits=limits
            )
        recall = None if target is None else MeasuredRecall.of_exact(target)
        least = limits.hashing_from if target is None else limits.measured_from
        if rows < least or metric == "squared_euclidean":
            reason = f"{rows} rows are fewer than {least}."
            if rows >= least:
                reason = "Squared Euclidean distances are compared with all rows."
            settings = exact_settings(reason)
            return ExactRows(gallery, settings, metric=metric, recall=recall)
        engine, reason = engine_here(options["wanted"])
        if engine is None:
            is_stand_in = options["wanted"] != "exact"
            settings = exact_settings(reason, is_stand_in=is_stand_in)
            if is_stand_in:
                _LOGGER.warning(
                    "%d items are compared with every query, because neither ScaNN nor "
                    'FAISS is here: pip install "tfdml[search]".',
                    rows,
                )
            return ExactRows(gallery, settings, metric=metric, recall=recall)
        if target is not None:
            return searcher_for_target(gallery, unit=unit, target=target, engine=engine)
        settings = choose_settings(rows, unit=unit, limits=limits, engine=engine.engine)
        return engine.of_rows(PreparedRows(gallery, unit=unit), settings)

    def _build_again(self, gallery: NDArray[np.float32], searcher: Any) -> Searcher:
        wanted = {"wanted": self._wanted, "codes": self._codes}
        return self._build(gallery, self._metric, target=self._target, **wanted)

    def compact(self) -> None:
        """See `MemoryIndex.compact`. An index whose engine was missing is rebuilt."""
        self._guarded.compact(self._build_again, whole=self._has_stand_in())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """See `MemoryIndex.save`. An index whose engine was missing is rebuilt first.

        Raises:
            LockedError, IndexFileError, TypeError, ValueError: As `MemoryIndex.save`.
        """
        if self._has_stand_in():
            self.compact()
        super().save(folder)

    def write_scann(self, folder: str | os.PathLike[str]) -> None:
        """Write the files from which ScaNN's TensorFlow operators search.

        Added rows become part of the index first, as by `compact`.

        Args:
            folder: An empty folder.

        Raises:
            ValueError: The index is empty, or searches with another library.
            ImportError: ScaNN cannot be imported.
        """
        self.compact()
        state = self._table.snapshot
        if not state.base:
            raise ValueError("The index must hold at least one item.")
        if self._metric == "squared_euclidean":
            raise ValueError(
                "The index must compare by cosine or dot product to be searched by "
                "ScaNN's operators. Received: metric='squared_euclidean'."
            )
        unit = self._metric == "cosine"
        write_scann(state.searcher, state.base_embeddings, Path(folder), unit=unit)

    def _has_stand_in(self) -> bool:
        """Return whether another searcher can now be built."""
        settings = self.settings
        if settings is None or not settings.is_stand_in:
            return False
        engine, _ = engine_here("faiss" if self._codes else self._wanted)
        return engine is not None and (not self._codes or engine.engine == "faiss")

    def _write(self, searcher: Any, data: Path) -> None:
        if searcher is not None:
            searcher.write(data)
        if self._target is not None and self._target.queries is not None:
            np.save(data / _QUERIES, self._target.queries, allow_pickle=False)

    def _describe(self, searcher: Any) -> dict[str, Any]:
        target = self._target
        described: dict[str, Any] = {
            "target": target and {"value": target.value, "seed": target.seed},
            "engine": "exact" if searcher is None else searcher.settings.engine,
            "wanted_engine": self._wanted,
            "codes": self._codes and self._codes._asdict(),
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
    ) -> Searcher:
        settings = IndexSettings.restored(manifest["settings"])
        measured = manifest["recall"]
        recall = measured and MeasuredRecall(**measured)
        metric = manifest["metric"]
        unit = metric == "cosine"
        if settings.engine == "exact":
            return ExactRows(embeddings, settings, metric=metric, recall=recall)
        if settings.engine not in CODED:
            raise IndexFileError(
                f"The engine of the index in {cut(data.parent)} must be one of "
                f"{', '.join(get_args(Engine))}. Received: {shown(settings.engine)}. "
                "Use the tfdml that wrote it."
            )
        try:
            if settings.method == "codes":
                return RescoredSearcher.read(
                    data, settings, embeddings, metric=metric, recall=recall
                )
            return CODED[settings.engine][0].read(
                data,
                settings,
                embeddings,
                unit=unit,
                scale=manifest["scale"],
                recall=recall,
            )
        except ImportError as error:
            reason = str(error)
        name = NAMES[settings.engine]
        _LOGGER.warning(
            "The index in %s was built with %s, which is not here: a query is compared "
            "with all %d items until `compact` or `save` rebuilds it with another "
            'engine. To install one: pip install "tfdml[search]".',
            data.parent,
            name,
            len(embeddings),
        )
        said = f"It was built with {name}. {reason}"
        if recall is not None:
            recall = replace(recall, value=1.0, queries=0, low=1.0, high=1.0)
        stand_in = exact_settings(said, is_stand_in=True)
        return ExactRows(embeddings, stand_in, metric=metric, recall=recall)

    @classmethod
    def _restore(
        cls,
        manifest: dict[str, Any],
        data: Path,
        model_fingerprint: str | None,
        embed: Embed | None,
    ) -> Self:
        index = super()._restore(manifest, data, model_fingerprint, embed)
        index._wanted = manifest.get("wanted_engine")
        index._codes = manifest.get("codes") and Codes(**manifest["codes"])
        target = manifest["target"]
        if target is not None:
            queries = None
            if _QUERIES in manifest["files"]:
                queries = np.load(data / _QUERIES, allow_pickle=False)
            index._target = RecallTarget(target["value"], queries, target["seed"])
        return index
