"""Every loss with what it needs to see a batch: the table of the common tests.

Batches hold class ids from 0 to 9, and embeddings of `DIMENSION` components. What
stands between the embeddings and the loss, such as proxies, is the `head` of an entry.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from tfdml import losses, tfa
from tfdml.layers import ClassBoundaries, Proxies

CLASSES = 10
DIMENSION = 6
COUNTS = [4, 9, 14, 19, 7, 30, 4, 5, 12, 8]


@dataclasses.dataclass(eq=False)
class Entry:
    """A loss and how the common tests apply to it.

    Attributes:
        loss: The loss.
        make_head: Makes a new head; None: the loss takes the embeddings.
        ids: `"any"`: labels are names. `"rows"`: they number the columns of the head.
            `"counted"`: the loss knows the number of images of each. `"scale"`: they
            are points on a line.
        costs_without: The kinds of pairs, "positives" and "negatives", without which
            the loss still costs something, by its definition.
        uses_length: Whether the length of the embeddings counts.
        ordered: Whether the order of the rows of a class says what they are.
        jumps: Whether the loss jumps where two distances are equal.
    """

    loss: keras.losses.Loss
    make_head: Callable[[], Callable[[Any], Any]] | None = None
    ids: str = "any"
    costs_without: tuple[str, ...] = ()
    uses_length: bool = False
    ordered: bool = False
    jumps: bool = False

    def __post_init__(self) -> None:
        # The head of batches that no model made; it is never trained.
        self.head = self.make_head and self.make_head()
        if isinstance(self.head, keras.Layer):
            self.head.trainable = False

    def outputs(self, embeddings: Any) -> Any:
        """Return what the loss takes as `y_pred`."""
        return embeddings if self.head is None else self.head(embeddings)

    def value(self, labels: Any, embeddings: Any, **changes: Any) -> Any:
        """Return the loss of a batch, with some arguments of the loss changed."""
        loss = rebuilt(self.loss, **changes) if changes else self.loss
        return loss(labels, self.outputs(embeddings))


def rebuilt(loss: keras.losses.Loss, **changes: Any) -> keras.losses.Loss:
    """Return the loss with some arguments changed."""
    return type(loss).from_config({**loss.get_config(), **changes})


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


def _boundaries() -> keras.Layer:
    return _built(ClassBoundaries(CLASSES), np.linspace(0.6, 1.4, CLASSES))


def _similarities() -> Callable[[Any], Any]:
    return lambda embeddings: ops.matmul(embeddings, ops.transpose(embeddings))


BOTH = ("positives", "negatives")
_raw = {"uses_length": True}
_proxy = {"make_head": _proxies, "ids": "rows", "costs_without": BOTH}
_counted = {"ids": "counted", "costs_without": BOTH}

ENTRIES = {
    "AngularLoss": Entry(losses.AngularLoss()),
    "AngularLoss-wide": Entry(losses.AngularLoss(75.0)),
    "AngularTripletLoss": Entry(losses.AngularTripletLoss(20.0)),
    "AngularTripletLoss-active": Entry(
        losses.AngularTripletLoss(20.0, average="active")
    ),
    "ArcFaceLoss": Entry(losses.ArcFaceLoss(), **_proxy),
    "BalancedContrastiveLoss": Entry(
        losses.BalancedContrastiveLoss(COUNTS, images_per_class=2, classes_per_batch=3),
        **_counted,
    ),
    "BinomialDevianceLoss": Entry(losses.BinomialDevianceLoss(), costs_without=BOTH),
    "BinomialDevianceLoss-pairs": Entry(
        losses.BinomialDevianceLoss(per_anchor=False), costs_without=BOTH
    ),
    "CircleLoss": Entry(losses.CircleLoss()),
    "ContinuousTripletLoss": Entry(
        losses.ContinuousTripletLoss(), ids="scale", costs_without=("positives",)
    ),
    # Labels are whole numbers, so that only equal ones are within the threshold.
    "ContinuousTripletLoss-threshold": Entry(
        losses.ContinuousTripletLoss(0.2, threshold=0.5), ids="scale"
    ),
    "ContrastiveLoss": Entry(losses.ContrastiveLoss(), costs_without=BOTH),
    "ContrastiveLoss-raw": Entry(
        losses.ContrastiveLoss(3.0, separate_means=True, normalize=False),
        costs_without=BOTH,
        uses_length=True,
    ),
    "CosFaceLoss": Entry(losses.CosFaceLoss(), **_proxy),
    "CosineContrastiveLoss": Entry(losses.CosineContrastiveLoss(), costs_without=BOTH),
    "CosineLiftedStructureLoss": Entry(losses.CosineLiftedStructureLoss()),
    "DistanceWeightedMarginLoss": Entry(losses.DistanceWeightedMarginLoss()),
    "DistanceWeightedTripletLoss": Entry(losses.DistanceWeightedTripletLoss()),
    "FastAPLoss": Entry(losses.FastAPLoss()),
    "GeneralizedLiftedStructureLoss": Entry(losses.GeneralizedLiftedStructureLoss()),
    "HardTripletLoss": Entry(losses.HardTripletLoss()),
    "HardTripletLoss-soft": Entry(
        losses.HardTripletLoss(0.0, soft=True, distance="euclidean", normalize=False),
        **_raw,
    ),
    "HistogramLoss": Entry(losses.HistogramLoss()),
    "LearnedMarginLoss": Entry(
        losses.LearnedMarginLoss(CLASSES, nu=0.1),
        make_head=_boundaries,
        ids="rows",
        costs_without=BOTH,
    ),
    "LiftedStructureLoss": Entry(losses.LiftedStructureLoss()),
    "LogRatioLoss": Entry(
        losses.LogRatioLoss(), ids="scale", costs_without=("positives",), **_raw
    ),
    "MarginLoss": Entry(losses.MarginLoss(), costs_without=BOTH),
    "MultiClassAngularLoss": Entry(losses.MultiClassAngularLoss(), ordered=True),
    "MultiClassNPairLoss": Entry(losses.MultiClassNPairLoss(), ordered=True, **_raw),
    "MultiSimilarityLoss": Entry(losses.MultiSimilarityLoss(), jumps=True),
    "MultiSimilarityLoss-all": Entry(
        losses.MultiSimilarityLoss(mining=False), costs_without=BOTH
    ),
    "NCALoss": Entry(losses.NCALoss()),
    "NCALoss-euclidean": Entry(losses.NCALoss(euclidean=True), **_raw),
    "NPairLoss": Entry(losses.NPairLoss(normalize=True)),
    "NPairLoss-l2": Entry(
        losses.NPairLoss(l2_weight=0.01), costs_without=BOTH, uses_length=True
    ),
    "NTXentLoss": Entry(losses.NTXentLoss()),
    "PairWeightedLoss": Entry(
        losses.PairWeightedLoss(losses.binlifted_weights), costs_without=BOTH
    ),
    "ProxyAnchorLoss": Entry(losses.ProxyAnchorLoss(), **_proxy),
    "ProxyAnchorLoss-present": Entry(
        losses.ProxyAnchorLoss(16.0, margin=0.2, normalizer="with_negatives"), **_proxy
    ),
    "ProxyNCALoss": Entry(losses.ProxyNCALoss(), **_proxy),
    "ProxyNCALoss-softmax": Entry(
        losses.ProxyNCALoss(include_positive=True, smoothing=0.1), **_proxy
    ),
    "SemiHardTripletLoss": Entry(losses.SemiHardTripletLoss(), jumps=True),
    "SemiHardWindowTripletLoss": Entry(losses.SemiHardWindowTripletLoss(), jumps=True),
    "SmoothAPLoss": Entry(losses.SmoothAPLoss()),
    "SoftTripleLoss": Entry(
        losses.SoftTripleLoss(),
        make_head=_several_proxies,
        ids="rows",
        costs_without=BOTH,
    ),
    "SupervisedContrastiveLoss": Entry(
        losses.SupervisedContrastiveLoss(), costs_without=("negatives",)
    ),
    "TopKPrecisionLoss": Entry(losses.TopKPrecisionLoss()),
    "TopKPrecisionLoss-2": Entry(losses.TopKPrecisionLoss(k=2, margin=0.3)),
    "TripletLoss": Entry(losses.TripletLoss()),
    "TripletLoss-active": Entry(
        losses.TripletLoss(0.3, distance="cosine", average="active")
    ),
    "WeightedContrastiveLoss": Entry(
        losses.WeightedContrastiveLoss(COUNTS, images_per_class=2, classes_per_batch=3),
        **_counted,
    ),
    "tfa.LiftedStructLoss": Entry(tfa.LiftedStructLoss(), **_raw),
    "tfa.NpairsLoss": Entry(
        tfa.NpairsLoss(), make_head=_similarities, costs_without=BOTH, uses_length=True
    ),
    "tfa.TripletHardLoss": Entry(tfa.TripletHardLoss(), **_raw),
    "tfa.TripletSemiHardLoss": Entry(tfa.TripletSemiHardLoss(), jumps=True, **_raw),
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


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Return labels and embeddings: four of each of four classes."""
    random = np.random.default_rng(7)
    labels = np.repeat([3, 5, 8, 9], 4)
    centres = random.normal(size=(CLASSES, DIMENSION))
    embeddings = centres[labels] + random.normal(size=(16, DIMENSION))
    return labels, embeddings.astype("float32")
