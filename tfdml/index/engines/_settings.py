"""Choose the settings that suit the size of a gallery.

`_tuning.py` chooses among others by measuring.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

Engine = Literal["scann", "faiss", "exact"]
"""What a `LocalIndex` searches with: a library, or our own exact search."""

CodeKind = Literal["float32", "int8", "binary"]
"""What is held in memory for each number of an embedding that is searched by codes."""

REORDER_K = 10
"""The number of neighbors that `IndexSettings.reorder` is for."""

_REORDER = 100
# Leaves for each square root of the rows, and rows that train each. For FAISS it is the
# number with which it was fastest in `benchmarks.search`. By default ScaNN
# trains all leaves with 100,000 rows, and drops those that got less than 50. So, of
# 1,000,000 x 128 in 10,000 clusters, 500 of 2,000 leaves had to be searched for
# recall@10 0.993; with these numbers 8 of 4,000 are.
_LEAVES = {"scann": 4, "faiss": 2}
_ANISOTROPIC = {"scann": 0.2, "faiss": 0.0}  # FAISS has no such codes
_TRAINING_ROWS = 128
_LEAST_TRAINING_ROWS = 100_000
_TRAINING_ROUNDS = 8


@dataclass(frozen=True)
class EngineLimits:
    """Sizes at which a `LocalIndex` searches in another way.

    From ScaNN's own advice (docs/algorithms.md) and measurements: below the first,
    comparing with all rows is as fast as anything; up to the second, a tree saves
    little time, and lost half of the true neighbors of 60,000 weakly clustered
    embeddings.

    Attributes:
        hashing_from: Rows from which codes are compared, if no recall is asked for.
        tree_above: Rows above which a tree is searched, if no recall is asked for.
        measured_from: Rows from which settings are chosen by the recall they reach.
        block_candidates: Candidates held at once: 64 MiB of ids and scores.
        codes_from: Rows from which codes that were asked for are used.
    """

    hashing_from: int = 20_000
    tree_above: int = 100_000
    measured_from: int = 20_000
    block_candidates: int = 2**23
    codes_from: int = 1_000


LIMITS = EngineLimits()


@dataclass(frozen=True)
class IndexSettings:
    """How a `LocalIndex` searches, and why.

    Attributes:
        method: `"exact"` compares with all rows; `"hashing"` compares with short
            codes of all rows and scores the best again exactly; `"tree"` does so in
            the part of the gallery that is nearest to the query; `"codes"` compares
            with the codes of all rows that were asked for, and scores the best again.
        reason: Why this method, in words.
        dimensions_per_block: Numbers that share one 4-bit code; 0 without hashing.
        anisotropic_threshold: Cosine above which ScaNN's hashing keeps scores sharp.
        leaves: Parts of the gallery; 0 without a tree.
        leaves_to_search: Parts that a query looks into; more for a large `k`.
        spherical: Whether the centers of the parts have unit length.
        reorder: How many rows, by their codes, are scored again exactly for up to 10
            neighbors; for more, as many times more. 0 without hashing.
        engine: `"scann"` for Google's ScaNN, `"faiss"` for FAISS, `"exact"` for our own
            exact search.
        is_stand_in: Whether it compares with all rows because no engine that is faster
            could be imported when the index was built or loaded.
        codes: What the codes that were asked for hold of a number; "" without them.
        code_dimensions: How many of the first numbers they hold; 0 for all.
    """

    method: Literal["exact", "hashing", "tree", "codes"]
    reason: str
    dimensions_per_block: int = 0
    anisotropic_threshold: float = 0.0
    leaves: int = 0
    leaves_to_search: int = 0
    spherical: bool = False
    reorder: int = 0
    engine: Engine = "scann"
    is_stand_in: bool = False
    codes: CodeKind | Literal[""] = ""
    code_dimensions: int = 0

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> Self:
        """Return what a manifest holds; older ones knew no engine but ScaNN."""
        settings = cls(**saved)
        if settings.method == "exact":
            return replace(settings, engine="exact")
        return settings

    def candidates(self, k: int, rows: int) -> int:
        """Return how many of the rows are scored exactly for `k` neighbors."""
        if self.method == "exact":
            return k
        wanted = max(k, self.reorder, math.ceil(self.reorder * k / REORDER_K))
        return min(wanted, rows)

    def leaves_for(self, k: int, rows: int) -> int:
        """Return how many leaves are searched for `k` neighbors: enough for all."""
        share = math.ceil(self.leaves * self.candidates(k, rows) / rows)
        return max(self.leaves_to_search, share)


def choose_settings(
    rows: int, *, unit: bool, limits: EngineLimits = LIMITS, engine: Engine = "scann"
) -> IndexSettings:
    """Choose settings for a gallery of `rows` rows, of unit length or not."""
    first, last = limits.hashing_from, limits.tree_above
    if rows < first:
        return exact_settings(f"{rows} rows are fewer than {first}.")
    if rows <= last:
        return hashing_settings(f"{rows} rows are from {first} to {last}.", engine)
    reason = f"{rows} rows are more than {last}."
    return tree_settings(rows, reason, unit=unit, engine=engine)


def exact_settings(reason: str, *, is_stand_in: bool = False) -> IndexSettings:
    """Return the settings that compare with all rows."""
    return IndexSettings("exact", reason, engine="exact", is_stand_in=is_stand_in)


class Codes(NamedTuple):
    """Codes that were asked for."""

    kind: CodeKind
    dimensions: int | None

    def __str__(self) -> str:
        """Return them in words."""
        if self.dimensions is None:
            return f"{self.kind} codes"
        return f"{self.kind} codes of {self.dimensions} dimensions"


def code_settings(codes: Codes, reason: str) -> IndexSettings:
    """Return the settings of codes that were asked for, with the usual shortlist."""
    return IndexSettings(
        "codes",
        reason,
        reorder=_REORDER,
        engine="faiss",
        codes=codes.kind,
        code_dimensions=codes.dimensions or 0,
    )


def hashing_settings(reason: str, engine: Engine = "scann") -> IndexSettings:
    """Return settings without a tree."""
    return IndexSettings(
        "hashing",
        reason,
        dimensions_per_block=2,
        anisotropic_threshold=_ANISOTROPIC[engine],
        reorder=_REORDER,
        engine=engine,
    )


def tree_settings(
    rows: int, reason: str, *, unit: bool, engine: Engine = "scann"
) -> IndexSettings:
    """Return settings with a tree for so many rows, of unit length or not."""
    leaves = min(rows, round(_LEAVES[engine] * math.sqrt(rows)))
    return IndexSettings(
        "tree",
        reason,
        dimensions_per_block=2,
        anisotropic_threshold=_ANISOTROPIC[engine],
        leaves=leaves,
        leaves_to_search=math.ceil(leaves / 10),
        spherical=unit,
        reorder=_REORDER,
        engine=engine,
    )


def tree_training(leaves: int) -> dict[str, int]:
    """Return how ScaNN is to train a tree of so many leaves: arguments of `tree`."""
    return {
        "training_sample_size": max(_LEAST_TRAINING_ROWS, _TRAINING_ROWS * leaves),
        "training_iterations": _TRAINING_ROUNDS,
        "min_partition_size": 1,
    }
