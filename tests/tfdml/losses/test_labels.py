"""What labels and embeddings a loss takes, tested once over all losses."""

import numpy as np
import pytest
from keras import ops

from tests.support.all_losses import COUNTS, every_loss
from tests.support.autodiff import BACKEND, slow_on_jax
from tests.support.loss_entry import CLASSES, batch, rebuilt
from tfdml import losses

pytestmark = pytest.mark.backend

WHOLE = ["int8", "uint8", "int16", "int32", "int64", "float32", "float64"]


@every_loss()
def test_labels_may_be_of_any_whole_type_and_a_column(entry):
    labels, embeddings = batch()
    outputs = entry.outputs(embeddings)
    expected = float(entry.loss(labels, outputs))
    # JAX compiles each operation for each type: half of the types a loss will do.
    for i, kind in enumerate(WHOLE):
        column = i % 2 == 1
        same = labels.astype(kind).reshape((16, 1) if column else (16,))
        assert float(entry.loss(same, outputs)) == pytest.approx(expected, rel=1e-6)
        if BACKEND != "jax":
            same = same.reshape((16,) if column else (16, 1))
            assert float(entry.loss(same, outputs)) == pytest.approx(expected, rel=1e-6)
    assert float(entry.loss(labels.tolist(), outputs)) == pytest.approx(expected)


OFFSETS = [
    2**24,  # floats of 32 bits merge ids from here on
    2**31 - 1,
    2**53,  # floats of 64 bits
    2**63 - 2,
    -(2**63),
]


@every_loss(lambda entry: entry.ids in ("any", "counted"))
def test_large_class_ids_stay_apart(entry):
    _, embeddings = batch()
    small = np.repeat([0, 1], 8)
    for offset in OFFSETS:
        loss = entry.loss
        if entry.ids == "counted":
            counts = {offset: COUNTS[0], offset + 1: COUNTS[1]}
            loss = rebuilt(loss, class_counts=counts)
            small_loss = rebuilt(loss, class_counts=COUNTS[:2])
        else:
            small_loss = loss
        expected = float(small_loss(small, entry.outputs(embeddings)))
        received = float(loss(small + offset, entry.outputs(embeddings)))
        assert received == expected, offset


@every_loss(lambda entry: entry.ids == "any")
@pytest.mark.parametrize(
    "dtype", ["bfloat16", pytest.param("float16", marks=slow_on_jax)]
)
def test_class_ids_stay_apart_in_half_precision(entry, dtype):
    _, embeddings = batch()
    small = np.repeat([0, 1], 8)
    values = [
        float(entry.value(labels, embeddings, dtype=dtype))
        for labels in (small, small + 256, small + 2**24)
    ]
    assert np.isfinite(values[0])
    assert values[0] == values[1] == values[2]


@every_loss(lambda entry: entry.ids == "rows" and "margin" not in entry.loss.name)
def test_label_that_no_row_of_the_head_has_is_refused(entry):
    outputs = ops.convert_to_numpy(entry.outputs(batch()[1]))[:2]
    for label in (CLASSES, -1):
        rule = rf"0 to {CLASSES - 1}\. Received: {label}\. Number"
        with pytest.raises(ValueError, match=rule):
            entry.loss(np.array([0, label]), outputs)


@every_loss(lambda entry: entry.ids != "scale")
def test_labels_with_fractions_are_refused(entry):
    labels, embeddings = batch()
    with pytest.raises(ValueError, match=r"whole numbers.*Received: 0\.25"):
        entry.value(np.where(labels == 3, 0.25, labels), embeddings)


def takes_one_id_per_row(entry):
    return entry.ids != "scale" and not isinstance(
        entry.loss, losses.HierarchicalAPLoss
    )


@every_loss(takes_one_id_per_row)
def test_one_hot_labels_are_refused(entry):
    with pytest.raises(ValueError, match=r"one-hot.*shape=\(16, 3\)"):
        entry.value(np.zeros((16, 3), int), batch()[1])


@every_loss()
def test_labels_of_another_length_are_refused(entry):
    with pytest.raises(ValueError, match="5 labels and 16 embeddings"):
        entry.value(np.zeros(5, int), batch()[1])


@every_loss()
@pytest.mark.parametrize("shape", [(16,), (16, 4, 3, 2)])
def test_outputs_of_another_rank_are_refused(entry, shape):
    with pytest.raises(ValueError, match=r"\[batch, .*shape=\(16"):
        entry.loss(np.zeros(16, int), np.zeros(shape, "float32"))


@pytest.mark.parametrize(
    "loss",
    [losses.ProxyAnchorLoss(), losses.ProxyNCALoss(), losses.CosFaceLoss()],
    ids=lambda loss: loss.name,
)
def test_labels_of_few_bits_go_with_many_classes(loss):
    similarities = np.eye(4, 1000, dtype="float32")
    labels = np.arange(4)
    expected = float(loss(labels, similarities))
    assert float(loss(labels.astype("int8"), similarities)) == expected
    assert float(loss(labels.astype("uint8"), similarities)) == expected
