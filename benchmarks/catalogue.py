"""List every loss of the library as it is timed, with the same loss of each peer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

import tfdml.losses as tl
from benchmarks.batches import (
    CENTERS,
    CLASS_SIZE,
    MEMORY,
    PROXIES,
    labels_of,
    random_rows,
)
from tfdml.layers import (
    CenterRegularizer,
    as_embeddings_with_boundaries,
    as_similarities,
)
from tfdml.models import CrossBatchMemory
from tfdml.ops import cosine_similarities


@dataclass(frozen=True)
class Problem:
    """A function to differentiate, and what it is given.

    Args:
        function: Maps the inputs to a scalar and whatever else it computes.
        inputs: Arrays.
        trained: The gradient is that of so many of the first inputs.
        product: The bare product of similarities that the loss needs, if that is not
            the one of the batch with itself.
    """

    function: Callable[..., tuple[Any, Any]]
    inputs: Sequence[np.ndarray]
    trained: int = 1
    product: "Problem | None" = None


@dataclass(frozen=True)
class Case:
    """A loss to time.

    Args:
        name: The class in `tfdml.losses`, with a remark where it is timed twice.
        build: Makes the problem for a batch size and a dimension.
        sorts: Whether the definition ranks or compares triplets.
        pml: Name of the same loss in `benchmarks/peer_pml.py`, None if it has none.
        tfa: The same of `benchmarks/peer_tfa.py`.
    """

    name: str
    build: Callable[[int, int], Problem]
    sorts: bool = False
    pml: str | None = None
    tfa: str | None = None


def similarity_product(
    batch: int, dimension: int, gallery: int | None = None, trained: int = 2
) -> Problem:
    """Make the floor: the bare product of similarities, with random weights.

    Args:
        batch: Rows of the embeddings.
        dimension: Their components.
        gallery: Rows of a gallery of its own; without it the batch is its own gallery.
        trained: 2 if the gallery has a gradient too, else 1.
    """
    rows = random_rows(batch, dimension)
    if gallery is None:
        return Problem(
            lambda x, weights: (ops.sum(cosine_similarities(x, x) * weights), ()),
            [rows, random_rows(batch, batch)],
        )
    return Problem(
        lambda x, g, weights: (ops.sum(cosine_similarities(x, g) * weights), ()),
        [rows, random_rows(gallery, dimension, seed=1), random_rows(batch, gallery)],
        trained=trained,
    )


def _on_embeddings(
    make_loss: Callable[[], tl.MetricLoss], class_size: int = CLASS_SIZE
) -> Callable[[int, int], Problem]:
    """Time a loss on labels and embeddings, `class_size` rows of each class."""

    def build(batch: int, dimension: int) -> Problem:
        loss = make_loss()
        return Problem(
            lambda x, labels: (loss(labels, x), ()),
            [random_rows(batch, dimension), labels_of(batch, size=class_size)],
        )

    return build


def _on_proxies(
    make_loss: Callable[[], tl.ProxyLoss],
    centers: int = 1,
    penalty: Callable[[Any], Any] | None = None,
) -> Callable[[int, int], Problem]:
    """Time a loss on embeddings and PROXIES classes of proxies; both are trained."""

    def build(batch: int, dimension: int) -> Problem:
        loss = make_loss()

        def function(x: Any, proxies: Any, labels: Any) -> tuple[Any, Any]:
            similarities = cosine_similarities(x, proxies)
            if centers > 1:
                similarities = ops.reshape(similarities, (-1, PROXIES, centers))
            value = loss(labels, as_similarities(similarities))
            if penalty is not None:
                value += penalty(ops.reshape(proxies, (PROXIES, centers, dimension)))
            return value, ()

        rows = random_rows(batch, dimension)
        proxies = random_rows(PROXIES * centers, dimension, seed=1)
        return Problem(
            function,
            [rows, proxies, labels_of(batch, PROXIES)],
            trained=2,
            product=similarity_product(batch, dimension, PROXIES * centers),
        )

    return build


def _on_boundaries(
    kind: type[tl.LearnedMarginLoss],
) -> Callable[[int, int], Problem]:
    """Time a margin loss with the boundaries of the classes of the batch."""

    def build(batch: int, dimension: int) -> Problem:
        labels = labels_of(batch)
        classes = int(labels.max()) + 1
        loss = kind(classes)

        def function(x: Any, boundaries: Any, labels: Any) -> tuple[Any, Any]:
            columns = ops.broadcast_to(boundaries, (batch, classes))
            outputs = ops.concatenate([x, columns], axis=1)
            return loss(labels, as_embeddings_with_boundaries(outputs)), ()

        boundaries = np.full(classes, 1.2, "float32")
        return Problem(
            function, [random_rows(batch, dimension), boundaries, labels], trained=2
        )

    return build


def _on_poses(make_loss: Callable[[], tl.MetricLoss]) -> Callable[[int, int], Problem]:
    """Time a loss on continuous labels: poses of 16 joints in the plane."""

    def build(batch: int, dimension: int) -> Problem:
        loss = make_loss()
        return Problem(
            lambda x, poses: (loss(poses, x), ()),
            [random_rows(batch, dimension), random_rows(batch, 32, seed=1)],
        )

    return build


def _with_class_counts(loss: Callable[..., tl.MetricLoss]) -> Callable:
    """Time a loss that is given how many images each class has."""

    def build(batch: int, dimension: int) -> Problem:
        classes = -(-batch // CLASS_SIZE)
        counts = np.random.default_rng(classes).integers(4, 100, size=classes)
        design = {"images_per_class": CLASS_SIZE, "classes_per_batch": classes}
        return _on_embeddings(lambda: loss(counts.tolist(), **design))(batch, dimension)

    return build


def _memory(batch: int, dimension: int) -> Problem:
    """Time a training step's loss against a full memory, which then takes the batch."""
    inputs = keras.Input((dimension,))
    model = CrossBatchMemory(
        keras.Model(inputs, keras.layers.Identity()(inputs)), MEMORY
    )
    model.compile(loss=tl.ContrastiveLoss())
    variables = [
        model.past_embeddings,
        model.past_labels,
        model.filled,
        model.steps_seen,
    ]
    state = [
        random_rows(MEMORY, dimension, seed=1),
        labels_of(MEMORY),
        np.array(MEMORY),
        np.array(0),
    ]

    def function(x: Any, labels: Any, *values: Any) -> tuple[Any, Any]:
        with keras.StatelessScope(list(zip(variables, values, strict=True))) as scope:
            loss = model.compute_loss(y=labels, y_pred=x)
        return loss, [scope.get_current_value(variable) for variable in variables]

    values = [
        value.astype(keras.backend.standardize_dtype(variable.dtype))
        for variable, value in zip(variables, state, strict=True)
    ]
    return Problem(
        function,
        [random_rows(batch, dimension), labels_of(batch), *values],
        product=similarity_product(batch, dimension, batch + MEMORY, trained=1),
    )


