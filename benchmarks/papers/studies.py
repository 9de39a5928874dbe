"""The studies: which runs answer what a paper claims."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.papers.cases import CASES
from benchmarks.papers.groups import FLOOR
from benchmarks.papers.runs import Run
from benchmarks.papers.sets import Tables, tables_of
from benchmarks.papers.tuning import Rates

__all__ = ["STUDIES", "Study", "Variant", "floor_runs"]


@dataclass(frozen=True)
class Variant:
    """Something that a study trains.

    Args:
        case: Which loss.
        point: At which value of what the study varies.
        series: What is compared; the name of the loss unless given.
        changes: Keys of the tables that are not as usual.
        thinned: As in `Run`.
        unit_length: As in `Run`.
    """

    case: str
    point: float | str | None = None
    series: str = ""
    changes: Tables = field(default_factory=dict)
    thinned: float = 0.0
    unit_length: bool = True


@dataclass(frozen=True)
class Study:
    """A study.

    Args:
        title: What it asks, and of which paper.
        variants: Yields what is trained on a set.
        varied: What its points are; empty where it varies nothing.
        with_curve: Whether each run is measured after each epoch.
        is_timed: Whether it measures time: its runs have the machine for themselves.
    """

    title: str
    variants: Callable[[str], Iterator[Variant]]
    varied: str = ""
    with_curve: bool = False
    is_timed: bool = False

    def of(self, set_: str) -> list[Variant]:
        """Return what can be trained on a set."""
        return [v for v in self.variants(set_) if CASES[v.case].suits(set_)]

    def runs(
        self, name: str, sets: Sequence[str], rates: Rates, steps: int, seeds: Sequence
    ) -> list[Run]:
        """Return its runs, seed by seed, of the losses whose rates are known."""
        return [
            _run(self, name, set_, variant, rate, steps, seed)
            for seed in seeds
            for set_ in sets
            for variant in self.of(set_)
            if (rate := rates.get((set_, variant.case)))
        ]


def _run(
    study: Study,
    name: str,
    set_: str,
    variant: Variant,
    rate: float,
    steps: int,
    seed: int,
) -> Run:
    changes = dict(variant.changes)
    fit = {"learning_rate": rate, "steps": steps, "seed": seed}
    changes["fit"] = fit | changes.get("fit", {})
    return Run(
        name,
        variant.series or variant.case,
        CASES[variant.case].tables(set_, changes),
        variant.point,
        thinned=variant.thinned,
        unit_length=variant.unit_length,
        with_curve=study.with_curve,
    )


def floor_runs(sets: Sequence[str]) -> list[Run]:
    """Return what is measured of the pretrained network as it is, for each set."""
    return [
        Run(FLOOR, "not trained", tables_of(set_), is_trained=False) for set_ in sets
    ]


def _losses(set_: str) -> Iterator[Variant]:
    """All losses; contrastive loss with weights is of another study."""
    return (Variant(case) for case in CASES if case != "weighted contrastive")


def _top_k(set_: str) -> Iterator[Variant]:
    for margin in (0.05, 0.1, 0.2, 0.4):
        for k in (1, 3, 5, 10):
            changes = {"loss": {"k": k, "margin": margin}}
            yield Variant("top-k precision", k, f"margin {margin:g}", changes)


_FURNITURE_GROUPS = ((2, 32), (4, 16), (8, 8), (12, 5))
"""An object has 12 views: the (16, 4) of the paper cannot be."""
_EMOJI_GROUPS = ((2, 32), (4, 16), (8, 8))
_PROBABILITIES = (0.1, 0.5, 0.9)
_WEIGHTED = ("weighted contrastive", "balanced contrastive")


def _groups(size: int, classes: int) -> Tables:
    return {
        "batches": {
            "images_per_class": size,
            "classes_per_batch": classes,
            "small_classes": "leave_out",
            "importance_weights": True,
        }
    }


def _pairs(probability: float) -> Tables:
    return {
        "batches": {
            "design": "pairs",
            "batch_size": 64,
            "positive_probability": probability,
            "importance_weights": True,
        }
    }


def _designs(set_: str) -> Iterator[Variant]:
    groups = _EMOJI_GROUPS if set_ == "emoji" else _FURNITURE_GROUPS
    designs = {f"({m}, {n})": _groups(m, n) for m, n in groups}
    designs |= {f"p = {p:g}": _pairs(p) for p in _PROBABILITIES}
    for case in _WEIGHTED:
        for power, how in ((0.0, "without"), (1.0, "with")):
            for point, batches in designs.items():
                changes = batches | {"loss": {"power": power}}
                yield Variant(case, point, f"{case}, {how} weights", changes)


def _powers(set_: str) -> Iterator[Variant]:
    for case in _WEIGHTED:
        for power in (0.0, 0.25, 0.5, 0.75, 1.0):
            yield Variant(
                case, power, changes=_groups(8, 8) | {"loss": {"power": power}}
            )


def _thinned(set_: str) -> Iterator[Variant]:
    for case in _WEIGHTED:
        for power, how in ((0.0, "without"), (1.0, "with")):
            for gamma in (0.0, 0.5, 1.0):
                changes = _groups(2, 32) | {"loss": {"power": power}}
                series = f"{case}, {how} weights"
                yield Variant(case, gamma, series, changes, thinned=gamma)


def _balances(set_: str) -> Iterator[Variant]:
    for balance in (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 8192.0):
        changes = {"loss": {"balance": balance}}
        yield Variant("balanced contrastive", balance, changes=changes)


def _batch_sizes(set_: str) -> Iterator[Variant]:
    for case in ("multi-similarity", "binomial deviance", "BinLifted"):
        for size in (20, 40, 80, 160, 320, 640):
            batches = {
                "images_per_class": 5,
                "classes_per_batch": size // 5,
                "small_classes": "leave_out",
            }
            yield Variant(case, size, changes={"batches": batches})


def _dimension(dimension: int) -> Tables:
    return {"embedder": {"embedding_dimension": dimension}}


def _dimensions(set_: str) -> Iterator[Variant]:
    for case in ("Proxy Anchor", "multi-similarity", "top-k precision"):
        for dimension in (16, 32, 64, 128, 256, 512):
            yield Variant(case, dimension, changes=_dimension(dimension))


def _alpha_delta(set_: str) -> Iterator[Variant]:
    for margin in (0.0, 0.1, 0.2, 0.4):
        for scale in (8.0, 16.0, 32.0, 64.0):
            changes = {"loss": {"scale": scale, "margin": margin}}
            yield Variant("Proxy Anchor", scale, f"delta {margin:g}", changes)


def _cost(set_: str) -> Iterator[Variant]:
    for case in (
        "Proxy Anchor",
        "Proxy-NCA",
        "SoftTriple",
        "multi-similarity",
        "triplet, uniform",
        "top-k precision",
    ):
        yield Variant(case, changes={"fit": {"steps": 500}})


def _pose(set_: str) -> Iterator[Variant]:
    for case in ("log-ratio", "triplet, dense", "triplet, binary"):
        for dimension in (16, 32, 64, 128):
            yield Variant(case, dimension, changes=_dimension(dimension))
    for dimension in (16, 32, 64, 128):
        yield Variant(
            "log-ratio",
            dimension,
            "log-ratio, any length",
            _dimension(dimension),
            unit_length=False,
        )


STUDIES = {
    "losses": Study(
        "All losses on the same batches (Lu et al., Table 1 and Figure 4; Kim et al., "
        "CVPR 2020, convergence)",
        _losses,
        with_curve=True,
    ),
    "top_k": Study("k and margin of top-k precision (Lu et al.)", _top_k, "k"),
    "designs": Study(
        "Batch designs with importance weights and without (Hong et al., Table 1)",
        _designs,
        "batch design",
    ),
    "powers": Study(
        "Importance weights to a power, batches (8, 8) (Hong et al.)",
        _powers,
        "power of the weights",
    ),
    "thinned": Study(
        "Class sizes thinned by gamma, batches (2, 32) (Hong et al.)",
        _thinned,
        "gamma",
    ),
    "balances": Study("Lambda of balanced contrastive (Hong et al.)", _balances, "λ"),
    "batch_sizes": Study(
        "Batch sizes (Wang et al., supplement)", _batch_sizes, "images a batch"
    ),
    "dimensions": Study(
        "Embedding dimension (Kim et al., CVPR 2020)", _dimensions, "dimension"
    ),
    "alpha_delta": Study(
        "Alpha and delta of Proxy Anchor (Kim et al., CVPR 2020)", _alpha_delta, "alpha"
    ),
    "pose": Study(
        "Continuous labels by the dimension (Kim et al., CVPR 2019)",
        _pose,
        "dimension",
    ),
    "cost": Study(
        "Time of a training step (Kim et al., CVPR 2020)", _cost, is_timed=True
    ),
}
"""Every study by its name."""
