"""Losses for `model.compile`, on the labels and embeddings of a batch."""

from tfdml.losses._abe import ABELoss
from tfdml.losses._across_replicas import AcrossReplicas
from tfdml.losses._angular import AngularLoss
from tfdml.losses._angular_triplet import AngularTripletLoss
from tfdml.losses._arc_face import ArcFaceLoss
from tfdml.losses._balanced_contrastive import BalancedContrastiveLoss
from tfdml.losses._base import MetricLoss, PairLoss
from tfdml.losses._bier import BIERLoss
from tfdml.losses._binomial_deviance import BinomialDevianceLoss
from tfdml.losses._boundary_sampled import BoundarySampledLoss
from tfdml.losses._circle import CircleLoss
from tfdml.losses._clustering import ClusteringLoss
from tfdml.losses._compatible import CompatibleLoss
from tfdml.losses._continuous_base import ContinuousLoss
from tfdml.losses._continuous_triplet import ContinuousTripletLoss
from tfdml.losses._contrastive import ContrastiveLoss
from tfdml.losses._cos_face import CosFaceLoss
from tfdml.losses._cosine_contrastive import CosineContrastiveLoss
from tfdml.losses._cosine_lifted_structure import CosineLiftedStructureLoss
from tfdml.losses._distance_weighted_learned_margin import (
    DistanceWeightedLearnedMarginLoss,
)
from tfdml.losses._distance_weighted_margin import DistanceWeightedMarginLoss
from tfdml.losses._distance_weighted_triplet import DistanceWeightedTripletLoss
from tfdml.losses._distillation_base import DistillationLoss
from tfdml.losses._dominant_centers import DominantCenters, dominant_centers
from tfdml.losses._fast_ap import FastAPLoss
from tfdml.losses._generalized_lifted_structure import GeneralizedLiftedStructureLoss
from tfdml.losses._hard_triplet import HardTripletLoss
from tfdml.losses._hierarchical_ap import HierarchicalAPLoss
from tfdml.losses._hierarchical_triplet import HierarchicalTripletLoss
from tfdml.losses._histogram import HistogramLoss
from tfdml.losses._horde import HORDELoss
from tfdml.losses._learned_margin import LearnedMarginLoss
from tfdml.losses._learned_pairwise_sigmoid import LearnedPairwiseSigmoidLoss
from tfdml.losses._lifted_structure import LiftedStructureLoss
from tfdml.losses._log_ratio import LogRatioLoss
from tfdml.losses._margin import MarginLoss
from tfdml.losses._matryoshka import MatryoshkaLoss
from tfdml.losses._multi_class_angular import MultiClassAngularLoss
from tfdml.losses._multi_class_n_pair import MultiClassNPairLoss
from tfdml.losses._multi_similarity import MultiSimilarityLoss
from tfdml.losses._n_pair import NPairLoss
from tfdml.losses._nca import NCALoss
from tfdml.losses._nt_xent import NTXentLoss
from tfdml.losses._pair_weighted import PairWeightedLoss, binlifted_weights
from tfdml.losses._pair_weights import pair_weights, weighted_pairs
from tfdml.losses._pairwise_sigmoid import PairwiseSigmoidLoss
from tfdml.losses._pnp import PNPLoss
from tfdml.losses._proxy_anchor import ProxyAnchorLoss
from tfdml.losses._proxy_base import ProxyLoss
from tfdml.losses._proxy_nca import ProxyNCALoss
from tfdml.losses._proxy_nca_plus_plus import ProxyNCAPlusPlusLoss
from tfdml.losses._query_gallery import check_pairwise, query_gallery_loss
from tfdml.losses._ranked_list import RankedListLoss
from tfdml.losses._recall_at_k import RecallAtKLoss
from tfdml.losses._relational_distillation import RelationalDistillationLoss
from tfdml.losses._roadmap import ROADMAPLoss
from tfdml.losses._semi_hard_triplet import SemiHardTripletLoss
from tfdml.losses._semi_hard_window_triplet import SemiHardWindowTripletLoss
from tfdml.losses._similarity_distillation import SimilarityDistillationLoss
from tfdml.losses._smooth_ap import SmoothAPLoss
from tfdml.losses._soft_triple import SoftTripleLoss
from tfdml.losses._sub_center_arc_face import SubCenterArcFaceLoss
from tfdml.losses._sup_ap import SupAPLoss
from tfdml.losses._supervised_contrastive import SupervisedContrastiveLoss
from tfdml.losses._threshold_consistent_margin import ThresholdConsistentMarginLoss
from tfdml.losses._topk_precision import TopKPrecisionLoss, precision_loss
from tfdml.losses._triplet import TripletLoss
from tfdml.losses._weighted_contrastive import WeightedContrastiveLoss

__all__ = [
    "ABELoss",
    "AcrossReplicas",
    "AngularLoss",
    "AngularTripletLoss",
    "ArcFaceLoss",
    "BIERLoss",
    "BalancedContrastiveLoss",
    "BinomialDevianceLoss",
    "BoundarySampledLoss",
    "CircleLoss",
    "ClusteringLoss",
    "CompatibleLoss",
    "ContinuousLoss",
    "ContinuousTripletLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "CosineContrastiveLoss",
    "CosineLiftedStructureLoss",
    "DistanceWeightedLearnedMarginLoss",
    "DistanceWeightedMarginLoss",
    "DistanceWeightedTripletLoss",
    "DistillationLoss",
    "DominantCenters",
    "FastAPLoss",
    "GeneralizedLiftedStructureLoss",
    "HORDELoss",
    "HardTripletLoss",
    "HierarchicalAPLoss",
    "HierarchicalTripletLoss",
    "HistogramLoss",
    "LearnedMarginLoss",
    "LearnedPairwiseSigmoidLoss",
    "LiftedStructureLoss",
    "LogRatioLoss",
    "MarginLoss",
    "MatryoshkaLoss",
    "MetricLoss",
    "MultiClassAngularLoss",
    "MultiClassNPairLoss",
    "MultiSimilarityLoss",
    "NCALoss",
    "NPairLoss",
    "NTXentLoss",
    "PNPLoss",
    "PairLoss",
    "PairWeightedLoss",
    "PairwiseSigmoidLoss",
    "ProxyAnchorLoss",
    "ProxyLoss",
    "ProxyNCALoss",
    "ProxyNCAPlusPlusLoss",
    "ROADMAPLoss",
    "RankedListLoss",
    "RecallAtKLoss",
    "RelationalDistillationLoss",
    "SemiHardTripletLoss",
    "SemiHardWindowTripletLoss",
    "SimilarityDistillationLoss",
    "SmoothAPLoss",
    "SoftTripleLoss",
    "SubCenterArcFaceLoss",
    "SupAPLoss",
    "SupervisedContrastiveLoss",
    "ThresholdConsistentMarginLoss",
    "TopKPrecisionLoss",
    "TripletLoss",
    "WeightedContrastiveLoss",
    "binlifted_weights",
    "check_pairwise",
    "dominant_centers",
    "pair_weights",
    "precision_loss",
    "query_gallery_loss",
    "weighted_pairs",
]
