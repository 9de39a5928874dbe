"""The losses that are compared, with the settings that their papers give."""

from dataclasses import dataclass, field
from typing import Any

from benchmarks.papers.sets import SETS, Tables, tables_of

__all__ = ["CASES", "Case"]

_GROUPS = {"images_per_class": 4, "classes_per_batch": 16, "small_classes": "leave_out"}


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

    def tables(self, set_: str, **changes: dict[str, Any]) -> Tables:
        """Return the tables of its recipe on a set; see `tables_of`."""
        changes = {"batches": self.batches} | changes
        if self.proxies is not None:
            changes["proxies"] = self.proxies | changes.get("proxies", {})
        return tables_of(set_, self.loss, self.proxies is not None, **changes)


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
    _case("multi-similarity", "MultiSimilarityLoss"),
    _case("supervised contrastive", "SupervisedContrastiveLoss", temperature=0.1),
    _case("top-k precision, k = 1", "TopKPrecisionLoss", k=1, margin=0.2),
    _case("top-k precision, k = 3", "TopKPrecisionLoss", k=3, margin=0.2),
    _case("top-k precision, k = 5", "TopKPrecisionLoss", k=5, margin=0.2),
    _case("top-k precision, k = 10", "TopKPrecisionLoss", k=10, margin=0.2),
    Case("Proxy-NCA", {"name": "ProxyNCALoss"}, {}),
    Case(
        "SoftTriple",
        {"name": "SoftTripleLoss"},
        {"centers_per_class": 3, "center_penalty": 0.2},
    ),
    Case("Proxy Anchor", {"name": "ProxyAnchorLoss"}, {}),
    Case(
        "contrastive, weighted",
        {"name": "WeightedContrastiveLoss", "margin": 1.0},
        batches=_GROUPS | {"importance_weights": True},
    ),
    Case(
        "balanced contrastive, weighted",
        {"name": "BalancedContrastiveLoss", "margin": 1.0},
        batches=_GROUPS | {"importance_weights": True},
    ),
    Case(
        "log-ratio",
        {"name": "LogRatioLoss"},
        batches={"design": "neighbors", "batch_size": 150, "neighbors": 5},
        is_continuous=True,
    ),
]
CASES = {case.name: case for case in _ALL}
"""Every case by its name."""
