"""ScaNN, given only what it handles: its settings, and its limits in one place.

On unchecked input the library (1.4.2) ends the process or answers with wrong ids.
`tfdml.index` checks values, shapes and `k`; this file takes care of what depends on
the settings: padded answers, sizes that would fill the memory, and lengths at which
hashing finds nothing. ScaNN's own saved ids are a pickle, so it is given none.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tfdml.rows import row_norms

__all__ = ["ScannSearcher", "ScannSettings", "choose_settings"]

# From ScaNN's own advice (docs/algorithms.md) and measurements: below the first,
# comparing with all is as fast as anything; up to the second, a tree saves little
# time and lost half of the true neighbours of 60,000 weakly clustered embeddings.
_HASHING_FROM = 20_000
_TREE_ABOVE = 100_000
# Neighbours by hash codes that are scored again exactly, for each one asked for.
_REORDER = 10
_REORDER_AT_LEAST = 100
# Candidates held at once: 64 MiB of ids and scores.
_BLOCK_CANDIDATES = 2**23


@dataclass(frozen=True)
class ScannSettings:
    """How a `ScannIndex` searches, and why.

    Attributes:
        method: `"exact"` compares with all rows; `"hashing"` compares with short
            codes of all rows and scores the best again exactly; `"tree"` does so in
            the part of the gallery that is nearest to the query.
        reason: Why this method, in words.
        dimensions_per_block: Numbers that share one 4-bit code; 0 without hashing.
        anisotropic_threshold: Cosine above which ScaNN's hashing keeps scores sharp.
        leaves: Parts of the gallery; 0 without a tree.
        leaves_to_search: Parts that a query looks into; more for a large `k`.
        spherical: Whether the centres of the parts have unit length.
    """

    method: Literal["exact", "hashing", "tree"]
    reason: str
    dimensions_per_block: int = 0
    anisotropic_threshold: float = 0.0
    leaves: int = 0
    leaves_to_search: int = 0
    spherical: bool = False


def choose_settings(rows: int, *, unit: bool) -> ScannSettings:
    """Choose settings for a gallery of `rows` rows, of unit length or not."""
    if rows < _HASHING_FROM:
        return ScannSettings("exact", f"{rows} rows are fewer than {_HASHING_FROM}.")
    if rows <= _TREE_ABOVE:
        return ScannSettings(
            "hashing",
            f"{rows} rows are from {_HASHING_FROM} to {_TREE_ABOVE}.",
            dimensions_per_block=2,
            anisotropic_threshold=0.2,
        )
    leaves = round(math.sqrt(rows))
    return ScannSettings(
        "tree",
        f"{rows} rows are more than {_TREE_ABOVE}.",
        dimensions_per_block=2,
        anisotropic_threshold=0.2,
        leaves=leaves,
        leaves_to_search=math.ceil(leaves / 10),
        spherical=unit,
    )


class ScannSearcher:
    """Nearest rows by cosine or inner product; takes checked float32 arrays only."""

    def __init__(
        self, searcher: Any, settings: ScannSettings, *, unit: bool, scale: float
    ) -> None:
        self.settings = settings
        self.scale = scale
        self._unit = unit
        self._searcher = searcher
        self._rows = int(searcher.size())

    @classmethod
    def build(cls, gallery: NDArray[np.float32], *, unit: bool) -> Self:
        """Build with the settings that suit the gallery's size.

        Args:
            gallery: Embeddings `[N, D]`, finite, `N` at least 1; not modified.
            unit: Whether to search by cosine. If not, by inner product.
        """
        scann = _import_scann()
        settings = choose_settings(len(gallery), unit=unit)
        norms = row_norms(gallery)
        scale = 1.0 if unit else _typical_length(norms)
        rows = _divide(gallery, norms if unit else np.full(len(gallery), scale))
        builder = scann.builder(rows, _REORDER_AT_LEAST // _REORDER, "dot_product")
        if settings.method == "tree":
            builder = builder.tree(
                settings.leaves, settings.leaves_to_search, spherical=settings.spherical
            )
        if settings.method == "exact":
            builder = builder.score_brute_force()
        else:
            builder = builder.score_ah(
                settings.dimensions_per_block,
                anisotropic_quantization_threshold=settings.anisotropic_threshold,
            ).reorder(_REORDER_AT_LEAST)
        return cls(builder.build(), settings, unit=unit, scale=scale)

    @classmethod
    def read(
        cls, data: Path, settings: ScannSettings, *, unit: bool, scale: float
    ) -> Self:
        """Read what `write` has written; the rest is that of the searcher then."""
        # ScaNN's load_searcher() also runs a pickle, `scann_docids.pkl`, where it
        # finds one. This is the rest of it.
        scann = _import_scann()
        assets = (data / "scann_assets.pbtxt").read_text(encoding="utf-8")
        searcher = scann.ScannSearcher(scann.scann_pybind.ScannNumpy(str(data), assets))
        return cls(searcher, settings, unit=unit, scale=scale)

    def write(self, data: Path) -> None:
        """Write ScaNN's files into a folder."""
        try:
            # Absolute paths, the default, would read the original's files in a copy.
            self._searcher.serialize(str(data), relative_path=True)
        except RuntimeError as error:
            raise OSError(f"ScaNN cannot write to {data}: {error}") from error

    def nearest(
        self, queries: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return rows and scores `[Q, k]`, best first, for `k` from 1 to the rows."""
        norms = row_norms(queries)
        lengths = norms if self._unit else _power_of_two(norms)
        queries = _divide(queries, lengths)
        candidates = k
        if self.settings.method != "exact":
            candidates = min(max(_REORDER * k, _REORDER_AT_LEAST), self._rows)
        rows = np.empty((len(queries), k), np.int64)
        scores = np.empty((len(queries), k), np.float32)
        step = max(1, _BLOCK_CANDIDATES // candidates)
        for start in range(0, len(queries), step):
            block = slice(start, start + step)
            rows[block], scores[block] = self._block(queries[block], k, candidates)
        if not self._unit:
            with np.errstate(over="ignore"):  # reported below
                scores = (scores * (lengths * self.scale)[:, None]).astype(np.float32)
            if not np.isfinite(scores).all():
                raise ValueError(
                    "A `dot_product` score is too large for float32: scale the "
                    "embeddings down."
                )
        return rows, scores

    def _block(
        self, queries: NDArray[np.float32], k: int, candidates: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        leaves = self.settings.leaves
        wanted = max(
            self.settings.leaves_to_search, math.ceil(leaves * candidates / self._rows)
        )
        rows, scores = self._call(queries, k, candidates, wanted)
        short = np.isnan(scores).any(axis=1)
        if short.any():  # the parts searched hold fewer than k: id 0 and NaN follow
            rows[short], scores[short] = self._call(
                queries[short], k, candidates, leaves
            )
        if np.isnan(scores).any():
            raise RuntimeError(f"ScaNN found fewer than k={k} of {self._rows} rows.")
        return rows, scores

    def _call(
        self, queries: NDArray[np.float32], k: int, candidates: int, leaves: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        settings: dict[str, int] = {}
        if self.settings.method != "exact":
            settings["pre_reorder_num_neighbors"] = candidates
        if self.settings.method == "tree":
            settings["leaves_to_search"] = leaves
        rows, scores = self._searcher.search_batched(
            queries, final_num_neighbors=k, **settings
        )
        return rows, scores


def _divide(
    array: NDArray[np.float32], lengths: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Divide rows in float64, a buffer at a time."""
    out = np.empty_like(array)
    return np.divide(array, lengths[:, None], out=out, casting="same_kind")


def _typical_length(norms: NDArray[np.float64]) -> float:
    """Return what to divide a gallery by, so that ScaNN finds its vectors.

    Its training takes vectors of length 1e-5 for equal: recall@10 fell from 0.95 to
    0.03. Only a row 1e15 times as long as that would now come near float32's limit.
    """
    if not norms.any():
        return 1.0
    typical = np.maximum(np.median(norms[norms > 0]), norms.max() * 1e-15)
    return float(_power_of_two(typical))


def _power_of_two(lengths: Any) -> NDArray[np.float64]:
    """Return the power of two next above each length: dividing by it is exact."""
    return np.ldexp(1.0, np.frexp(lengths)[1])


def _import_scann() -> Any:
    try:
        # Slow, and needed by one class only.
        from scann import scann_ops_pybind
    except Exception as error:
        # Not only ImportError: beside a TensorFlow that its operators were not built
        # for, ScaNN raises that TensorFlow's NotFoundError.
        raise ImportError(
            "`ScannIndex` needs ScaNN, which cannot be imported here "
            f"({type(error).__name__}: {str(error)[:200]}). "
            "Install it with: pip install 'tfdml[search]'. ScaNN works with one "
            "version of TensorFlow only, which that command installs too. "
            "`ExactIndex` needs neither."
        ) from error
    return scann_ops_pybind
