"""The studies: which runs answer what a paper claims."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.papers.cases import CASES
from benchmarks.papers.runs import Run
from benchmarks.papers.sets import tables_of
from benchmarks.papers.tuning import Rates

__all__ = ["STUDIES", "Study", "floor_runs"]


@dataclass(frozen=True)
class Study:
    """A study.

    Args:
        title: What it asks.
        cases: The losses whose learning rates it needs.
        variants: Yields (name, case, changes) for a set: what is trained, and the
            keys of the tables that are not as usual.
        with_curve: Whether each run is measured after each epoch.
    """

    title: str
    cases: tuple[str, ...]
    variants: Callable[[str], Iterator[tuple[str, str, dict[str, Any]]]]
    with_curve: bool = False

    def runs(
        self, name: str, sets: Sequence[str], rates: Rates, steps: int, seeds: Any
    ) -> list[Run]:
        """Return its runs, seed by seed."""
        return [
            Run(
                name,
                variant,
                _seeded(CASES[case].tables(set_, **changes), rate, steps, seed),
                with_curve=self.with_curve,
            )
            for seed in seeds
            for set_ in sets
            for variant, case, changes in self.variants(set_)
            if CASES[case].suits(set_) and (rate := rates.get((set_, case)))
        ]


def floor_runs(sets: Sequence[str]) -> list[Run]:
    """Return what is measured of the pretrained network as it is, for each set."""
    return [
        Run("floor", "not trained", tables_of(set_, {}), is_trained=False)
        for set_ in sets
    ]


def _seeded(tables: Any, rate: float, steps: int, seed: int) -> Any:
    fit = {"learning_rate": rate, "steps": steps, "seed": seed}
    return tables | {"fit": tables["fit"] | fit}


def _as_they_are(*cases: str) -> Callable[[str], Iterator[tuple[str, str, dict]]]:
    return lambda set_: ((case, case, {}) for case in cases)


_TABLE = tuple(
    case.name
    for case in CASES.values()
    if not case.is_continuous and case.name != "contrastive, weighted"
)
_GROUP_SIZES = (2, 4, 8)
_PROBABILITIES = (0.1, 0.5, 0.9)
_WEIGHTED = ("contrastive, weighted", "balanced contrastive, weighted")


def _designs(set_: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Batches of 64 of other designs, with importance weights and without."""
    for case in _WEIGHTED:
        for power, how in ((1.0, "with"), (0.0, "without")):
            loss = CASES[case].loss | {"power": power}
            for size in _GROUP_SIZES:
                batches = {
                    "images_per_class": size,
                    "classes_per_batch": 64 // size,
                    "small_classes": "leave_out",
                    "importance_weights": True,
                }
                name = f"{case.partition(',')[0]}, {how} weights, "
                yield (
                    f"{name}({size}, {64 // size}) groups",
                    case,
                    {"loss": loss, "batches": batches},
                )
            for probability in _PROBABILITIES:
                batches = {
                    "design": "pairs",
                    "batch_size": 64,
                    "positive_probability": probability,
                    "importance_weights": True,
                }
                yield (
                    f"{name}p = {probability}",
                    case,
                    {"loss": loss, "batches": batches},
                )


def _batch_sizes(set_: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for case in ("multi-similarity", "binomial deviance"):
        for size in (20, 40, 80, 160, 320, 640):
            batches = CASES[case].batches | {
                "images_per_class": 5,
                "classes_per_batch": size // 5,
            }
            yield f"{case}, {size}", case, {"batches": batches}


def _proxy_anchor(set_: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    case = "Proxy Anchor"
    for dimension in (16, 32, 64, 128, 256, 512):
        changes = {"embedder": {"embedding_dimension": dimension}}
        yield f"dimension {dimension}", case, changes
    for scale in (4.0, 8.0, 16.0, 32.0, 64.0):
        for margin in (0.0, 0.1, 0.2, 0.4):
            loss = CASES[case].loss | {"scale": scale, "margin": margin}
            yield f"alpha {scale:g}, delta {margin:g}", case, {"loss": loss}


def _pose(set_: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for dimension in (16, 32, 64, 128):
        changes = {"embedder": {"embedding_dimension": dimension}}
        yield f"log-ratio, {dimension}", "log-ratio", changes


STUDIES = {
    "losses": Study(
        "All losses on the same batches (Lu et al., Table 1 and Figure 4)",
        _TABLE,
        _as_they_are(*_TABLE),
        with_curve=True,
    ),
    "designs": Study(
        "Batch designs with importance weights and without (Hong et al., Table 1)",
        _WEIGHTED,
        _designs,
    ),
    "batch_sizes": Study(
        "Batch sizes (Wang et al., supplement)",
        ("multi-similarity", "binomial deviance"),
        _batch_sizes,
    ),
    "proxy_anchor": Study(
        "Dimension, alpha and delta of Proxy Anchor (Kim et al., CVPR 2020)",
        ("Proxy Anchor",),
        _proxy_anchor,
    ),
    "pose": Study(
        "Continuous labels by the dimension (Kim et al., CVPR 2019)",
        ("log-ratio",),
        _pose,
    ),
}
"""Every study by its name."""
