"""Losses for `model.compile(loss=...)`: labels and embeddings of a batch go in."""

from tfdml.losses.angular import (
    AngularLoss,
    AngularTripletLoss,
    MultiClassAngularLoss,
)
from tfdml.losses.average_precision import FastAPLoss, SmoothAPLoss
from tfdml.losses.base import MetricLoss, PairLoss
from tfdml.losses.circle import CircleLoss
from tfdml.losses.continuous import LogRatioLoss
from tfdml.losses.continuous_triplet import ContinuousTripletLoss
from tfdml.losses.contrastive import ContrastiveLoss, CosineContrastiveLoss
from tfdml.losses.distance_weighted import (
    DistanceWeightedMarginLoss,
    DistanceWeightedTripletLoss,
)
from tfdml.losses.histogram import HistogramLoss
from tfdml.losses.lifted import (
    CosineLiftedStructureLoss,
    GeneralizedLiftedStructureLoss,
    LiftedStructureLoss,
)
from tfdml.losses.margin import LearnedMarginLoss, MarginLoss
from tfdml.losses.margin_softmax import ArcFaceLoss, CosFaceLoss
from tfdml.losses.npair import MultiClassNPairLoss, NPairLoss
from tfdml.losses.proxy import ProxyAnchorLoss, ProxyLoss
from tfdml.losses.proxy_softmax import ProxyNCALoss, SoftTripleLoss
from tfdml.losses.query_gallery import query_gallery_loss
from tfdml.losses.ranking import TopKPrecisionLoss, precision_loss
from tfdml.losses.similarity import BinomialDevianceLoss, MultiSimilarityLoss
from tfdml.losses.softmax import NCALoss, NTXentLoss, SupervisedContrastiveLoss
from tfdml.losses.triplet import (
    HardTripletLoss,
    SemiHardTripletLoss,
    SemiHardWindowTripletLoss,
    TripletLoss,
)
from tfdml.losses.weighted import PairWeightedLoss, binlifted_weights
from tfdml.losses.weighted_contrastive import (
    BalancedContrastiveLoss,
    WeightedContrastiveLoss,
)

__all__ = [
    "AngularLoss",
    "AngularTripletLoss",
    "ArcFaceLoss",
    "BalancedContrastiveLoss",
    "BinomialDevianceLoss",
    "CircleLoss",
    "ContinuousTripletLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "CosineContrastiveLoss",
    "CosineLiftedStructureLoss",
    "DistanceWeightedMarginLoss",
    "DistanceWeightedTripletLoss",
    "FastAPLoss",
    "GeneralizedLiftedStructureLoss",
    "HardTripletLoss",
    "HistogramLoss",
    "LearnedMarginLoss",
    "LiftedStructureLoss",
    "LogRatioLoss",
    "MarginLoss",
    "MetricLoss",
    "MultiClassAngularLoss",
    "MultiClassNPairLoss",
    "MultiSimilarityLoss",
    "NCALoss",
    "NPairLoss",
    "NTXentLoss",
    "PairLoss",
    "PairWeightedLoss",
    "ProxyAnchorLoss",
    "ProxyLoss",
    "ProxyNCALoss",
    "SemiHardTripletLoss",
    "SemiHardWindowTripletLoss",
    "SmoothAPLoss",
    "SoftTripleLoss",
    "SupervisedContrastiveLoss",
    "TopKPrecisionLoss",
    "TripletLoss",
    "WeightedContrastiveLoss",
    "binlifted_weights",
    "precision_loss",
    "query_gallery_loss",
]
