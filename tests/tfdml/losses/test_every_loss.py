"""What holds for the value and the gradient of every loss, tested once over all."""

import functools
import inspect
import itertools

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.all_losses import COUNTS, ENTRIES, QUICK, every_loss
from tests.support.autodiff import BACKEND, differentiated, slow_on_jax
from tests.support.loss_entry import CLASSES, DIMENSION, batch, rebuilt
from tfdml import losses, tfa
from tfdml.layers import Proxies
from tfdml.losses import ContinuousLoss

pytestmark = pytest.mark.backend

# How a batch is computed: as a TensorFlow graph whose shapes are unknown, by XLA, or
# one operation after the other. One compilation of a loss serves all tests of a shape.
MODES = {"tensorflow": ["graph", "xla"], "jax": ["xla"], "torch": ["eager"]}[BACKEND]


def in_modes(holds=lambda entry: True):
    """Return a decorator for tests of `entry` and `mode`, over the losses that `holds`.

    Every loss is compiled by XLA once; its variants are for `make test-all`.
    """
    parameters = []
    for (name, entry), mode in itertools.product(ENTRIES.items(), MODES):
        marks = []
        if name not in QUICK or mode != MODES[0]:
            marks.append(pytest.mark.slow)
        if "-" in name and mode != MODES[0]:
            marks.append(pytest.mark.full)
        if holds(entry):
            parameters.append(
                pytest.param(entry, mode, id=f"{name}-{mode}", marks=marks)
            )
    return pytest.mark.parametrize(("entry", "mode"), parameters)


@functools.cache
def gradient_of(entry, mode):
    """Return the function of (embeddings, labels) to the loss and its gradient."""
    signature = None
    if BACKEND == "tensorflow" and mode != "eager":
        import tensorflow as tf

        # Proxies and boundaries need to know the dimension, the losses do not.
        columns = None if entry.make_head is None else DIMENSION
        signature = [
            tf.TensorSpec([None, columns], "float32"),
            tf.TensorSpec([None], "int64"),
        ]
    return differentiated(
        lambda embeddings, labels: entry.value(labels, embeddings),
        compiled=mode == "xla",
        signature=signature,
    )


def computed(entry, labels, embeddings, mode=MODES[0]):
    embeddings = embeddings.astype("float32")
    return gradient_of(entry, mode)(embeddings, labels.astype("int64"))


def anchor_values(entry, labels, embeddings):
    values = entry.value(labels, embeddings, reduction=None)
    return ops.convert_to_numpy(values)


def test_table_holds_every_loss():
    others = {
        losses.AcrossReplicas,
        losses.CompatibleLoss,
        losses.ContinuousLoss,
        losses.HierarchicalTripletLoss,  # whose labels are no class ids
        losses.DistillationLoss,
        losses.HORDELoss,
        losses.MetricLoss,
        losses.PairLoss,
        losses.ProxyLoss,
        losses.RelationalDistillationLoss,  # on embeddings of a teacher
        losses.SimilarityDistillationLoss,
    }
    tested = {type(entry.loss) for entry in ENTRIES.values()}
    for module in (losses, tfa):
        for name in module.__all__:
            cls = getattr(module, name)
            if inspect.isclass(cls) and issubclass(cls, losses.MetricLoss):
                assert cls in tested | others, name


@in_modes()
def test_all_ways_to_compute_agree(entry, mode):
    labels, embeddings = batch()
    value, gradient = computed(entry, labels, embeddings, mode)
    assert float(entry.value(labels, embeddings)) == pytest.approx(value, rel=1e-5)
    if BACKEND == "tensorflow":
        value, expected = computed(entry, labels, embeddings, "eager")
        size = np.abs(expected).max()
        assert size > 0
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5 * size)


@every_loss()
def test_order_of_the_batch_changes_nothing(entry):
    labels, embeddings = batch()
    order = np.random.default_rng(1).permutation(len(labels))
    if entry.ordered:  # within a class it must stay
        places = {label: np.flatnonzero(labels == label) for label in set(labels)}
        for label, rows in places.items():
            order[labels[order] == label] = rows
    value, gradient = computed(entry, labels, embeddings)
    shuffled, moved = computed(entry, labels[order], embeddings[order])
    assert shuffled == pytest.approx(value, rel=1e-5)
    size = np.abs(gradient).max()
    np.testing.assert_allclose(moved, gradient[order], rtol=1e-4, atol=1e-5 * size)


@every_loss(lambda entry: entry.ids in ("any", "scale"))
def test_names_of_the_classes_change_nothing(entry):
    labels, embeddings = batch()
    value, _ = computed(entry, labels, embeddings)
    renamed, _ = computed(entry, 1000 - 7 * labels, embeddings)
    assert renamed == pytest.approx(value, rel=1e-5 if entry.ids == "scale" else 0)