CASES = [
    Case("TopKPrecisionLoss", _on_embeddings(tl.TopKPrecisionLoss), sorts=True),
    Case(
        "ContrastiveLoss",
        _on_embeddings(tl.ContrastiveLoss),
        pml="ContrastiveLoss",
        tfa="ContrastiveLoss",
    ),
    Case(
        "CosineContrastiveLoss",
        _on_embeddings(tl.CosineContrastiveLoss),
        pml="ContrastiveLoss(CosineSimilarity)",
    ),
    Case("WeightedContrastiveLoss", _with_class_counts(tl.WeightedContrastiveLoss)),
    Case("BalancedContrastiveLoss", _with_class_counts(tl.BalancedContrastiveLoss)),
    Case(
        "TripletLoss",
        _on_embeddings(tl.TripletLoss),
        sorts=True,
        pml="TripletMarginLoss",
    ),
    Case(
        "SemiHardTripletLoss",
        _on_embeddings(tl.SemiHardTripletLoss),
        sorts=True,
        tfa="TripletSemiHardLoss",
    ),
    Case(
        "SemiHardWindowTripletLoss",
        _on_embeddings(tl.SemiHardWindowTripletLoss),
        sorts=True,
        pml="TripletMarginLoss + TripletMarginMiner(semihard)",
    ),
    Case(
        "HardTripletLoss",
        _on_embeddings(tl.HardTripletLoss),
        pml="TripletMarginLoss + BatchHardMiner",
        tfa="TripletHardLoss",
    ),
    Case(
        "DistanceWeightedTripletLoss",
        _on_embeddings(tl.DistanceWeightedTripletLoss),
        sorts=True,
        pml="TripletMarginLoss + DistanceWeightedMiner",
    ),
    Case("MarginLoss", _on_embeddings(tl.MarginLoss), pml="MarginLoss"),
    Case(
        "DistanceWeightedMarginLoss",
        _on_embeddings(tl.DistanceWeightedMarginLoss),
        sorts=True,
        pml="MarginLoss + DistanceWeightedMiner",
    ),
    Case(
        "LearnedMarginLoss",
        _on_boundaries(tl.LearnedMarginLoss),
        pml="MarginLoss(learn_beta)",
    ),
    Case(
        "DistanceWeightedLearnedMarginLoss",
        _on_boundaries(tl.DistanceWeightedLearnedMarginLoss),
        sorts=True,
    ),
    Case("RankedListLoss", _on_embeddings(tl.RankedListLoss)),
    Case(
        "LiftedStructureLoss",
        _on_embeddings(tl.LiftedStructureLoss),
        pml="LiftedStructureLoss",
        tfa="LiftedStructLoss",
    ),
    Case(
        "GeneralizedLiftedStructureLoss",
        _on_embeddings(tl.GeneralizedLiftedStructureLoss),
        pml="GeneralizedLiftedStructureLoss",
    ),
    Case("CosineLiftedStructureLoss", _on_embeddings(tl.CosineLiftedStructureLoss)),
    Case("NPairLoss", _on_embeddings(tl.NPairLoss)),
    Case(
        "MultiClassNPairLoss",
        _on_embeddings(tl.MultiClassNPairLoss, 2),
        pml="NPairsLoss",
        tfa="NpairsLoss",
    ),
    Case("AngularLoss", _on_embeddings(tl.AngularLoss), pml="AngularLoss"),
    Case("MultiClassAngularLoss", _on_embeddings(tl.MultiClassAngularLoss, 2)),
    Case("AngularTripletLoss", _on_embeddings(tl.AngularTripletLoss), sorts=True),
    Case("NCALoss", _on_embeddings(tl.NCALoss), pml="NCALoss"),
    Case(
        "SupervisedContrastiveLoss",
        _on_embeddings(tl.SupervisedContrastiveLoss),
        pml="SupConLoss",
    ),
    Case("NTXentLoss", _on_embeddings(tl.NTXentLoss), pml="NTXentLoss"),
    Case("CircleLoss", _on_embeddings(tl.CircleLoss), pml="CircleLoss"),
    Case(
        "HistogramLoss",
        _on_embeddings(tl.HistogramLoss),
        sorts=True,
        pml="HistogramLoss",
    ),
    Case("FastAPLoss", _on_embeddings(tl.FastAPLoss), sorts=True, pml="FastAPLoss"),
    Case(
        "SmoothAPLoss", _on_embeddings(tl.SmoothAPLoss), sorts=True, pml="SmoothAPLoss"
    ),
    Case("BinomialDevianceLoss", _on_embeddings(tl.BinomialDevianceLoss)),
    Case(
        "MultiSimilarityLoss",
        _on_embeddings(tl.MultiSimilarityLoss),
        pml="MultiSimilarityLoss + MultiSimilarityMiner",
    ),
    Case(
        "MultiSimilarityLoss(mining=False)",
        _on_embeddings(lambda: tl.MultiSimilarityLoss(mining=False)),
        pml="MultiSimilarityLoss",
    ),
    Case(
        "PairWeightedLoss(binlifted_weights)",
        _on_embeddings(lambda: tl.PairWeightedLoss(tl.binlifted_weights)),
    ),
    Case("LogRatioLoss", _on_poses(tl.LogRatioLoss)),
    # Its dense triplets would take minutes a call at B = 4,096.
    Case(
        "ContinuousTripletLoss(threshold=50)",  # of distances around 64
        _on_poses(lambda: tl.ContinuousTripletLoss(0.2, threshold=50.0)),
        sorts=True,
    ),
    Case("ProxyAnchorLoss", _on_proxies(tl.ProxyAnchorLoss), pml="ProxyAnchorLoss"),
    Case("ProxyNCALoss", _on_proxies(tl.ProxyNCALoss), pml="ProxyNCALoss"),
    Case(
        "SoftTripleLoss",
        _on_proxies(tl.SoftTripleLoss, CENTERS),
        pml="SoftTripleLoss",
    ),
    Case(
        "SoftTripleLoss + CenterRegularizer",
        _on_proxies(tl.SoftTripleLoss, CENTERS, CenterRegularizer()),
        pml="SoftTripleLoss + SparseCentersRegularizer",
    ),
    Case("ArcFaceLoss", _on_proxies(tl.ArcFaceLoss), pml="ArcFaceLoss"),
    Case("CosFaceLoss", _on_proxies(tl.CosFaceLoss), pml="CosFaceLoss"),
    Case("ProxyNCAPlusPlusLoss", _on_proxies(tl.ProxyNCAPlusPlusLoss)),
    Case("SubCenterArcFaceLoss", _on_proxies(tl.SubCenterArcFaceLoss, 3)),
    Case(
        "TopKPrecisionLoss(rank_weights=True)",
        _on_embeddings(lambda: tl.TopKPrecisionLoss(rank_weights=True)),
        sorts=True,
    ),
    Case("RecallAtKLoss", _on_embeddings(tl.RecallAtKLoss), sorts=True),
    Case(
        "RecallAtKLoss(simix=2)",
        _on_embeddings(lambda: tl.RecallAtKLoss(simix=2)),
        sorts=True,
    ),
    Case("SupAPLoss", _on_embeddings(tl.SupAPLoss), sorts=True),
    Case("ROADMAPLoss", _on_embeddings(tl.ROADMAPLoss), sorts=True),
    Case("PNPLoss", _on_embeddings(tl.PNPLoss), sorts=True),
    Case("PairwiseSigmoidLoss", _on_embeddings(tl.PairwiseSigmoidLoss)),
    Case(
        "ThresholdConsistentMarginLoss(MultiSimilarityLoss)",
        _on_embeddings(
            lambda: tl.ThresholdConsistentMarginLoss(tl.MultiSimilarityLoss())
        ),
    ),
    Case(
        "CrossBatchMemory(ContrastiveLoss)",
        _memory,
        pml="CrossBatchMemory(ContrastiveLoss)",
    ),
]

# With more positives an anchor than they compare in turn, these go another way.
MANY_POSITIVES = [
    Case(f"{loss.__name__}, 512 per class", _on_embeddings(loss, 512), sorts=True)
    for loss in (
        tl.TripletLoss,
        tl.SemiHardTripletLoss,
        tl.SemiHardWindowTripletLoss,
        tl.DistanceWeightedTripletLoss,
    )
]
