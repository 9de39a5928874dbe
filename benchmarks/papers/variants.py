"""List what the studies train: losses with changes of their recipes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.papers.cases import CASES
from benchmarks.papers.runs import Tables
from benchmarks.papers.tuning import Place


@dataclass(frozen=True)
class Variant:
    """Something that a study trains.

    Args:
        case: Which loss.
        point: At which value of what the study varies.
        series: What is compared; the loss unless given.
        changes: Keys of the tables that are not as usual.
        tuned: Those of them, and of other losses, with which its learning rate is
            chosen; None for the rate of the case as usual.
        thinned: As in `Run`.
        noise: As in `Run`.
        classes: As in `Run`.
        prefix: As in `Run`.
        prefixes: As in `Run`.
    """

    case: str
    point: float | str | None = None
    series: str = ""
    changes: Tables = field(default_factory=dict)
    tuned: Tables | None = None
    thinned: float = 0.0
    noise: float = 0.0
    classes: int = 0
    prefix: int = 0
    prefixes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The name of the series."""
        return self.series or self.case

    def place(self, set_: str) -> Place:
        """Return for what its learning rate is chosen on a set."""
        if self.tuned is None:
            return Place.of(set_, self.case, {}, 0.0)
        return Place.of(set_, self.case, self.tuned, self.thinned)


TABLE_1 = (
    "top-k precision",
    "triplet, uniform",
    "triplet, hard",
    "triplet, semi-hard",
    "triplet, distance-weighted",
    "contrastive",
    "lifted structure",
    "N-pair",
    "angular",
    "Proxy-NCA",
)
"""The losses of Table 1 of Lu et al., theirs first."""

_OFF = ", weights off"
_WEIGHTED = ("weighted contrastive", "balanced contrastive")
WEIGHTS_ON_AND_OFF = tuple((case, case + _OFF) for case in _WEIGHTED)


def losses(set_: str) -> Iterator[Variant]:
    """Yield all losses but recent ones and those without weights."""
    for name, case in CASES.items():
        if not case.is_recent and not name.endswith(_OFF):
            yield Variant(name)


def recent(set_: str) -> Iterator[Variant]:
    """Yield the recent losses, beside some of the others."""
    for name in ("multi-similarity", "BinLifted", "Proxy Anchor", "top-k precision"):
        yield Variant(name)
    yield from (Variant(name) for name, case in CASES.items() if case.is_recent)


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


def _pairs(probability: float, images: int) -> Tables:
    return {
        "batches": {
            "design": "pairs",
            "batch_size": images,
            "positive_probability": probability,
            "importance_weights": True,
        }
    }


def _largest(set_: str, *, weights: bool) -> Tables:
    """Batches with as many images of a class as there are."""
    groups = _EMOJI_GROUPS if set_ == "emoji" else _FURNITURE_GROUPS
    return _groups(*groups[-1], weights=weights)


def top_k(set_: str) -> Iterator[Variant]:
    for margin in (0.05, 0.1, 0.2, 0.4):
        for k in (1, 3, 5, 10):
            changes = _largest(set_, weights=False)
            changes["loss"] = {"k": k, "margin": margin}
            yield Variant("top-k precision", k, f"margin {margin:g}", changes)


def designs(set_: str) -> Iterator[Variant]:
    groups = _EMOJI_GROUPS if set_ == "emoji" else _FURNITURE_GROUPS
    designs = {f"({m}, {n})": _groups(m, n) for m, n in groups}
    random = {p: f"p = {p:g}" for p in (0.1, 0.5, 0.9)}
    designs |= {name: _pairs(p, 64) for p, name in random.items()}
    designs |= {f"{name}, 2,016 pairs": _pairs(p, 4032) for p, name in random.items()}
    for case in _WEIGHTED:
        for name in (case + _OFF, case):
            for point, batches in designs.items():
                yield Variant(name, point, changes=batches)


def powers(set_: str) -> Iterator[Variant]:
    for case in _WEIGHTED:
        for power in (-0.5, 0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0):
            changes = _largest(set_, weights=True) | {"loss": {"power": power}}
            yield Variant(case, power, changes=changes)


def thinned(set_: str) -> Iterator[Variant]:
    groups = _groups(2, 32)
    for name in ("balanced contrastive" + _OFF, "balanced contrastive"):
        for tenths in range(11):
            gamma = tenths / 10
            yield Variant(name, gamma, changes=groups, tuned=groups, thinned=gamma)


def training_loss(set_: str) -> Iterator[Variant]:
    return map(Variant, ("weighted contrastive", "weighted contrastive" + _OFF))


def noise(set_: str) -> Iterator[Variant]:
    for case in (
        "Proxy Anchor",
        "Proxy-NCA",
        "SoftTriple",
        "multi-similarity",
        "BinLifted",
        "triplet, semi-hard",
        "top-k precision",
    ):
        for share in (0.0, 0.1, 0.2, 0.4):
            yield Variant(case, share, noise=share)


CAPPED: Tables = {
    "batches": {"design": "capped", "batch_size": 64, "images_per_class": 11}
}
"""The batches of Lu et al., section 4.4: small classes whole."""
_PUBLISHED: Tables = CAPPED | {"loss": {"k": 5, "margin": 0.1}}


