"""Every loss in float32 against float64, at the ends of the ranges of its arguments."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest

from tests.support.all_losses import ENTRIES, QUICK
from tests.support.autodiff import BACKEND, JIT, differentiated, slow_on_jax
from tests.support.loss_entry import Entry, batch, rebuilt
from tfdml.losses import (
    AcrossReplicas,
    ContrastiveLoss,
    NPairLoss,
    query_gallery_loss,
)

pytestmark = pytest.mark.backend

SCALES = (1e-4, 1e-3, 2000.0, 1e4)
TEMPERATURES = (1e-4, 1e-3, 1.0, 1e4)
MARGINS = (1e-3, 2.0, 1e3, 1e12)
DISTANCES = (0.0, 1e-3, 2.0, 10.0)
THRESHOLDS = (-1e12, -1e3, -1.0, 0.0, 1.0, 1e3, 1e12)
WEIGHTS = (0.0, 1e-3, 10.0, 1e6)
ANGLES = (1e-3, 1.0, 60.0, 70.0, 71.0, 80.0, 85.0, 89.0)
BOTH_SCALES = {"positive_scale": SCALES, "negative_scale": SCALES}
_any_distance = {
    "distance": ("squared_euclidean", "euclidean", "cosine"),
    "margin": (0.0, *MARGINS),
}
_rank_step = {
    "temperature": TEMPERATURES,
    "slope": (0.0, 1e4),
    "delta": (0.0, 2.0),
    "jump": (0.0, 1.0),
}
_cutoffs = {"cutoff": (0.001, 0.1, 1.3), "nonzero_loss_cutoff": (1.95, 1e300, None)}
_drawn = _cutoffs | {"dimension": (2, 3, 512, 8192)}

# One argument at a time is changed, the others are those of the entry.
EXTREMES: dict[str, dict[str, tuple[Any, ...]]] = {
    "ABELoss": {
        "heads": (1, 6),
        "margin": DISTANCES,
        "divergence": WEIGHTS,
        "divergence_margin": DISTANCES,
    },
    "AngularLoss": {"angle": ANGLES},
    "AngularTripletLoss": {"angle": ANGLES},
    "AngularTripletLoss-active": {"angle": ANGLES},
    "ArcFaceLoss": {"scale": SCALES, "margin": (0.0, 1e-3, 1.0, math.pi / 2)},
    "BalancedContrastiveLoss": {"balance": WEIGHTS, "margin": MARGINS},
    "BIERLoss": {**BOTH_SCALES, "threshold": THRESHOLDS},
    "BinomialDevianceLoss": {**BOTH_SCALES, "threshold": THRESHOLDS},
    "BinomialDevianceLoss-pairs": {**BOTH_SCALES, "threshold": THRESHOLDS},
    "BoundarySampledLoss": {"k": (1, 20), "margin": (0.0, *MARGINS)},
    "CircleLoss": {"scale": SCALES, "margin": (0.0, 0.1, 0.9, 0.999)},
    "ClusteringLoss": {"margin": (0.0, 1e-3, 10.0, 1e3), "rounds": (0, 20)},
    "ContinuousTripletLoss": _any_distance,
    "ContinuousTripletLoss-neighbors": _any_distance | {"neighbors": (1, 20)},
    "ContinuousTripletLoss-threshold": _any_distance | {"threshold": (0.0, 5.0)},
    "ContrastiveLoss": {"margin": MARGINS},
    "ContrastiveLoss-raw": {"margin": MARGINS},
    "CosFaceLoss": {"scale": SCALES, "margin": (0.0, *MARGINS)},
    "CosineContrastiveLoss": {"threshold": (-1.0, 0.0, 1.0)},
    "CosineLiftedStructureLoss": {**BOTH_SCALES, "threshold": THRESHOLDS},
    "DistanceWeightedLearnedMarginLoss": {
        "alpha": DISTANCES,
        "nu": WEIGHTS,
        **_cutoffs,
    },
    "DistanceWeightedMarginLoss": {"alpha": DISTANCES, "beta": DISTANCES, **_drawn},
    "DistanceWeightedTripletLoss": _any_distance | _drawn,
    "FastAPLoss": {"num_bins": (1, 100)},
    "GeneralizedLiftedStructureLoss": {"margin": MARGINS},
    "HardTripletLoss": _any_distance,
    "HardTripletLoss-soft": {"margin": (0.0, *MARGINS)},
    "HierarchicalAPLoss": {"alpha": (0.0, 10.0), **_rank_step},
    "HistogramLoss": {"bin_width": (0.1, 1.0)},
    "LearnedMarginLoss": {"alpha": DISTANCES, "nu": WEIGHTS},
    "LiftedStructureLoss": {"margin": MARGINS},
    "LogRatioLoss": {"epsilon": (0.0, 1e-12, 1.0, 1e12)},
    "MarginLoss": {"alpha": DISTANCES, "beta": DISTANCES},
    # Of two components, unit vectors may be too near each other.
    "MatryoshkaLoss": {"weights": ((0.0, 0.0, 1e-3), (0.0, 1e6, 1.0))},
    "MultiClassAngularLoss": {"angle": ANGLES},
    "MultiClassNPairLoss": {"l2_weight": WEIGHTS, "symmetric": (True,)},
    "MultiSimilarityLoss": {**BOTH_SCALES, "epsilon": THRESHOLDS},
    "MultiSimilarityLoss-all": {**BOTH_SCALES, "threshold": THRESHOLDS},
    "NCALoss": {"scale": SCALES},
    "NCALoss-euclidean": {"scale": SCALES},
    "NPairLoss-l2": {"l2_weight": WEIGHTS},
    "NTXentLoss": {"temperature": TEMPERATURES},
    "PairwiseSigmoidLoss": {"scale": SCALES, "bias": THRESHOLDS},
    "PairWeightedLoss": {"arguments": ({"alpha": 2e3}, {"beta": 2e3})},
    "ProxyAnchorLoss": {"scale": SCALES, "margin": (0.0, *MARGINS)},
    "ProxyAnchorLoss-present": {"scale": SCALES, "margin": (0.0, *MARGINS)},
    "ProxyNCALoss": {"scale": (0.01, 0.1, 30.0, 100.0)},
    "ProxyNCAPlusPlusLoss": {"temperature": TEMPERATURES},
    "ProxyNCALoss-softmax": {
        "scale": (0.01, 0.1, 30.0, 100.0),
        "smoothing": (1e-3, 0.9),
    },
    "RankedListLoss": {
        "alpha": DISTANCES,
        "margin": DISTANCES,
        "scale": SCALES,
        "negative_weight": WEIGHTS,
    },
    "PNPLoss": {"temperature": TEMPERATURES, "power": (1.0, 100.0)},
    "PNPLoss-I_b": {"bend": (0.01, 100.0)},
    "RecallAtKLoss": {"temperature": TEMPERATURES, "rank_temperature": (0.1, 1e4)},
    "RecallAtKLoss-simix": {"simix": (1, 20)},
    "ROADMAPLoss": {
        "calibration_weight": WEIGHTS,
        "positive_threshold": (-1.0, 1.0),
        "negative_threshold": (-1.0, 1.0),
    },
    "SemiHardTripletLoss": _any_distance,
    "SemiHardWindowTripletLoss": _any_distance,
    "SmoothAPLoss": {"temperature": TEMPERATURES},
    "SoftTripleLoss": {
        "scale": SCALES,
        "temperature": TEMPERATURES,
        "margin": (0.0, *MARGINS),
    },
    "SupAPLoss": _rank_step,
    "SupervisedContrastiveLoss": {"temperature": TEMPERATURES},
    "ThresholdConsistentMarginLoss": {
        "positive_margin": (-1.0, 0.5, 1.0),
        "negative_margin": (-1.0, 0.9, 1.0),
        "positive_weight": WEIGHTS,
        "negative_weight": WEIGHTS,
    },
    "TopKPrecisionLoss": {"k": (1, 20), "margin": (0.0, *MARGINS)},
    "TopKPrecisionLoss-ranks": {"k": (1, 20)},
    "TripletLoss": _any_distance,
    "TripletLoss-active": {"margin": (0.0, *MARGINS)},
    "WeightedContrastiveLoss": {"margin": MARGINS, "power": (-3.0, 0.0, 3.0)},
    "tfa.LiftedStructLoss": {"margin": MARGINS},
    "tfa.TripletHardLoss": {"margin": (0.0, *MARGINS)},
    "tfa.TripletSemiHardLoss": {"margin": (0.0, *MARGINS)},
}
"""Arguments of losses, and values at the ends of their ranges."""

LENGTHS = (1e-6, 1e-3, 1e3, 1e9, 1e12)
"""Lengths of embeddings that a loss which does not normalize must take."""

TOO_LONG = (1e13, 1e19, 1e38)
"""Lengths of embeddings that it refuses."""


def cases() -> Iterator[Any]:
    """Yield a loss of an entry for each value; `make test` runs the ends alone."""
    for name, arguments in EXTREMES.items():
        usual = [] if name in QUICK - {"FastAPLoss"} else [pytest.mark.slow]
        for argument, values in arguments.items():
            for value in values:
                rare = [] if value in (values[0], values[-1]) else [pytest.mark.full]
                yield pytest.param(
                    ENTRIES[name],
                    {argument: value},
                    id=f"{name}-{argument}={value}",
                    marks=[*usual, *rare],
                )


def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield labels and embeddings: far positives, near ones, and opposite ones."""
    labels, embeddings = batch()
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    yield labels, unit
    yield labels, (unit[labels % 4 * 4] + 0.2 * unit).astype("float32")
    signs = np.where(np.arange(len(labels)) % 2, 1, -1)[:, None]
    yield np.repeat([3, 5], 8), (signs * unit).astype("float32")