@every_loss(lambda entry: entry.ids == "counted")
def test_names_of_the_counted_classes_change_nothing(entry):
    labels, embeddings = batch()
    counts = {1000 - 7 * label: count for label, count in enumerate(COUNTS)}
    renamed = rebuilt(entry.loss, class_counts=counts)
    expected = float(entry.loss(labels, embeddings))
    assert float(renamed(1000 - 7 * labels, embeddings)) == expected


@every_loss(lambda entry: entry.ids == "rows")
def test_order_of_the_classes_changes_nothing(entry):
    labels, embeddings = batch()
    order = np.random.default_rng(3).permutation(CLASSES)
    outputs = ops.convert_to_numpy(entry.outputs(embeddings))
    columns = np.arange(outputs.shape[1])
    columns[-CLASSES:] = columns[-CLASSES:][order]
    value = float(entry.loss(labels, outputs))
    received = float(entry.loss(np.argsort(order)[labels], outputs[:, columns]))
    assert received == pytest.approx(value, rel=1e-5)


@every_loss()
def test_rotation_changes_nothing(entry):
    labels, embeddings = batch()
    random = np.random.default_rng(2)
    # Learners of an ensemble are turned each by itself, and what a prefix adds, too.
    ends = getattr(entry.loss, "dimensions", (DIMENSION,))
    sides = getattr(entry.loss, "learners", tuple(np.diff(ends, prepend=0)))
    rotation = np.zeros((DIMENSION, DIMENSION))
    for end, side in zip(np.cumsum(sides), sides, strict=True):
        block = slice(end - side, end)
        rotation[block, block] = np.linalg.qr(random.normal(size=(side, side)))[0]
    if heads := getattr(entry.loss, "heads", 0):  # compared with each other, too
        side = DIMENSION // heads
        turned = np.linalg.qr(random.normal(size=(side, side)))[0]
        rotation = np.kron(np.eye(heads), turned)
    rotated = (embeddings @ rotation).astype("float32")
    head = entry.make_head and entry.make_head()
    if isinstance(head, Proxies):
        head.set_proxies(ops.convert_to_numpy(head.proxies) @ rotation)
    outputs = ops.convert_to_numpy(rotated if head is None else head(rotated))
    expected = float(entry.value(labels, embeddings))
    assert float(entry.loss(labels, outputs)) == pytest.approx(expected, rel=1e-4)


HARD = [
    "no positives",
    "no negatives",
    "equal rows",
    "zero rows",
    "one zero row",
    "huge rows",
    "tiny rows",
    "duplicates",
    "opposite rows",
]
"""Batches that are hard to compute: see `hard_batch`."""


def hard_batch(case, entry):
    """Return labels and embeddings of a batch that is hard to compute."""
    labels, embeddings = batch()
    two = np.repeat([0, 1], 8)
    far, near = (1e9, 1e-30) if entry.uses_length else (1e30, 1e-30)
    labels, rows = {
        "no positives": (np.arange(16), embeddings),
        "no negatives": (np.zeros(16, int), embeddings),
        "equal rows": (two, np.ones_like(embeddings)),
        "zero rows": (two, np.zeros_like(embeddings)),
        "one zero row": (two, np.where(np.arange(16)[:, None] == 3, 0, embeddings)),
        "huge rows": (two, embeddings * far),
        "tiny rows": (two, embeddings * near),
        "duplicates": (labels, embeddings[[0, 0, 2, 3, 0, 0, *range(6, 16)]]),
        "opposite rows": (labels, np.where(two[:, None], -1, 1) * embeddings[[0] * 16]),
    }[case]
    return labels, rows.astype("float32")


@in_modes()
@pytest.mark.parametrize("case", HARD)
def test_hard_batches_give_finite_values_and_gradients(entry, case, mode):
    value, gradient = computed(entry, *hard_batch(case, entry), mode)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


@every_loss()
@pytest.mark.parametrize("missing", ["positives", "negatives"])
def test_batch_without_a_kind_of_pair_costs_nothing(entry, missing):
    value, gradient = computed(entry, *hard_batch(f"no {missing}", entry))
    if missing in entry.costs_without:
        assert value != 0
        assert gradient.any()
    else:
        assert value == 0
        assert not gradient.any()


