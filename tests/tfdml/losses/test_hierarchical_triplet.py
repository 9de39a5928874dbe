"""The hierarchical triplet loss against a loop over triplets."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import JIT, value_and_gradient
from tests.support.naive_hierarchy import naive_tree
from tfdml.batch_designs import ClassHierarchy
from tfdml.losses import HierarchicalTripletLoss, HORDELoss

pytestmark = pytest.mark.backend

BATCHES = {
    "classes of one to four": [4, 4, 4, 4, 7, 7, 9, 2, 2],
    "one class": [7, 7, 7],
    "no positives": [9, 2, 4, 7],
}
KNOWN = np.repeat([2, 4, 7, 9], [2, 5, 3, 1])


def tree_of(levels=5):
    """Return a tree, and its parts by loops, of embeddings that are not the batch's."""
    rows = np.random.default_rng(3).normal(size=(len(KNOWN), 3))
    rows[:, 0] += 2
    return ClassHierarchy(rows, KNOWN, levels=levels), naive_tree(rows, KNOWN, levels)


def batch_of(labels):
    random = np.random.default_rng(5)
    embeddings = random.normal(size=(len(labels), 3))
    embeddings[1] = embeddings[0] * 2  # equal as unit rows
    return np.array(labels), embeddings


def naive_loss(labels, embeddings, parts, beta, *, squared=True):
    """L by its definition, one triplet after the other, in float64."""
    _, s, _, merging = parts
    place = {name: number for number, name in enumerate(np.unique(KNOWN))}
    rows = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    total, triplets = 0.0, 0
    for a, y in enumerate(labels):
        for p, n in np.ndindex(len(labels), len(labels)):
            if a != p and labels[p] == y != labels[n]:
                near, far = (np.sum((rows[a] - rows[i]) ** 2) for i in (p, n))
                if not squared:
                    near, far = near**0.5, far**0.5
                alpha = beta + merging[place[y], place[labels[n]]] - s[place[y]]
                total += max(0.0, near - far + alpha)
                triplets += 1
    return total / (2 * triplets) if triplets else 0.0


@pytest.mark.parametrize("compiled", JIT)
@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES)
def test_value_equals_the_loop_over_triplets(labels, compiled):
    tree, parts = tree_of()
    labels, embeddings = batch_of(labels)
    targets = tree.targets(labels)
    loss = HierarchicalTripletLoss(0.3, dtype="float64")
    value, gradient = value_and_gradient(
        lambda x: loss(targets, x), embeddings, compiled=compiled
    )
    expected = naive_loss(labels, embeddings, parts, 0.3)
    # The rows of the targets are float32.
    assert value == pytest.approx(expected, rel=1e-6)
    assert np.isfinite(gradient).all()
    assert np.any(gradient) == (expected > 0)


def test_distances_may_be_those_that_are_printed():
    tree, parts = tree_of(levels=2)
    labels, embeddings = batch_of(BATCHES["classes of one to four"])
    loss = HierarchicalTripletLoss(distance="euclidean", dtype="float64")
    expected = naive_loss(labels, embeddings, parts, 0.1, squared=False)
    received = float(loss(tree.targets(labels), embeddings))
    assert received == pytest.approx(expected, rel=1e-6)


def test_gradient_is_that_of_the_definition():
    tree, parts = tree_of()
    labels, embeddings = batch_of(BATCHES["classes of one to four"])
    embeddings = np.random.default_rng(6).normal(size=embeddings.shape)
    loss, targets = HierarchicalTripletLoss(dtype="float64"), tree.targets(labels)
    _, gradient = value_and_gradient(lambda x: loss(targets, x), embeddings)
    for place in np.ndindex(*embeddings.shape):
        step = np.zeros_like(embeddings)
        step[place] = 1e-6
        up, down = (
            naive_loss(labels, embeddings + s, parts, 0.1) for s in (step, -step)
        )
        assert gradient[place] == pytest.approx((up - down) / 2e-6, abs=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_classes_stay_apart_in_half_precision(dtype):
    """Numbers above 256 are not exact in bfloat16."""
    labels = np.repeat(np.arange(600), 2)
    rows = np.random.default_rng(0).normal(size=(1200, 4))
    tree = ClassHierarchy(rows, labels, levels=2)
    chosen = np.repeat([256, 257, 598, 599], 2)
    embeddings = rows[2 * chosen + [0, 1] * 4]
    received = HierarchicalTripletLoss(dtype=dtype)(tree.targets(chosen), embeddings)
    expected = HierarchicalTripletLoss()(tree.targets(chosen), embeddings)
    assert float(received) == pytest.approx(float(expected), rel=0.02)


def test_config_round_trip_keeps_every_argument():
    loss = HierarchicalTripletLoss(0.5, distance="euclidean", reduction="sum", name="x")
    again = HierarchicalTripletLoss.from_config(loss.get_config())
    assert again.get_config() == loss.get_config()
    assert keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(loss)
    ).beta == pytest.approx(0.5)


def test_margins_follow_a_tree_that_changes_in_fit():
    """One compiled step serves all trees: they are in the labels."""
    tree, _ = tree_of()
    labels, x = batch_of(BATCHES["classes of one to four"])
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, kernel_initializer="identity")]
    )
    model.compile("sgd", loss=HierarchicalTripletLoss())
    other = ClassHierarchy(x + 3, labels, levels=5)
    for each in (tree, other):
        expected = HierarchicalTripletLoss()(each.targets(labels), model(x))
        received = model.evaluate(x, each.targets(labels), batch_size=9, verbose=0)
        assert received == pytest.approx(float(expected), rel=1e-5)


def test_loss_on_moments_takes_the_same_labels():
    tree, _ = tree_of()
    labels, embeddings = batch_of(BATCHES["classes of one to four"])
    loss, targets = HierarchicalTripletLoss(), tree.targets(labels)
    both = HORDELoss(loss, order=2)(targets, np.concatenate([embeddings] * 2, axis=1))
    assert float(both) == pytest.approx(2 * float(loss(targets, embeddings)))


@pytest.mark.parametrize(
    ("y_true", "y_pred", "rule"),
    [
        ([1, 2], np.ones((2, 3)), "must be rows of `ClassHierarchy.targets`"),
        (np.ones((2, 4)), np.ones((2, 3)), "must be rows of `ClassHierarchy.targets`"),
        (np.ones((2, 6)), np.ones((2, 3, 1)), r"of the shape \[batch, dimension\]"),
        (np.ones((3, 6)), np.ones((2, 3)), "3 labels and 2 embeddings"),
    ],
)
def test_other_labels_are_refused(y_true, y_pred, rule):
    with pytest.raises(ValueError, match=rule):
        HierarchicalTripletLoss()(np.array(y_true), y_pred)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"beta": -0.1}, "`beta` must be at least 0"),
        ({"beta": float("nan")}, "`beta` must be at least 0"),
        ({"distance": "cosine"}, "`distance` must be one of"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        HierarchicalTripletLoss(**arguments)


def test_embedding_that_is_nan_makes_the_loss_nan():
    tree, _ = tree_of()
    labels, embeddings = batch_of(BATCHES["classes of one to four"])
    embeddings[3, 0] = np.nan
    assert ops.isnan(HierarchicalTripletLoss()(tree.targets(labels), embeddings))
