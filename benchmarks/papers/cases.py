"""List the losses that are compared, with the settings of their papers."""

from dataclasses import dataclass, field
from typing import Any

from benchmarks.papers.runs import Tables
from benchmarks.papers.sets import SETS, tables_of

_GROUPS = {"images_per_class": 4, "classes_per_batch": 16, "small_classes": "leave_out"}
_PROXIES = {"learning_rate_multiplier": 100.0}
"""Proxies learn 100 times faster, as in the code of Proxy Anchor."""


@dataclass(frozen=True)
class Case:
    """A loss as it is trained.

    Args:
        name: What the paper calls it.
        loss: The table `[loss]`.
        proxies: The table `[proxies]`, None for a loss that is not on proxies.
        batches: The table `[batches]`.
        is_continuous: Whether it is for labels that have distances.
        unit_length: Whether it is for embeddings of unit length.
        sampled: Which triplets of a batch it samples: `"all"`, one a positive
            `"pair"`, one an `"anchor"`, or one a `"misplaced"` pair, as Lu et al. count
            those of top-k precision (section 4.5).
        rate_of: The case whose learning rate it takes, to be compared at equal rates;
            its own if empty.
        is_recent: Whether its paper is later than those whose tables the studies
            repeat, or its loss is in none of them.
    """

    name: str
    loss: dict[str, Any]
    proxies: dict[str, Any] | None = None
    batches: dict[str, Any] = field(default_factory=lambda: _GROUPS)
    is_continuous: bool = False
    unit_length: bool = True
    sampled: str = "all"
    rate_of: str = ""
    is_recent: bool = False

    def suits(self, set_: str) -> bool:
        """Return whether a set has such labels."""
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
            own["proxies"] = _PROXIES | self.proxies
        changed = dict(changes or {})
        own["loss"] = own["loss"] | changed.pop("loss", {})
        own["batches"] = changed.pop("batches", own["batches"])
        return tables_of(set_, own, changed)


def _case(
    name: str,
    loss: str,
    /,
    *,
    unit_length: bool = True,
    sampled: str = "all",
    **arguments: Any,
) -> Case:
    loss_table = {"name": loss} | arguments
    return Case(name, loss_table, unit_length=unit_length, sampled=sampled)


def _poses(
    name: str, loss: str, /, *, unit_length: bool = True, **arguments: Any
) -> Case:
    """Return a loss on continuous labels, on the batches of Kim et al., CVPR 2019."""
    return Case(
        name,
        {"name": loss} | arguments,
        batches={"design": "neighbors", "batch_size": 150, "neighbors": 5},
        is_continuous=True,
        unit_length=unit_length,
    )


def _weighted(name: str, loss: str) -> list[Case]:
    """Return a loss with importance weights and without, at one learning rate.

    Hong et al. do not normalize.
    """
    batches = _GROUPS | {"importance_weights": True}
    table = {"name": loss, "margin": 1.0}
    off = table | {"power": 0.0}
    return [
        Case(name, table, batches=batches),
        Case(f"{name}, weights off", off, batches=batches, rate_of=name),
    ]


def _recent(
    name: str,
    loss: str,
    /,
    *,
    proxies: dict[str, Any] | None = None,
    rate_of: str = "",
    **arguments: Any,
) -> Case:
    table = {"name": loss} | arguments
    return Case(name, table, proxies, rate_of=rate_of, is_recent=True)


_ALL = [
    _case("triplet, uniform", "TripletLoss", margin=0.2),
    _case("triplet, hard", "HardTripletLoss", margin=0.2, sampled="anchor"),
    # FaceNet's margin; that of Hong et al. is 1.
    _case("triplet, semi-hard", "SemiHardTripletLoss", margin=0.2, sampled="pair"),
    _case(
        "triplet, distance-weighted",
        "DistanceWeightedTripletLoss",
        margin=0.2,
        sampled="pair",
    ),
    _case("margin, distance-weighted", "DistanceWeightedMarginLoss", sampled="pair"),
    _case("contrastive", "ContrastiveLoss", margin=1.0),
    # The paper's embeddings have any length.
    _case(
        "lifted structure",
        "LiftedStructureLoss",
        margin=1.0,
        normalize=False,
        unit_length=False,
    ),
    # As those of N-pair: on unit vectors its loss cannot come near 0. The weight of
    # the squared lengths is that of the paper's code, 0.02 / 4.
    _case("N-pair", "NPairLoss", l2_weight=0.005, unit_length=False),
    _case("angular", "AngularLoss", angle=45.0),
    # The paper's scale of 1 is for embeddings of any length; cosines need a larger one.
    _case("NCA", "NCALoss", scale=10.0),
    _case("histogram", "HistogramLoss", bin_width=0.02),
    _case("binomial deviance", "BinomialDevianceLoss"),
    _case("BinLifted", "PairWeightedLoss", weight_function="tfdml>binlifted_weights"),
    _case("multi-similarity", "MultiSimilarityLoss"),
    _case("supervised contrastive", "SupervisedContrastiveLoss", temperature=0.1),
    # An image has 3 positives in these batches, and k must be well below; the paper's 5
    # is for 10 of them. The study of k and margin has larger classes.
    _case("top-k precision", "TopKPrecisionLoss", sampled="misplaced", k=1, margin=0.1),
    Case("Proxy-NCA", {"name": "ProxyNCALoss"}, {}),
    # As many centers as 5 to 12 images a class have use for; the paper has 10 for 60.
    Case(
        "SoftTriple",
        {"name": "SoftTripleLoss"},
        {"centers_per_class": 3, "center_penalty": 0.2},
    ),
    Case("Proxy Anchor", {"name": "ProxyAnchorLoss"}, {}),
    *_weighted("weighted contrastive", "WeightedContrastiveLoss"),
    *_weighted("balanced contrastive", "BalancedContrastiveLoss"),
    _poses("log-ratio", "LogRatioLoss"),
    _poses("log-ratio, any length", "LogRatioLoss", unit_length=False),
    _poses("triplet, dense", "ContinuousTripletLoss", margin=0.03),
    # The threshold takes about every tenth pair of training poses for alike.
    _poses("triplet, binary", "ContinuousTripletLoss", margin=0.2, threshold=1.0),
    _recent("Recall@k", "RecallAtKLoss"),
    # All pairs of a class of 4 are mixed.
    _recent("Recall@k, SiMix", "RecallAtKLoss", simix=2, rate_of="Recall@k"),
    _recent(
        "top-k precision, rank weights",
        "TopKPrecisionLoss",
        k=1,
        margin=0.1,
        rank_weights=True,
        rate_of="top-k precision",
    ),
    _recent("SupAP", "SupAPLoss"),
    _recent("ROADMAP", "ROADMAPLoss"),
    _recent("PNP", "PNPLoss"),
    _recent("pairwise sigmoid", "PairwiseSigmoidLoss"),
    _recent(
        "multi-similarity, consistent margin",
        "ThresholdConsistentMarginLoss",
        loss={"name": "MultiSimilarityLoss"},
        rate_of="multi-similarity",
    ),
    # As many centers as those of SoftTriple.
    _recent(
        "sub-center ArcFace", "SubCenterArcFaceLoss", proxies={"centers_per_class": 3}
    ),
    _recent("ProxyNCA++", "ProxyNCAPlusPlusLoss", proxies={}),
]
CASES = {case.name: case for case in _ALL}
"""Every case by its name."""
