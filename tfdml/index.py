"""Search indexes: a gallery of embeddings that is built, searched, saved and loaded.

`ExactIndex` compares a query with every row. `ScannIndex` answers from Google's
ScaNN, with settings that follow from the size of the gallery. Both have one
interface, and both check all that they are given: the ScaNN library itself ends the
process, or answers with wrong ids, on some inputs that are easily met.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml.index_files import IndexFileError, read_version, write_version
from tfdml.neighbors import ExactSearcher, check_k
from tfdml.rows import as_embeddings
from tfdml.scann_search import ScannSearcher, ScannSettings

__all__ = [
    "ExactIndex",
    "IndexFileError",
    "ScannIndex",
    "ScannSettings",
    "SearchResult",
    "load_index",
]

Metric = Literal["cosine", "dot_product"]


class SearchResult(NamedTuple):
    """What `search` returns: the nearest gallery rows of each query, best first.

    Attributes:
        ids: The ids of the rows, `[Q, k]`, strings or int64.
        scores: Cosines or dot products, float32 `[Q, k]`; higher is nearer.
    """

    ids: NDArray[Any]
    scores: NDArray[np.float32]


class _Index(ABC):
    """Ids, checks and files: all that does not depend on how neighbours are found."""

    def __init__(
        self,
        searcher: Any,
        ids: NDArray[Any],
        dimension: int,
        metric: Metric,
        model_fingerprint: str,
    ) -> None:
        self._searcher = searcher
        self._ids = ids
        self._ids.flags.writeable = False
        self._dimension = dimension
        self._metric = metric
        self._model_fingerprint = model_fingerprint

    @classmethod
    def build(
        cls,
        embeddings: ArrayLike,
        ids: Sequence[str] | Sequence[int] | NDArray[Any] | None = None,
        *,
        metric: Metric = "cosine",
        model_fingerprint: str = "",
    ) -> Self:
        """Build an index of a gallery.

        Args:
            embeddings: The gallery, `[N, D]` with `N` and `D` at least 1, real and
                finite, of any float or integer dtype; read as float32 and copied.
            ids: One for each row, all strings or all integers, none twice.
                Default: 0 to N - 1.
            metric: `"cosine"` (default; lengths do not matter, rows of zeros are
                refused) or `"dot_product"`.
            model_fingerprint: Names the model that made the embeddings. It is saved
                with the index, so that `load` can refuse another model's.

        Returns:
            The index.

        Raises:
            ValueError: A shape, dtype, value or id is not as stated above.
            ImportError: `ScannIndex` where ScaNN cannot be imported.
        """
        if metric not in get_args(Metric):
            raise ValueError(
                f"`metric` must be one of {get_args(Metric)}. "
                f"Received: metric={metric!r}."
            )
        gallery = as_embeddings("embeddings", embeddings, unit=metric == "cosine")
        if not len(gallery):
            raise ValueError(
                "`embeddings` must have at least one row. "
                f"Received: shape={gallery.shape}."
            )
        checked = _check_ids(ids, len(gallery))
        if not isinstance(model_fingerprint, str):
            raise ValueError(
                "`model_fingerprint` must be a string. "
                f"Received: {model_fingerprint!r}."
            )
        searcher = cls._build(gallery, metric)
        return cls(searcher, checked, gallery.shape[1], metric, model_fingerprint)

    def search(self, queries: ArrayLike, k: int = 10) -> SearchResult:
        """Find the `k` nearest gallery rows of every query.

        Any number of threads may search at once.

        Args:
            queries: Embeddings `[Q, D]`, as in `build`; `Q` may be 0. Pass a single
                one as `embedding[None, :]`.
            k: How many rows to return, from 1 to the size of the gallery.

        Returns:
            A `SearchResult`, with exactly `k` different rows for each query.

        Raises:
            ValueError: A shape, dtype or value is not as stated above, or a dot
                product is too large for float32.
            TypeError: `k` is not an integer.
        """
        checked = as_embeddings("queries", queries, unit=self._metric == "cosine")
        if checked.shape[1] != self._dimension:
            raise ValueError(
                f"`queries` must have the dimension of the index, {self._dimension}. "
                f"Received: shape={checked.shape}."
            )
        check_k(k, len(self))
        rows, scores = self._searcher.nearest(checked, int(k))
        return SearchResult(self._ids[rows], scores)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the index to a folder, which may be moved and copied.

        An index that the folder holds already is replaced as a whole: a save that
        fails or is killed leaves it as it was.

        Args:
            folder: Made if it is missing. If not, it must be empty or hold an index.

        Raises:
            IndexFileError: The folder holds something else.
            OSError: The files cannot be written.
        """
        description = {
            "class": type(self).__name__,
            "count": len(self),
            "dimension": self._dimension,
            "metric": self._metric,
            "model_fingerprint": self._model_fingerprint,
            **self._describe(),
        }

        def write(data: Path) -> None:
            np.save(data / "ids.npy", self._ids, allow_pickle=False)
            self._write(data)

        write_version(folder, description, write)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, model_fingerprint: str | None = None
    ) -> Self:
        """Load an index of this class; every file is checked against its SHA-256.

        Args:
            folder: What `save` has written, also after a move or as a copy.
            model_fingerprint: That of the model which will embed the queries. If it
                is given, an index of another model's embeddings is refused.

        Returns:
            The index.

        Raises:
            IndexFileError: No index, a damaged one, or not the one asked for.
            ImportError: `ScannIndex` where ScaNN cannot be imported.
        """
        restore = partial(cls._restore, model_fingerprint=model_fingerprint)
        return read_version(folder, restore)

    @classmethod
    def _restore(
        cls, manifest: dict[str, Any], data: Path, model_fingerprint: str | None
    ) -> Self:
        if manifest["class"] != cls.__name__:
            raise IndexFileError(
                f"`folder` must hold a {cls.__name__}. Received: {data.parent}, which "
                f"holds a {manifest['class']}. Use `load_index`."
            )
        built_from = manifest["model_fingerprint"]
        if model_fingerprint not in (None, built_from):
            raise IndexFileError(
                "`model_fingerprint` must be that of the model which the index was "
                f"built from, {built_from!r}. Received: {model_fingerprint!r}. "
                "Build the index again with the new model."
            )
        return cls(
            cls._read(manifest, data),
            np.load(data / "ids.npy", allow_pickle=False),
            manifest["dimension"],
            manifest["metric"],
            built_from,
        )

    @property
    def dimension(self) -> int:
        """The number of columns of the gallery and of queries."""
        return self._dimension

    @property
    def metric(self) -> Metric:
        """`"cosine"` or `"dot_product"`."""
        return self._metric

    @property
    def model_fingerprint(self) -> str:
        """What `build` was told of the model, or an empty string."""
        return self._model_fingerprint

    @property
    def ids(self) -> NDArray[Any]:
        """The ids in the order of the gallery, `[N]`, read-only."""
        return self._ids

    def __len__(self) -> int:
        return len(self._ids)

    @staticmethod
    @abstractmethod
    def _build(gallery: NDArray[np.float32], metric: Metric) -> Any:
        """Return an object with `nearest(queries, k)`; leave the array alone."""

    @abstractmethod
    def _write(self, data: Path) -> None:
        """Write the searcher's files into a folder."""

    def _describe(self) -> dict[str, Any]:
        """Return what `_read` needs beside the files and what all indexes have."""
        return {}

    @staticmethod
    @abstractmethod
    def _read(manifest: dict[str, Any], data: Path) -> Any:
        """Restore the searcher."""