@in_modes(lambda entry: entry.ids == "rows" and "margin" not in entry.loss.name)
def test_embedding_that_equals_its_proxy_has_a_finite_gradient(entry, mode):
    labels, _ = batch()
    proxies = ops.convert_to_numpy(entry.head.proxies)
    own = proxies[labels] if proxies.ndim == 2 else proxies[labels, 1]
    for factor in (1, -1, 3):
        value, gradient = computed(entry, labels, factor * own, mode)
        assert np.isfinite(value)
        assert np.all(np.isfinite(gradient))
        assert np.abs(gradient).max() < 1e3


@every_loss()
@pytest.mark.parametrize(
    "labels",
    [
        pytest.param([0, 0], id="alike", marks=slow_on_jax),
        pytest.param([0, 1], id="unlike", marks=slow_on_jax),
    ],
)
def test_batch_of_two_is_finite(entry, labels):
    value, gradient = computed(entry, np.array(labels), batch()[1][:2])
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


@every_loss(lambda entry: "positives" not in entry.costs_without and not entry.of_batch)
def test_anchor_without_positive_adds_no_loss(entry):
    labels, embeddings = batch()
    labels[5] = 0
    values = anchor_values(entry, labels, embeddings)
    assert values[5] == 0
    assert values.any()


@every_loss()
def test_mean_and_sample_weights_are_over_the_anchors(entry):
    labels, embeddings = batch()
    values = anchor_values(entry, labels, embeddings)
    assert values.shape == (16,)
    outputs = entry.outputs(embeddings)
    assert float(entry.loss(labels, outputs)) == pytest.approx(values.mean(), rel=1e-5)
    weights = np.linspace(0, 1, 16, dtype="float32")
    weighted = float(entry.loss(labels, outputs, sample_weight=weights))
    assert weighted == pytest.approx((weights * values).sum() / 16, rel=1e-5)
    summed = entry.value(labels, embeddings, reduction="sum")
    assert float(summed) == pytest.approx(values.sum(), rel=1e-5)


@in_modes()
def test_loss_has_no_memory_of_the_batches_before(entry, mode):
    labels, embeddings = batch()
    other = np.roll(labels, 3), 0.5 * embeddings[::-1]
    first = computed(entry, labels, embeddings, mode)
    second = computed(entry, *other, mode)
    again = computed(entry, labels, embeddings, mode)
    assert first[0] == again[0]
    np.testing.assert_array_equal(first[1], again[1])
    assert float(entry.value(*other)) == pytest.approx(second[0], rel=1e-5)


@in_modes()
@pytest.mark.parametrize("row", [0, 5])
def test_nan_in_one_embedding_makes_the_loss_nan(entry, row, mode):
    labels, embeddings = batch()
    labels[5] = 0  # a class of one row
    embeddings[row, 2] = np.nan
    value, _ = computed(entry, labels, embeddings, mode)
    assert np.isnan(value)


@every_loss(lambda entry: entry.ids != "rows")
def test_batch_of_one_row_is_refused_or_costs_no_pair(entry):
    row = np.ones((1, DIMENSION), "float32")
    if isinstance(entry.loss, ContinuousLoss):
        assert float(entry.value([1], row)) == 0
        return
    if BACKEND == "torch":  # where `fit` may come with a last batch of one row
        assert np.isfinite(float(entry.value(np.array([1]), row)))
        return
    with pytest.raises(ValueError, match="at least 2 rows"):
        entry.value(np.array([1]), row)


@every_loss()
def test_subclass_may_change_what_a_loss_computes(entry):
    parent = type(entry.loss)
    names = ["call"]
    if isinstance(entry.loss, losses.PairLoss) and parent.call is losses.PairLoss.call:
        names.append("pair_loss")
    for name in names:

        def twice(self, *inputs, name=name):
            return 2 * getattr(parent, name)(self, *inputs)

        child = type(f"Twice{parent.__name__}{name}", (parent,), {name: twice})
        loss = child.from_config(entry.loss.get_config())
        labels, embeddings = batch()
        outputs = entry.outputs(embeddings)
        expected = 2 * float(entry.loss(labels, outputs))
        assert float(loss(labels, outputs)) == pytest.approx(expected, rel=1e-5)
        stored = keras.saving.serialize_keras_object(loss)
        again = keras.saving.deserialize_keras_object(stored)
        assert type(again) is child
        assert float(again(labels, outputs)) == float(loss(labels, outputs))


@every_loss()
def test_default_of_float64_is_taken(entry):
    """`keras.config.set_floatx("float64")`, which also makes Keras' integers longer."""
    labels, embeddings = batch()
    expected = float(entry.value(labels, embeddings))
    keras.config.set_floatx("float64")
    try:
        found = float(entry.value(labels, embeddings, dtype="float64"))
    finally:
        keras.config.set_floatx("float32")
    assert found == pytest.approx(expected, rel=1e-5)
