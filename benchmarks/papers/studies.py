"""List the studies: the runs that test the claims of a paper."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.papers.cases import CASES
from benchmarks.papers.runs import FLOOR, FLOORS, Run, Tables
from benchmarks.papers.sets import tables_of
from benchmarks.papers.tuning import Rates


@dataclass(frozen=True)
class Variant:
    """Something that a study trains.

    Args:
        case: Which loss.
        point: At which value of what the study varies.
        series: What is compared; the loss unless given.
        changes: Keys of the tables that are not as usual.
        thinned: As in `Run`.
    """

    case: str
    point: float | str | None = None
    series: str = ""
    changes: Tables = field(default_factory=dict)
    thinned: float = 0.0

    @property
    def name(self) -> str:
        """The name of the series."""
        return self.series or self.case


@dataclass(frozen=True)
class Study:
    """A study.

    Args:
        title: What it asks, and of which paper.
        variants: Yields what is trained on a set.
        varied: What its points are; empty where it varies nothing.
        reported: The columns of `Metrics` that are reported at each point; only the
            first if empty.
        baselines: A series and one that it is compared with at each point.
        with_curve: Whether each run is measured after each epoch.
        is_timed: Whether it measures the time of a step: its runs have the machine for
            themselves.
        note: What must be known to read it.
    """

    title: str
    variants: Callable[[str], Iterator[Variant]]
    varied: str = ""
    reported: tuple[str, ...] = ()
    baselines: tuple[tuple[str, str], ...] = ()
    with_curve: bool = False
    is_timed: bool = False
    note: str = ""

    def of(self, set_: str) -> list[Variant]:
        """Return what can be trained on a set."""
        return [v for v in self.variants(set_) if CASES[v.case].suits(set_)]

    def runs(
        self, name: str, sets: Sequence[str], rates: Rates, steps: int, seeds: Sequence
    ) -> list[Run]:
        """Return its runs, seed by seed, of the losses whose rates are known."""
        return [
            self._run(name, set_, variant, rate, steps, seed)
            for seed in seeds
            for set_ in sets
            for variant in self.of(set_)
            if (rate := rates.get((set_, variant.case)))
        ]

    def _run(
        self, name: str, set_: str, variant: Variant, rate: float, steps: int, seed: int
    ) -> Run:
        case = CASES[variant.case]
        fit = {"learning_rate": rate, "steps": steps, "seed": seed}
        return Run(
            name,
            variant.name,
            case.tables(set_, variant.changes | {"fit": fit}),
            variant.point,
            thinned=variant.thinned,
            unit_length=case.unit_length,
            with_curve=self.with_curve,
            is_timed=self.is_timed,
        )


def floor_runs(sets: Sequence[str]) -> list[Run]:
    """Return what is measured of each set without any training."""
    return [
        Run(FLOOR, series, tables_of(set_), is_trained=False)
        for set_ in sets
        for series in FLOORS
    ]


_OFF = ", weights off"
_WEIGHTED = ("weighted contrastive", "balanced contrastive")
_WEIGHTS_ON_AND_OFF = tuple((case, case + _OFF) for case in _WEIGHTED)


def _losses(set_: str) -> Iterator[Variant]:
    """All losses; those whose weights are off are of other studies."""
    return (Variant(case) for case in CASES if not case.endswith(_OFF))


_EMOJI_GROUPS = ((2, 32), (4, 16), (5, 13))
"""All training classes have five images, few have more."""
_FURNITURE_GROUPS = ((2, 32), (4, 16), (8, 8), (12, 5))
"""An object has 12 views: the (16, 4) of the paper cannot be."""


def _groups(size: int, classes: int, *, weights: bool = True) -> Tables:
    return {
        "batches": {
            "images_per_class": size,
            "classes_per_batch": classes,
            "small_classes": "leave_out",
            "importance_weights": weights,
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


def _largest(set_: str, *, weights: bool) -> Tables:
    """Batches with as many images of a class as there are."""
    groups = _EMOJI_GROUPS if set_ == "emoji" else _FURNITURE_GROUPS
    return _groups(*groups[-1], weights=weights)


def _top_k(set_: str) -> Iterator[Variant]:
    for margin in (0.05, 0.1, 0.2, 0.4):
        for k in (1, 3, 5, 10):
            changes = _largest(set_, weights=False)
            changes["loss"] = {"k": k, "margin": margin}
            yield Variant("top-k precision", k, f"margin {margin:g}", changes)


def _designs(set_: str) -> Iterator[Variant]:
    groups = _EMOJI_GROUPS if set_ == "emoji" else _FURNITURE_GROUPS
    designs = {f"({m}, {n})": _groups(m, n) for m, n in groups}
    designs |= {f"p = {p:g}": _pairs(p) for p in (0.1, 0.5, 0.9)}
    for case in _WEIGHTED:
        for name in (case + _OFF, case):
            for point, batches in designs.items():
                yield Variant(name, point, changes=batches)


def _powers(set_: str) -> Iterator[Variant]:
    for case in _WEIGHTED:
        for power in (0.0, 0.25, 0.5, 0.75, 1.0):
            changes = _largest(set_, weights=True) | {"loss": {"power": power}}
            yield Variant(case, power, changes=changes)


def _thinned(set_: str) -> Iterator[Variant]:
    for case in _WEIGHTED:
        for name in (case + _OFF, case):
            for gamma in (0.0, 0.5, 1.0):
                yield Variant(name, gamma, changes=_groups(2, 32), thinned=gamma)


def _balances(set_: str) -> Iterator[Variant]:
    for balance in (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 8192.0):
        changes = {"loss": {"balance": balance}}
        yield Variant("balanced contrastive", balance, changes=changes)


def _batch_sizes(set_: str) -> Iterator[Variant]:
    for case in ("multi-similarity", "binomial deviance", "BinLifted"):
        for size in (20, 40, 80, 160, 320, 640):
            yield Variant(case, size, changes=_groups(5, size // 5, weights=False))


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


def _pose(set_: str) -> Iterator[Variant]:
    for case in CASES:
        if CASES[case].is_continuous:
            for dimension in (16, 32, 64, 128):
                yield Variant(case, dimension, changes=_dimension(dimension))


def _cost(set_: str) -> Iterator[Variant]:
    return map(
        Variant,
        (
            "Proxy Anchor",
            "Proxy-NCA",
            "SoftTriple",
            "multi-similarity",
            "triplet, uniform",
            "top-k precision",
        ),
    )


_OF_DEFAULT = "The learning rate is the one chosen at the default."
STUDIES = {
    "losses": Study(
        "All losses on the same batches (Lu et al., Table 1 and Figure 4; Kim et al., "
        "CVPR 2020, convergence)",
        _losses,
        with_curve=True,
    ),
    "designs": Study(
        "Batch designs with importance weights and without (Hong et al., Table 1)",
        _designs,
        "batch design",
        baselines=_WEIGHTS_ON_AND_OFF,
        note="Embeddings have unit length, the margin is 1; the paper does not "
        "normalize. The learning rate is the one chosen at (4, 16).",
    ),
    "pose": Study(
        "Continuous labels by the dimension (Kim et al., CVPR 2019)",
        _pose,
        "dimension",
        reported=("distance of the first", "distance of 10", "nDCG@10"),
        baselines=tuple(
            (case, other)
            for case in ("log-ratio", "log-ratio, any length")
            for other in ("triplet, dense", "triplet, binary")
        ),
        note="The learning rate is the one chosen at 128 dimensions.",
    ),
    "batch_sizes": Study(
        "Batch sizes (Wang et al., supplement)",
        _batch_sizes,
        "images per batch",
        baselines=(
            ("multi-similarity", "binomial deviance"),
            ("multi-similarity", "BinLifted"),
        ),
        note="At equal steps: a batch of 640 sees 32 times the images of one of 20. "
        "The learning rate is the one chosen at 64.",
    ),
    "dimensions": Study(
        "Embedding dimension (Kim et al., CVPR 2020)",
        _dimensions,
        "dimension",
        baselines=(("Proxy Anchor", "multi-similarity"),),
        note="The learning rate is the one chosen at 128 dimensions.",
    ),
    "top_k": Study(
        "k and margin of top-k precision (Lu et al.)",
        _top_k,
        "k",
        reported=("Precision@1", "Precision@10", "MAP@R"),
        note="Batches of as many images of a class as there are: 5 of emoji, 12 of "
        f"furniture. {_OF_DEFAULT}",
    ),
    "alpha_delta": Study(
        "Alpha and delta of Proxy Anchor (Kim et al., CVPR 2020)",
        _alpha_delta,
        "alpha",
        note=_OF_DEFAULT,
    ),
    "balances": Study(
        "Lambda of balanced contrastive (Hong et al.)",
        _balances,
        "lambda",
        note=_OF_DEFAULT,
    ),
    "powers": Study(
        "Importance weights to a power (Hong et al.)",
        _powers,
        "power of the weights",
        note="Batches of as many images of a class as there are: 5 of emoji, 12 of "
        f"furniture. {_OF_DEFAULT}",
    ),
    "thinned": Study(
        "Class sizes thinned by gamma, batches (2, 32) (Hong et al.)",
        _thinned,
        "gamma",
        baselines=_WEIGHTS_ON_AND_OFF,
        note="Thinning also leaves fewer images: compare within a gamma. The learning "
        "rate is the one chosen at (4, 16).",
    ),
    "cost": Study(
        "Time of a training step (Kim et al., CVPR 2020)",
        _cost,
        is_timed=True,
        note="Of one batch that is trained on over and over, without its reading.",
    ),
}
"""Every study by its name, the most asked for first."""
