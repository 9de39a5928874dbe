"""The losses that are compared, with the settings that their papers give."""

from dataclasses import dataclass, field
from typing import Any

from benchmarks.papers.sets import SETS, Tables, tables_of

__all__ = ["CASES", "Case"]

_GROUPS = {"images_per_class": 4, "classes_per_batch": 16, "small_classes": "leave_out"}
_WEIGHTED = _GROUPS | {"importance_weights": True}
_NEIGHBORS = {"design": "neighbors", "batch_size": 150, "neighbors": 5}


@dataclass(frozen=True)
class Case:
    """A loss as it is trained.

    Args:
        name: What the paper calls it.
        loss: The table `[loss]`.
        proxies: The table `[proxies]`, None for a loss that is not on proxies.
        batches: The table `[batches]`.
        is_continuous: Whether it is for labels that have distances.
    """

    name: str
    loss: dict[str, Any]
    proxies: dict[str, Any] | None = None
    batches: dict[str, Any] = field(default_factory=lambda: _GROUPS)
    is_continuous: bool = False

    def suits(self, set_: str) -> bool:
        """Whether a set has such labels."""
        return SETS[set_].is_continuous == self.is_continuous

    def tables(self, set_: str, changes: Tables | None = None) -> Tables:
        """Return the tables of its recipe on a set.

        Args:
            set_: Which set.
            changes: Keys of tables that are not as usual. Those of `[batches]` take
                the place of the whole table, as designs have other keys.
        """
        own = {"loss": self.loss, "batches": self.batches}
        if self.proxies is not None:
            own["proxies"] = self.proxies
        changed = dict(changes or {})
        own["loss"] = own["loss"] | changed.pop("loss", {})
        own["batches"] = changed.pop("batches", own["batches"])
        return tables_of(set_, own, changed)


def _case(name: str, loss: str, /, **arguments: Any) -> Case:
    return Case(name, {"name": loss} | arguments)


_ALL = [
    _case("triplet, uniform", "TripletLoss", margin=0.2),
    _case("triplet, hard", "HardTripletLoss", margin=0.2),
    _case("triplet, semi-hard", "SemiHardTripletLoss", margin=0.2),
    _case("triplet, distance-weighted", "DistanceWeightedTripletLoss", margin=0.2),
    _case("margin, distance-weighted", "DistanceWeightedMarginLoss"),
    _case("contrastive", "ContrastiveLoss", margin=1.0),
    _case("lifted structure", "LiftedStructureLoss", margin=1.0),
    _case("N-pair", "NPairLoss"),
    _case("angular", "AngularLoss", angle=45.0),
    _case("NCA", "NCALoss", scale=10.0),
    _case("histogram", "HistogramLoss", bin_width=0.02),
    _case("binomial deviance", "BinomialDevianceLoss"),
    _case("BinLifted", "PairWeightedLoss", weight_function="tfdml>binlifted_weights"),
    _case("multi-similarity", "MultiSimilarityLoss"),
    _case("supervised contrastive", "SupervisedContrastiveLoss", temperature=0.1),
    _case("top-k precision", "TopKPrecisionLoss", k=5, margin=0.1),
    Case("Proxy-NCA", {"name": "ProxyNCALoss"}, {}),
    Case(
        "SoftTriple",
        {"name": "SoftTripleLoss"},
        {"centers_per_class": 3, "center_penalty": 0.2},
    ),
    Case("Proxy Anchor", {"name": "ProxyAnchorLoss"}, {}),
    Case(
        "weighted contrastive",
        {"name": "WeightedContrastiveLoss", "margin": 1.0},
        batches=_WEIGHTED,
    ),
    Case(
        "balanced contrastive",
        {"name": "BalancedContrastiveLoss", "margin": 1.0},
        batches=_WEIGHTED,
    ),
    Case("log-ratio", {"name": "LogRatioLoss"}, None, _NEIGHBORS, True),
    Case(
        "triplet, dense",
        {"name": "ContinuousTripletLoss", "margin": 0.03},
        None,
        _NEIGHBORS,
        True,
    ),
    Case(
        "triplet, binary",
        # The threshold takes about every tenth pair of training poses for alike.
        {"name": "ContinuousTripletLoss", "margin": 0.2, "threshold": 1.0},
        None,
        _NEIGHBORS,
        True,
    ),
]
CASES = {case.name: case for case in _ALL}
"""Every case by its name."""
