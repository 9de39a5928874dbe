"""NCA, N-pair, SupCon, NT-Xent, circle: golden numbers and naive loops."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, SEGMENT_ERROR, tensors, value_and_gradient
from tfdml.losses import (
    CircleLoss,
    MultiClassNPairLoss,
    NCALoss,
    NPairLoss,
    NTXentLoss,
    SupervisedContrastiveLoss,
)

pytestmark = [pytest.mark.backend, pytest.mark.slow]


def random_scores(seed):
    """Four anchors against seven items: ties, an anchor without each kind of pair."""
    generator = np.random.default_rng(seed)
    scores = np.clip(generator.normal(0, 0.6, size=(4, 7)), -1, 1)
    scores[0, :3], scores[2, 4:] = 1, -0.5
    kind = generator.integers(0, 3, size=(4, 7))
    kind[1] = np.where(kind[1] == 0, 2, kind[1])
    kind[3] = np.where(kind[3] == 1, 2, kind[3])
    return scores, kind == 0, kind == 1


def nt_xent(scores, positives, negatives):
    total = 0.0
    for s, p, n in zip(scores / 0.3, positives, negatives, strict=True):
        for right in s[p]:
            total -= np.log(np.exp(right) / (np.exp(right) + np.exp(s[n]).sum()))
    return total / positives.sum()


def supervised_contrastive(scores, positives, negatives):
    values = []
    for s, p, n in zip(scores / 0.3, positives, negatives, strict=True):
        total = np.exp(s[p]).sum() + np.exp(s[n]).sum()
        values.append(-np.log(np.exp(s[p]) / total).mean() if p.any() else 0.0)
    return np.mean(values)


def nca(scores, positives, negatives):
    values = []
    for s, p, n in zip(4 * scores, positives, negatives, strict=True):
        right, wrong = np.exp(s[p]).sum(), np.exp(s[n]).sum()
        values.append(-np.log(right / (right + wrong)) if p.any() else 0.0)
    return np.mean(values)


def circle(scores, positives, negatives):
    gamma, margin = 32, 0.25
    values = []
    for s, p, n in zip(scores, positives, negatives, strict=True):
        right = np.exp(-gamma * np.maximum(0, 1 + margin - s) * (s - 1 + margin))
        wrong = np.exp(gamma * np.maximum(0, s + margin) * (s - margin))
        values.append(np.log(1 + right[p].sum() * wrong[n].sum()))
    return np.mean(values)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("loss", "naive"),
    [
        (NTXentLoss(0.3, dtype="float64"), nt_xent),
        (SupervisedContrastiveLoss(0.3, dtype="float64"), supervised_contrastive),
        (NCALoss(4.0, dtype="float64"), nca),
        (CircleLoss(32.0, margin=0.25, dtype="float64"), circle),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_losses_of_queries_and_a_gallery_equal_naive_loops(loss, naive, seed):
    scores, positives, negatives = random_scores(seed)
    values = ops.convert_to_numpy(
        loss.pair_loss(*tensors(scores, positives, negatives))
    )
    assert values.shape == (4,)
    assert values.mean() == pytest.approx(naive(scores, positives, negatives), rel=1e-9)
    assert values[1] == 0


def test_circle_weights_are_constants_of_the_gradient():
    scores = np.array([[0.7, 0.2, 0.4]])
    positives = np.array([[True, False, False]])
    _, gradient = value_and_gradient(
        lambda s: ops.sum(
            CircleLoss(8.0, margin=0.25).pair_loss(s, positives, ~positives)
        ),
        scores.astype("float32"),
    )
    z = np.array([-8 * 0.55 * (0.7 - 0.75), 8 * 0.45 * -0.05, 8 * 0.65 * 0.15])
    ratio = np.exp(z[0]) * np.exp(z[1:]).sum()
    outer = ratio / (1 + ratio)
    shares = np.exp(z[1:]) / np.exp(z[1:]).sum()
    expected = outer * np.array([-8 * 0.55, 8 * 0.45 * shares[0], 8 * 0.65 * shares[1]])
    np.testing.assert_allclose(gradient[0], expected, rtol=1e-5)


def test_circle_loss_has_the_value_of_keras():
    generator = np.random.default_rng(3)
    embeddings = generator.normal(size=(12, 5)).astype("float32")
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    labels = np.arange(12) % 3
    ours = CircleLoss(80.0, margin=0.4, reduction=None)(labels, embeddings)
    theirs = keras.losses.Circle(80.0, 0.4, reduction=None)(labels, embeddings)
    np.testing.assert_allclose(
        ops.convert_to_numpy(ours), ops.convert_to_numpy(theirs), rtol=1e-4
    )


def test_rows_of_a_large_class_are_anchors_and_positives_in_turn():
    labels, x = (
        np.array([5, 5, 8, 5, 8, 5]),
        np.random.default_rng(0).normal(size=(6, 3)),
    )
    s = x @ x.T
    # First, third and so on of a class: rows 0 and 3 of class 5, row 2 of class 8.
    costs = [
        np.log1p(np.exp(s[0, 4] - s[0, [1, 5]])),
        np.log1p(np.exp(s[3, 4] - s[3, [1, 5]])),
        np.log1p(np.exp(s[2, [1, 5]] - s[2, 4]).sum()),
    ]
    expected = np.concatenate([np.atleast_1d(c) for c in costs]).mean()
    loss = MultiClassNPairLoss(dtype="float64")
    assert float(loss(labels, x)) == pytest.approx(expected, rel=SEGMENT_ERROR)


def test_length_of_every_row_counts_in_the_l2_term():
    labels, x = np.arange(5), np.random.default_rng(0).normal(size=(5, 3))
    loss = NPairLoss(l2_weight=0.5, dtype="float64")
    assert float(loss(labels, x)) == pytest.approx(0.5 * (x**2).sum() / 5)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="graphs of TensorFlow")
@pytest.mark.parametrize("rows", [8, pytest.param(4096, marks=pytest.mark.full)])
def test_multi_class_n_pair_compiles_where_the_batch_is_unknown(rows):
    import tensorflow as tf

    loss = MultiClassNPairLoss()

    def gradient(labels, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = loss(labels, x)
        return value, tape.gradient(value, x)

    signature = [tf.TensorSpec((None,), "int64"), tf.TensorSpec((None, 8), "float32")]
    compiled = tf.function(gradient, signature, jit_compile=True)
    # XLA compiles no scatter of unknown size for GPUs, as the gradient of `take` is.
    kinds = {op.type for op in compiled.get_concrete_function().graph.get_operations()}
    assert not [kind for kind in kinds if "Segment" in kind or "Scatter" in kind]
    x = np.random.default_rng(0).normal(size=(rows, 8)).astype("float32")
    labels = tf.constant(np.arange(rows) // 2)
    for ours, expected in zip(
        compiled(labels, tf.constant(x)), gradient(labels, tf.constant(x)), strict=True
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-6)