def computed(
    entry: Entry, loss: keras.losses.Loss, dtype: str
) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Return the value and gradient of a loss, all of it in one type."""
    loss, head = rebuilt(loss, dtype=dtype), entry.head
    if isinstance(head, keras.Layer):
        weights = [x.astype(dtype) for x in head.get_weights()]
        head = type(head).from_config({**head.get_config(), "dtype": dtype})
        head.build((None, batch()[1].shape[1]))
        head.set_weights(weights)
    both = differentiated(lambda x, y: loss(y, x if head is None else head(x)))
    return lambda labels, x: both(x.astype(dtype), labels.astype("int64"))


def gain(config: dict[str, Any]) -> float:
    """Return by how much the error of a cosine is multiplied in an exponent."""
    factors = [config.get("scale", 1), config.get("positive_scale", 1)]
    factors += [config.get("negative_scale", 1), 1 / config.get("temperature", 1)]
    factors += (config.get("arguments") or {}).values()
    if "include_positive" in config:  # Proxy-NCA's exponents have the scale squared
        factors.append(2 * config["scale"] ** 2)
    if "rounds" in config:  # a difference of two sums over the batch
        factors.append(16)
    if "angle" in config:
        factors.append(10 * math.tan(math.radians(config["angle"])) ** 2)
    factors += [config.get("dimension") or 1, config.get("num_bins", 1)]
    return max(factors)


def holds_digits(
    entry: Entry, loss: keras.losses.Loss, labels: np.ndarray, x: np.ndarray
) -> None:
    """Assert that float32 gives the value and the gradient of float64."""
    value, gradient = computed(entry, loss, "float32")(labels, x)
    exact, slopes = computed(entry, loss, "float64")(labels, x)
    config = loss.get_config()
    error = 2e-6 * (5 + gain(config))
    assert value == pytest.approx(exact, rel=error, abs=1e-6)
    assert np.isfinite(gradient).all()
    # Nothing is asked of a gradient that has all but vanished.
    largest = max(np.abs(slopes).max(), 1e-7 / np.abs(x).max())
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=error * largest)


@pytest.mark.parametrize(("entry", "changes"), list(cases()))
def test_float32_has_the_digits_of_float64(entry, changes):
    loss = rebuilt(entry.loss, **changes)
    for labels, x in batches():
        holds_digits(entry, loss, labels, x)


# The embeddings of `NpairsLoss` are multiplied before it.
RAW = [name for name, entry in ENTRIES.items() if entry.uses_length and not entry.head]
# Log-ratio compares ratios, for which it divides by the largest component.
LIMITED = [name for name in RAW if name != "LogRatioLoss"]
# Each says in its own way that it does not normalize.
CHECKED_ALONE = ("ContrastiveLoss-raw", "NCALoss-euclidean", "tfa.TripletHardLoss")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=slow_on_jax if n == "MultiClassNPairLoss" else [])
        for n in RAW
    ],
)
def test_float32_has_the_digits_of_float64_at_any_length(name):
    entry = ENTRIES[name]
    labels, x = next(batches())
    for length in (*LENGTHS, *([] if name in LIMITED else [1e30])):
        holds_digits(entry, entry.loss, labels, (length * x).astype("float32"))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in CHECKED_ALONE else [pytest.mark.full])
        for n in LIMITED
    ],
)
def test_embeddings_too_long_for_float32_are_refused(name):
    loss = ENTRIES[name].loss
    labels, x = batch()
    # If they were cut, rows of equal signs would be equal, and their loss small.
    assert_too_long(lambda x: loss(labels, x), x, np.abs(x))


def assert_too_long(function: Callable[[Any], Any], *batches: np.ndarray) -> None:
    """Assert that it refuses long rows, or is NaN where it cannot know values."""
    compiled = differentiated(lambda x: keras.ops.mean(function(x)), compiled=JIT[-1])
    for x in batches:
        for length in TOO_LONG:
            rows = (length * (x / np.abs(x).max())).astype("float32")
            assert np.isnan(compiled(rows)[0])
            if BACKEND != "torch":
                with pytest.raises(ValueError, match=r"at most 1e\+12 in size"):
                    function(keras.ops.convert_to_tensor(rows))


def test_embeddings_too_long_for_float32_are_refused_wherever_they_come_in():
    loss = ENTRIES["NPairLoss-l2"].loss
    labels, x = batch()
    assert_too_long(lambda x: AcrossReplicas(loss)(labels, x), x)
    loss, others = NPairLoss(), np.ones_like(x)
    assert_too_long(lambda x: query_gallery_loss(loss, labels, x, labels, others), x)
    assert_too_long(lambda x: query_gallery_loss(loss, labels, others, labels, x), x)


def test_float64_takes_longer_embeddings():
    labels, x = batch()
    loss = ContrastiveLoss(normalize=False, dtype="float64")
    value = loss(labels, x.astype("float64"))
    longer = loss(labels, 1e19 * x.astype("float64"))
    assert float(longer) > 1e37 * float(value)


def test_table_holds_every_number_that_a_loss_takes():
    free = {"class_counts", "images_per_class", "classes_per_batch", "num_classes"}
    free |= {"positive_probability"}  # whole numbers, and what is made of them
    for name, entry in ENTRIES.items():
        kin = [n for n in EXTREMES if isinstance(entry.loss, type(ENTRIES[n].loss))]
        tested = {argument for n in kin for argument in EXTREMES[n]}
        numbers = {
            argument
            for argument, (values, _) in entry.ranges.items()
            if any(type(value) is float for value in values)
        }
        assert numbers <= tested | free, name
