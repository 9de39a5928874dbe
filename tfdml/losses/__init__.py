"""Losses for `model.compile(loss=...)`: labels and embeddings of a batch go in."""

from tfdml.losses._across_replicas import AcrossReplicas, MultiWorkerModel
from tfdml.losses._angular import AngularLoss, AngularTripletLoss, MultiClassAngularLoss
from tfdml.losses._average_precision import FastAPLoss, SmoothAPLoss
from tfdml.losses._base import MetricLoss, PairLoss
from tfdml.losses._circle import CircleLoss
from tfdml.losses._continuous import ContinuousLoss, LogRatioLoss
from tfdml.losses._continuous_triplet import ContinuousTripletLoss
from tfdml.losses._contrastive import ContrastiveLoss, CosineContrastiveLoss
from tfdml.losses._distance_weighted import (
    DistanceWeightedMarginLoss,
    DistanceWeightedTripletLoss,
)
from tfdml.losses._histogram import HistogramLoss
from tfdml.losses._lifted import (
    CosineLiftedStructureLoss,
    GeneralizedLiftedStructureLoss,
    LiftedStructureLoss,
)
from tfdml.losses._margin import LearnedMarginLoss, MarginLoss
from tfdml.losses._margin_softmax import ArcFaceLoss, CosFaceLoss
from tfdml.losses._n_pair import MultiClassNPairLoss, NPairLoss
from tfdml.losses._pair_weighted import PairWeightedLoss, binlifted_weights
from tfdml.losses._pair_weights import pair_weights, weighted_pairs
from tfdml.losses._proxy import ProxyAnchorLoss, ProxyLoss
from tfdml.losses._proxy_softmax import ProxyNCALoss, SoftTripleLoss
from tfdml.losses._query_gallery import (
    check_pairwise,
    gallery_masks,
    query_gallery_loss,
)
from tfdml.losses._similarity import BinomialDevianceLoss, MultiSimilarityLoss
from tfdml.losses._softmax import NCALoss, NTXentLoss, SupervisedContrastiveLoss
from tfdml.losses._topk_precision import TopKPrecisionLoss, precision_loss
from tfdml.losses._triplet import (
    HardTripletLoss,
    SemiHardTripletLoss,
    SemiHardWindowTripletLoss,
    TripletLoss,
)
from tfdml.losses._weighted_contrastive import (
    BalancedContrastiveLoss,
    WeightedContrastiveLoss,
)

__all__ = [
    "AcrossReplicas",
    "AngularLoss",
    "AngularTripletLoss",
    "ArcFaceLoss",
    "BalancedContrastiveLoss",
    "BinomialDevianceLoss",
    "CircleLoss",
    "ContinuousLoss",
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
    "MultiWorkerModel",
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
    "check_pairwise",
    "gallery_masks",
    "pair_weights",
    "precision_loss",
    "query_gallery_loss",
    "weighted_pairs",
]
