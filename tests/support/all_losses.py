"""Every loss with its arguments, golden cases and refusals: the table of all tests."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.loss_entry import CLASSES, DIMENSION, Entry
from tfdml import losses, tfa
from tfdml.layers import ClassBoundaries, Proxies, ScaleAndBias

COUNTS = [4, 9, 14, 19, 7, 30, 4, 5, 12, 8, 6, 11, 4, 9, 17, 5]

PREFIXES = (2, 4, DIMENSION)

NAN, INF = float("nan"), float("inf")
# Values that are refused, and the rule that the message states.
ABOVE_ZERO = (0.0, -1.0, NAN, INF, True, 1e13), "must be above 0 and at most 1e+12"
AT_LEAST_ZERO = (-0.1, NAN, INF, "2", True), "must be at least 0 and at most 1e+"
NOT_NEGATIVE = (-0.1, NAN, INF, "2", True), "must be at least 0 and finite"
DISTANCE = (-0.1, NAN, INF, "2", True, 11), "must be at least 0 and at most 10"
SCALE = (0.0, -1.0, NAN, INF, True, 9e-5, 10_001), "must be from 0.0001 to 10000"
THRESHOLD = (NAN, INF, -INF, 1e13), "must be from -1e+12 to 1e+12"
FRACTION = (-0.1, 1.0, NAN), "must be at least 0 and below 1"
WHOLE = (0, -1, 1.5, True, "5"), "must be a whole number of at least 1"
BOOLEAN = (1, "no", None), "must be True or False"
CHOICE = ("every", "none", ""), "must be one of"


def _built(layer: keras.Layer, weights: np.ndarray) -> keras.Layer:
    layer.build((None, DIMENSION))
    layer.set_weights([weights])
    return layer


def _proxies(centers: int = 1) -> keras.Layer:
    shape = (CLASSES, centers, DIMENSION) if centers > 1 else (CLASSES, DIMENSION)
    weights = np.random.default_rng(11).normal(size=shape)
    return _built(Proxies(CLASSES, centers), weights)


def _several_proxies() -> keras.Layer:
    return _proxies(3)


def _nested_proxies() -> keras.Layer:
    weights = np.random.default_rng(11).normal(size=(CLASSES, DIMENSION))
    return _built(Proxies(CLASSES, dimensions=PREFIXES), weights)


def _boundaries() -> keras.Layer:
    return _built(ClassBoundaries(CLASSES), np.linspace(0.6, 1.4, CLASSES))


def _scale_and_bias() -> keras.Layer:
    layer = ScaleAndBias(4.0, -2.0)
    layer.build((None, DIMENSION))
    return layer


def _similarities() -> Callable[[Any], Any]:
    return lambda embeddings: ops.matmul(embeddings, ops.transpose(embeddings))


BOTH = ("positives", "negatives")
_raw = {"uses_length": True}
_proxy = {"make_head": _proxies, "ids": "rows", "costs_without": BOTH}
_counted = {"ids": "counted", "costs_without": BOTH}

_angle = {"angle": ((0.0, -45.0, 89.5, NAN), "must be above 0 and at most 89")}
_average = {"average": CHOICE}
_rows = {"normalize": BOOLEAN}
_lengths = {"margin": AT_LEAST_ZERO, "distance": CHOICE, "normalize": BOOLEAN}
_sides = {"alpha": DISTANCE, "beta": DISTANCE, **_average}
_cutoffs = {
    "cutoff": ((0, -1.0, 9e-4, 2, NAN), "must be at least 0.001 and below 2"),
    "nonzero_loss_cutoff": ((0.4, 0.5, NAN), "must be above `cutoff`"),
}
_drawn = _cutoffs | {
    "dimension": ((1, 0, 2.5), "must be a whole number of at least 2"),
}
_scales = {"positive_scale": SCALE, "negative_scale": SCALE}
_label_distance = {"label_distance": (("euclidean", None, 2), "must be one of")}
_counts = {
    "class_counts": (
        ([], [3.5, 4], {"a": 4}, np.array(7), [[3, 4]]),
        "must be a mapping from label to number of images or a sequence of numbers",
    ),
    "images_per_class": ((1,), "must be at least 2"),
    "classes_per_batch": ((1,), "must be at least 2"),
    "positive_probability": ((0.5,), "must be None with `images_per_class`"),
    "margin": ABOVE_ZERO,
    "power": ((NAN, INF, "2", True), "must be finite"),
    **_rows,
}
_design = {"images_per_class": 2, "classes_per_batch": 3}
_rank_step = {
    "slope": ((-0.1, NAN, INF, 10_001), "must be at least 0 and at most 10000"),
    "delta": ((-0.1, NAN, 2.1), "must be at least 0 and at most 2"),
    "jump": ((-0.1, NAN, 1.1), "must be at least 0 and at most 1"),
    "temperature": SCALE,
}
_cosine = (-1.1, 1.1, NAN), "must be from -1 to 1"
_metric = {"distance_metric": (("l2", None), "must be one of L2, squared-L2, angular")}

ENTRIES = {
    "ABELoss": Entry(
        losses.ABELoss(3, divergence=0.1),
        costs_without=BOTH,
        of_batch=True,
        ranges={
            "heads": WHOLE,
            "margin": DISTANCE,
            "divergence": AT_LEAST_ZERO,
            "divergence_margin": DISTANCE,
        },
    ),
    "AngularLoss": Entry(
        losses.AngularLoss(),
        golden=("angular_all_pairs", "angular_all_pairs in turn"),
        ranges=_angle,
    ),
    "AngularLoss-wide": Entry(losses.AngularLoss(75.0)),
    "AngularTripletLoss": Entry(
        losses.AngularTripletLoss(20.0),
        golden=("angular_triplet",),
        ranges=_angle | _average,
    ),
    "AngularTripletLoss-active": Entry(
        losses.AngularTripletLoss(20.0, average="active")
    ),
    "ArcFaceLoss": Entry(
        losses.ArcFaceLoss(),
        ranges={
            "scale": SCALE,
            "margin": ((-0.1, 1.6, NAN), "must be an angle of 0 to pi / 2"),
        },
        **_proxy,
    ),
    "BalancedContrastiveLoss": Entry(
        losses.BalancedContrastiveLoss(COUNTS, **_design),
        golden=("weighted_contrastive_batch", "weighted_contrastive_pairs"),
        ranges={
            "class_counts": (([0, 0], [3, -4]), "must be at least 0, with images"),
            "images_per_class": ((None,), "describe one design: give both or neither"),
            "balance": AT_LEAST_ZERO,
        },
        **_counted,
    ),
    "BIERLoss": Entry(
        losses.BIERLoss([1, 2, 3]),
        costs_without=BOTH,
        ranges=_scales
        | {"threshold": THRESHOLD, "learners": (((), [], "6", 6), "must be the le")},
    ),
    "BinomialDevianceLoss": Entry(
        losses.BinomialDevianceLoss(),
        costs_without=BOTH,
        golden=("binomial_deviance",),
        ranges=_scales | {"threshold": THRESHOLD, "per_anchor": BOOLEAN},
    ),
    "BinomialDevianceLoss-pairs": Entry(
        losses.BinomialDevianceLoss(per_anchor=False),
        costs_without=BOTH,
        golden=("binomial_deviance_yi",),
    ),
    "BoundarySampledLoss": Entry(
        losses.BoundarySampledLoss(losses.TripletLoss()),
        jumps=True,
        ranges={"k": WHOLE, "margin": AT_LEAST_ZERO},
    ),
    "BoundarySampledLoss-cosines": Entry(
        losses.BoundarySampledLoss(losses.NTXentLoss(), k=2, margin=0.3), jumps=True
    ),
    "CircleLoss": Entry(
        losses.CircleLoss(), ranges={"scale": SCALE, "margin": FRACTION}
    ),
    "ClusteringLoss": Entry(
        losses.ClusteringLoss(),
        of_batch=True,
        jumps=True,
        ranges={
            "margin": ((-0.1, NAN, "2", 1e4), "must be at least 0 and at most 1000"),
            "rounds": ((-1, 1.5, True), "must be a whole number of at least 0"),
        },
    ),
    "ContinuousTripletLoss": Entry(
        losses.ContinuousTripletLoss(),
        ids="scale",
        costs_without=("positives",),
        ranges=_lengths | _label_distance | {"threshold": NOT_NEGATIVE},
    ),
    # Labels are whole numbers, so that only equal ones are within the threshold.
    "ContinuousTripletLoss-threshold": Entry(
        losses.ContinuousTripletLoss(0.2, threshold=0.5), ids="scale"
    ),
    "ContinuousTripletLoss-neighbors": Entry(
        losses.ContinuousTripletLoss(0.2, neighbors=3),
        ids="scale",
        costs_without=("positives",),
        ranges={"neighbors": WHOLE},
    ),
    "ContrastiveLoss": Entry(
        losses.ContrastiveLoss(),
        costs_without=BOTH,
        golden=("contrastive",),
        ranges={"margin": ABOVE_ZERO, "separate_means": BOOLEAN, **_rows},
    ),
    "ContrastiveLoss-raw": Entry(
        losses.ContrastiveLoss(3.0, separate_means=True, normalize=False),
        costs_without=BOTH,
        uses_length=True,
    ),
    "CosFaceLoss": Entry(
        losses.CosFaceLoss(),
        ranges={"scale": SCALE, "margin": AT_LEAST_ZERO},
        **_proxy,
    ),
    "CosineContrastiveLoss": Entry(
        losses.CosineContrastiveLoss(),
        costs_without=BOTH,
        golden=("contrastive_similarity",),
        ranges={"threshold": ((-1.1, 1.5, NAN), "must be a cosine similarity")},
    ),
    "CosineLiftedStructureLoss": Entry(
        losses.CosineLiftedStructureLoss(),
        golden=("lifted_similarity",),
        ranges=_scales | {"threshold": THRESHOLD},
    ),
    "DistanceWeightedLearnedMarginLoss": Entry(
        losses.DistanceWeightedLearnedMarginLoss(CLASSES, nu=0.1),
        make_head=_boundaries,
        ids="rows",
        ranges=_cutoffs,
    ),
    "DistanceWeightedMarginLoss": Entry(
        losses.DistanceWeightedMarginLoss(), ranges=_sides | _drawn
    ),
    "DistanceWeightedTripletLoss": Entry(
        losses.DistanceWeightedTripletLoss(),
        golden=("triplet_distance_weighted_expected",),
        ranges=_drawn | {"margin": AT_LEAST_ZERO, "distance": CHOICE},
    ),
    "FastAPLoss": Entry(losses.FastAPLoss(), ranges={"num_bins": WHOLE}),
    "GeneralizedLiftedStructureLoss": Entry(
        losses.GeneralizedLiftedStructureLoss(),
        golden=("lifted_generalized",),
        ranges={"margin": ABOVE_ZERO, **_rows},
    ),
    "HardTripletLoss": Entry(
        losses.HardTripletLoss(),
        golden=("triplet_batch_hard",),
        ranges=_lengths | {"soft": BOOLEAN},
    ),
    "HardTripletLoss-soft": Entry(
        losses.HardTripletLoss(0.0, soft=True, distance="euclidean", normalize=False),
        **_raw,
    ),
    "HierarchicalAPLoss": Entry(
        losses.HierarchicalAPLoss(),
        jumps=True,
        ranges=_rank_step | {"alpha": ((-0.1, 10.1, NAN), "must be from 0 to 10")},
    ),
    "HistogramLoss": Entry(
        losses.HistogramLoss(),
        golden=("histogram_loss",),
        ranges={"bin_width": ((0.0, -0.1, 9e-5, 1.5, NAN), "must be from 0.0001 to 1")},
    ),
    "LearnedMarginLoss": Entry(
        losses.LearnedMarginLoss(CLASSES, nu=0.1),
        make_head=_boundaries,
        ids="rows",
        costs_without=BOTH,
        golden=("margin_loss_pairs",),
        ranges={
            "num_classes": WHOLE,
            "alpha": DISTANCE,
            "nu": AT_LEAST_ZERO,
            **_average,
        },
    ),
    "LearnedPairwiseSigmoidLoss": Entry(
        losses.LearnedPairwiseSigmoidLoss(),
        make_head=_scale_and_bias,
        costs_without=BOTH,
    ),
    "LiftedStructureLoss": Entry(
        losses.LiftedStructureLoss(),
        golden=("lifted_structure",),
        ranges={"margin": ABOVE_ZERO, **_rows},
    ),
    "LogRatioLoss": Entry(
        losses.LogRatioLoss(),
        ids="scale",
        costs_without=("positives",),
        golden=("log_ratio",),
        ranges=_label_distance | {"epsilon": AT_LEAST_ZERO},
        **_raw,
    ),
    "MarginLoss": Entry(
        losses.MarginLoss(),
        costs_without=BOTH,
        golden=("margin_loss_pairs", "margin_loss_triplets"),
        ranges=_sides,
    ),
    "MatryoshkaLoss": Entry(
        losses.MatryoshkaLoss(
            losses.ContrastiveLoss(), dimensions=PREFIXES, weights=(1.0, 0.5, 2.0)
        ),
        costs_without=BOTH,
        ranges={
            "dimensions": (
                ((), "128", 128, (4, 2, 6), (2, 2, 6), (0, 6), (2.5, 6)),
                "must",
            ),
            "weights": (
                ((1.0, 2.0), 1.0, (0, 0, 0), (1, -1, 1), (1, NAN, 1), "abc"),
                "must",
            ),
        },
    ),
    "MatryoshkaLoss-proxies": Entry(
        losses.MatryoshkaLoss(losses.ProxyAnchorLoss(), dimensions=PREFIXES),
        make_head=_nested_proxies,
        ids="rows",
        costs_without=BOTH,
    ),
    "MultiClassAngularLoss": Entry(
        losses.MultiClassAngularLoss(),
        ordered=True,
        golden=("angular_mc", "angular_mc in turn"),
        ranges=_angle,
    ),
    "MultiClassNPairLoss": Entry(
        losses.MultiClassNPairLoss(),
        ordered=True,
        golden=("npair_mc",),
        ranges={"l2_weight": AT_LEAST_ZERO, "symmetric": BOOLEAN, **_rows},
        **_raw,
    ),
    "MultiSimilarityLoss": Entry(
        losses.MultiSimilarityLoss(),
        jumps=True,
        golden=("multi_similarity",),
        ranges={
            **_scales,
            "threshold": THRESHOLD,
            "epsilon": THRESHOLD,
            "mining": BOOLEAN,
        },
    ),
    "MultiSimilarityLoss-all": Entry(
        losses.MultiSimilarityLoss(mining=False), costs_without=BOTH
    ),
    "NCALoss": Entry(
        losses.NCALoss(),
        golden=("nca",),
        ranges={"scale": SCALE, "euclidean": BOOLEAN},
    ),
    "NCALoss-euclidean": Entry(losses.NCALoss(euclidean=True), **_raw),
    "NPairLoss": Entry(
        losses.NPairLoss(normalize=True),
        golden=("npair_all_pairs", "npair_tuple", "npair_mc of a gallery"),
        ranges={"l2_weight": AT_LEAST_ZERO, **_rows},
    ),
    "NPairLoss-l2": Entry(
        losses.NPairLoss(l2_weight=0.01), costs_without=BOTH, uses_length=True
    ),
    "NTXentLoss": Entry(losses.NTXentLoss(), ranges={"temperature": SCALE}),
    "PairWeightedLoss": Entry(
        losses.PairWeightedLoss(losses.binlifted_weights), costs_without=BOTH
    ),
    "PNPLoss": Entry(
        losses.PNPLoss(),
        ranges={
            "variant": CHOICE,
            "temperature": SCALE,
            "power": ((0.5, 101, NAN), "must be from 1 to 100"),
            "bend": ((0.0, 101, NAN), "must be from 0.01 to 100"),
        },
    ),
    "PNPLoss-I_b": Entry(losses.PNPLoss("I_b")),
    "PairwiseSigmoidLoss": Entry(
        losses.PairwiseSigmoidLoss(4.0, bias=-2.0),
        costs_without=BOTH,
        ranges={"scale": SCALE, "bias": THRESHOLD},
    ),
    "ProxyAnchorLoss": Entry(
        losses.ProxyAnchorLoss(),
        golden=("proxy_anchor",),
        ranges={"scale": SCALE, "margin": AT_LEAST_ZERO, "normalizer": CHOICE},
        **_proxy,
    ),
    "ProxyAnchorLoss-present": Entry(
        losses.ProxyAnchorLoss(16.0, margin=0.2, normalizer="with_negatives"), **_proxy
    ),
    "ProxyNCALoss": Entry(
        losses.ProxyNCALoss(),
        golden=("proxy_nca",),
        ranges={
            "scale": ((0.0, NAN, 9e-3, 101), "must be from 0.01 to 100"),
            "include_positive": BOOLEAN,
            "smoothing": ((0.1,), "must be 0 without include_positive=True"),
        },
        **_proxy,
    ),
    "ProxyNCAPlusPlusLoss": Entry(
        losses.ProxyNCAPlusPlusLoss(), ranges={"temperature": SCALE}, **_proxy
    ),
    "ProxyNCALoss-softmax": Entry(
        losses.ProxyNCALoss(include_positive=True, smoothing=0.1),
        ranges={"smoothing": FRACTION},
        **_proxy,
    ),
    "RankedListLoss": Entry(
        losses.RankedListLoss(),
        costs_without=BOTH,
        ranges={
            "alpha": DISTANCE,
            "margin": DISTANCE,
            "scale": SCALE,
            "negative_weight": AT_LEAST_ZERO,
        },
    ),
    "RecallAtKLoss": Entry(
        losses.RecallAtKLoss(),
        costs_without=("negatives",),
        ranges={
            "k": ((0, "12", (), (2, 1)), "must "),
            "temperature": SCALE,
            "rank_temperature": ((0.0, 0.09, NAN, 1e5), "must be from 0.1 to 10000"),
            "simix": ((-1, 1.5, True), "must be a whole number of at least 0"),
        },
    ),
    "RecallAtKLoss-simix": Entry(
        losses.RecallAtKLoss(simix=2), costs_without=("negatives",), ordered=True
    ),
    "ROADMAPLoss": Entry(
        losses.ROADMAPLoss(),
        costs_without=BOTH,
        jumps=True,
        ranges={
            "calibration_weight": AT_LEAST_ZERO,
            "positive_threshold": _cosine,
            "negative_threshold": _cosine,
        },
    ),
    "SemiHardTripletLoss": Entry(
        losses.SemiHardTripletLoss(),
        jumps=True,
        golden=("triplet_semihard",),
        ranges=_lengths,
    ),
    "SemiHardWindowTripletLoss": Entry(
        losses.SemiHardWindowTripletLoss(),
        jumps=True,
        golden=("triplet_semihard_window",),
        ranges=_lengths,
    ),
    "SmoothAPLoss": Entry(losses.SmoothAPLoss(), ranges={"temperature": SCALE}),
    "SoftTripleLoss": Entry(
        losses.SoftTripleLoss(),
        make_head=_several_proxies,
        ids="rows",
        costs_without=BOTH,
        golden=("soft_triple",),
        ranges={
            "scale": SCALE,
            "temperature": SCALE,
            "margin": AT_LEAST_ZERO,
        },
    ),
    "SupAPLoss": Entry(losses.SupAPLoss(), jumps=True, ranges=_rank_step),
    "SubCenterArcFaceLoss": Entry(
        losses.SubCenterArcFaceLoss(),
        make_head=_several_proxies,
        ids="rows",
        costs_without=BOTH,
    ),
    "SupervisedContrastiveLoss": Entry(
        losses.SupervisedContrastiveLoss(),
        costs_without=("negatives",),
        ranges={"temperature": SCALE},
    ),
    "ThresholdConsistentMarginLoss": Entry(
        losses.ThresholdConsistentMarginLoss(losses.MultiSimilarityLoss(mining=False)),
        costs_without=BOTH,
        jumps=True,
        ranges={
            "positive_margin": ((-1.1, 1.5, NAN), "must be from -1 to 1"),
            "negative_margin": ((-1.1, 1.5, NAN), "must be from -1 to 1"),
            "positive_weight": AT_LEAST_ZERO,
            "negative_weight": AT_LEAST_ZERO,
        },
    ),
    "TopKPrecisionLoss": Entry(
        losses.TopKPrecisionLoss(),
        golden=("topk_precision_loss",),
        ranges={"k": WHOLE, "margin": AT_LEAST_ZERO, "rank_weights": BOOLEAN},
    ),
    "TopKPrecisionLoss-2": Entry(losses.TopKPrecisionLoss(k=2, margin=0.3)),
    "TopKPrecisionLoss-ranks": Entry(
        losses.TopKPrecisionLoss(k=2, rank_weights=True), jumps=True
    ),
    "TripletLoss": Entry(
        losses.TripletLoss(), golden=("triplet_all",), ranges=_lengths | _average
    ),
    "TripletLoss-active": Entry(
        losses.TripletLoss(0.3, distance="cosine", average="active"),
        ranges={"normalize": ((False,), "must be True with distance=")},
    ),
    "WeightedContrastiveLoss": Entry(
        losses.WeightedContrastiveLoss(COUNTS, **_design),
        golden=("weighted_contrastive_batch", "weighted_contrastive_pairs"),
        ranges=_counts,
        **_counted,
    ),
    "tfa.LiftedStructLoss": Entry(
        tfa.LiftedStructLoss(), ranges={"margin": ABOVE_ZERO}, **_raw
    ),
    "tfa.NpairsLoss": Entry(
        tfa.NpairsLoss(), make_head=_similarities, costs_without=BOTH, uses_length=True
    ),
    "tfa.TripletHardLoss": Entry(
        tfa.TripletHardLoss(),
        ranges=_metric | {"margin": NOT_NEGATIVE, "soft": BOOLEAN},
        **_raw,
    ),
    "tfa.TripletSemiHardLoss": Entry(
        tfa.TripletSemiHardLoss(),
        jumps=True,
        ranges=_metric | {"margin": NOT_NEGATIVE},
        **_raw,
    ),
}


QUICK = {
    "ArcFaceLoss",
    "ContrastiveLoss",
    "FastAPLoss",
    "HardTripletLoss",
    "LiftedStructureLoss",
    "LogRatioLoss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "NCALoss",
    "NPairLoss",
    "NTXentLoss",
    "ProxyAnchorLoss",
    "SoftTripleLoss",
    "TopKPrecisionLoss",
    "WeightedContrastiveLoss",
    "tfa.TripletHardLoss",
}
"""One of each family: TensorFlow takes a second or more to compile a loss."""


def every_loss(holds: Callable[[Entry], bool] = lambda entry: True) -> Any:
    """Return a decorator for tests of `entry`, over the losses that `holds`.

    Those that are not `QUICK` are marked as slow.
    """
    return pytest.mark.parametrize(
        "entry",
        [
            pytest.param(
                entry, id=name, marks=[] if name in QUICK else pytest.mark.slow
            )
            for name, entry in ENTRIES.items()
            if holds(entry)
        ],
    )