def headline(thin: float, set_: str) -> Iterator[Variant]:
    for case in TABLE_1[1:]:
        yield Variant(case, changes=CAPPED, tuned=CAPPED, thinned=thin)
    for k in (1, 3, 5, 10):
        for margin in (0.05, 0.1, 0.2):
            yield Variant(
                TABLE_1[0],
                series=f"{TABLE_1[0]}, k {k}, margin {margin:g}",
                changes=CAPPED | {"loss": {"k": k, "margin": margin}},
                tuned=_PUBLISHED,
                thinned=thin,
            )


def balances(set_: str) -> Iterator[Variant]:
    for balance in (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 8192.0):
        changes = {"loss": {"balance": balance}}
        yield Variant("balanced contrastive", balance, changes=changes)


def induced_balances(set_: str) -> Iterator[Variant]:
    """Contrastive loss on lambda + 1 classes at a time, as many as there are."""
    for balance in (15, 31, 63, 127, 255, *((1023, 4095) if set_ == "glyphs" else ())):
        yield Variant("weighted contrastive", balance, classes=balance + 1)


def larger(set_: str) -> Iterator[Variant]:
    """All losses with 160 and 320 images; those without classes have no such groups."""
    for variant in losses(set_):
        if not CASES[variant.case].is_continuous:
            for size in (160, 320):
                design = _groups(5, size // 5, weights=_is_weighted(variant.case))
                yield Variant(variant.case, size, changes=design)


def _is_weighted(case: str) -> bool:
    return bool(CASES[case].batches.get("importance_weights"))


_LARGE = {320: 400, 1024: 200, 1664: 100, 3840: 100, 4096: 100}
"""Steps with so many images; with 64 they are as usual."""
_CHUNK = 128


def large_batches(set_: str) -> Iterator[Variant]:
    """Yield batches up to nearly all training images, above 320 in chunks."""
    few: dict[str, Any] = {"images_per_class": 4, "small_classes": "leave_out"}
    # A set has so many classes, and furniture 12 images of each.
    most = {
        "emoji": few | {"classes_per_batch": 416},
        "furniture": few | {"images_per_class": 12, "classes_per_batch": 320},
    }.get(set_, few | {"classes_per_batch": 1024})
    designs = [few | {"classes_per_batch": n} for n in (80, 256)] + [most]
    for case in ("Recall@k", "multi-similarity"):
        yield Variant(case, 64)
        tuned = None
        for design in designs:
            images = design["images_per_class"] * design["classes_per_batch"]
            chunk = {"chunk": _CHUNK} if images > 320 else {}
            fit = {"steps": _LARGE[images], "warmup_steps": 20}
            changes: Tables = {"batches": design | chunk, "fit": fit}
            tuned = tuned or changes
            yield Variant(case, images, changes=changes, tuned=tuned)


def long(set_: str) -> Iterator[Variant]:
    for case in (
        "BinLifted",
        "multi-similarity",
        "triplet, distance-weighted",
        "triplet, hard",
        "Proxy-NCA",
    ):
        for steps in (1000, 4000):
            yield Variant(case, steps, changes={"fit": {"steps": steps}})


def batch_sizes(set_: str) -> Iterator[Variant]:
    for case in ("multi-similarity", "binomial deviance", "BinLifted"):
        for size in (20, 40, 80, 160, 320, 640):
            yield Variant(case, size, changes=_groups(5, size // 5, weights=False))


def _dimension(dimension: int) -> Tables:
    return {"embedder": {"embedding_dimension": dimension}}


def dimensions(set_: str) -> Iterator[Variant]:
    for case in ("Proxy Anchor", "multi-similarity", "top-k precision"):
        for dimension in (16, 32, 64, 128, 256, 512):
            yield Variant(case, dimension, changes=_dimension(dimension))


_PREFIXES = (16, 32, 64, 128)


def matryoshka(set_: str) -> Iterator[Variant]:
    """Yield prefixes of one embedding, and an embedding of each dimension."""
    case = "multi-similarity"
    for dimension in _PREFIXES:
        yield Variant(
            case, dimension, "trained for each", changes=_dimension(dimension)
        )
    on_prefixes = {"loss": {"dimensions": list(_PREFIXES)}}
    for series, changes in (("Matryoshka", on_prefixes), ("cut", {})):
        for prefix in _PREFIXES:
            yield Variant(
                case, prefix, series, changes, prefix=prefix, prefixes=_PREFIXES
            )


def backbones(set_: str) -> Iterator[Variant]:
    """Vary how much of the pretrained network learns, and how fast."""
    kinds: dict[str, Tables] = {
        "whole": {},
        "whole, layer decay 0.9": {"fit": {"layer_decay": 0.9}},
        "LoRA, rank 8": {"embedder": {"tuning": "lora", "lora_layers": "all"}},
        "LoRA, rank 32": {
            "embedder": {"tuning": "lora", "lora_layers": "all", "lora_rank": 32}
        },
        "frozen": {"embedder": {"tuning": "frozen"}},
    }
    for series, changes in kinds.items():
        tuned = changes or None
        yield Variant("multi-similarity", None, series, changes, tuned)


def alpha_delta(set_: str) -> Iterator[Variant]:
    for margin in (0.0, 0.1, 0.2, 0.4):
        for scale in (8.0, 16.0, 32.0, 64.0):
            changes = {"loss": {"scale": scale, "margin": margin}}
            yield Variant("Proxy Anchor", scale, f"delta {margin:g}", changes)


def pose(set_: str) -> Iterator[Variant]:
    for case in CASES:
        if CASES[case].is_continuous:
            for dimension in (16, 32, 64, 128):
                yield Variant(case, dimension, changes=_dimension(dimension))


def cost(set_: str) -> Iterator[Variant]:
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