class ExactIndex(_Index):
    """An index that compares every query with every row of the gallery.

    It answers like `tfdml.neighbors.nearest_neighbors`, to the last bit: rows of
    equal score come in the order of the gallery. It needs NumPy alone.

    Example:
        >>> import numpy as np
        >>> from tfdml.index import ExactIndex
        >>> gallery = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
        >>> index = ExactIndex.build(gallery, ids=["right", "up", "between"])
        >>> ids, scores = index.search(np.array([[2.0, 0.0]]), k=2)
        >>> ids.tolist(), scores.round(3).tolist()
        ([['right', 'between']], [[1.0, 0.6000000238418579]])
    """

    @staticmethod
    def _build(gallery: NDArray[np.float32], metric: Metric) -> ExactSearcher:
        return ExactSearcher(gallery.copy(), metric)

    def _write(self, data: Path) -> None:
        np.save(data / "embeddings.npy", self._searcher.gallery, allow_pickle=False)

    @staticmethod
    def _read(manifest: dict[str, Any], data: Path) -> ExactSearcher:
        gallery = np.load(data / "embeddings.npy", allow_pickle=False)
        return ExactSearcher(gallery, manifest["metric"])


class ScannIndex(_Index):
    """An index that searches with ScaNN, for galleries of up to millions of rows.

    It chooses its settings from the size of the gallery: below 20,000 rows it
    compares with all of them; up to 100,000, with short codes of all of them; above
    that, with the codes of the nearest tenth. At least `10 k` and at least 100 of
    the rows that the codes choose are scored again: scores are exact, the choice is
    approximate. Rows of equal score come in any order. To measure what the choice
    misses, compare with `ExactIndex`.

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

    @property
    def settings(self) -> ScannSettings:
        """How this index searches, and why."""
        settings: ScannSettings = self._searcher.settings
        return settings

    @staticmethod
    def _build(gallery: NDArray[np.float32], metric: Metric) -> ScannSearcher:
        return ScannSearcher.build(gallery, unit=metric == "cosine")

    def _write(self, data: Path) -> None:
        self._searcher.write(data)

    def _describe(self) -> dict[str, Any]:
        return {"settings": asdict(self.settings), "scale": self._searcher.scale}

    @staticmethod
    def _read(manifest: dict[str, Any], data: Path) -> ScannSearcher:
        return ScannSearcher.read(
            data,
            ScannSettings(**manifest["settings"]),
            unit=manifest["metric"] == "cosine",
            scale=manifest["scale"],
        )


def load_index(
    folder: str | os.PathLike[str], *, model_fingerprint: str | None = None
) -> ExactIndex | ScannIndex:
    """Load the index in a folder, of whichever class it is.

    Arguments and errors are those of `ExactIndex.load` and `ScannIndex.load`.

    Returns:
        An `ExactIndex` or a `ScannIndex`.
    """
    classes: dict[str, type[ExactIndex] | type[ScannIndex]] = {
        "ExactIndex": ExactIndex,
        "ScannIndex": ScannIndex,
    }

    def read(manifest: dict[str, Any], data: Path) -> ExactIndex | ScannIndex:
        if manifest["class"] not in classes:
            raise IndexFileError(
                f"`folder` must hold one of {list(classes)}. Received: {folder}, "
                f"which holds a {manifest['class']}. Use the tfdml that wrote it."
            )
        return classes[manifest["class"]]._restore(manifest, data, model_fingerprint)

    return read_version(folder, read)


def _check_ids(
    ids: Sequence[str] | Sequence[int] | NDArray[Any] | None, rows: int
) -> NDArray[Any]:
    """Return ids as an array of our own, int64 or strings of fixed width."""
    if ids is None:
        return np.arange(rows, dtype=np.int64)
    values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    if len(values) != rows:
        raise ValueError(
            f"`ids` must hold one id for each of the {rows} rows. "
            f"Received: {len(values)} ids."
        )
    if all(isinstance(value, str) for value in values):
        # NumPy drops trailing NULs: "a" and "a\0" would become the same.
        if any("\0" in value for value in values):
            raise ValueError("`ids` must not contain the character NUL.")
        array = np.array(values, dtype=np.str_)
    elif all(
        isinstance(value, int | np.integer) and not isinstance(value, bool)
        for value in values
    ):
        try:
            array = np.array(values, dtype=np.int64)
        except OverflowError:
            raise ValueError("`ids` must fit int64; pass larger as strings.") from None
    else:
        kinds = sorted({type(value).__name__ for value in values})
        raise ValueError(
            f"`ids` must be all strings or all integers. Received: {', '.join(kinds)}."
        )
    if len(set(values)) != rows:
        unique, counts = np.unique(array, return_counts=True)
        raise ValueError(
            f"`ids` must not repeat. Received: {unique[counts > 1][0].item()!r} "
            f"{counts[counts > 1][0]} times."
        )
    return array
