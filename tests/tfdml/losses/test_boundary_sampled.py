"""Sampling at the boundary of the first k, against sets written from the paper."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import tensors, value_and_gradient
from tfdml.losses import (
    BoundarySampledLoss,
    MarginLoss,
    NPairLoss,
    PairLoss,
    ProxyAnchorLoss,
    TopKPrecisionLoss,
    TripletLoss,
    pair_weights,
    query_gallery_loss,
)

pytestmark = pytest.mark.backend


def naive_sets(scores, positives, negatives, k, margin):
    """Return P and N of a query, by the definition before Eq. 5.

    K holds the k candidates of the largest shifted scores; positives come first on
    ties. N are the last of its negatives, as many as positives are missing in K; P are
    the best positives outside K.
    """
    candidates = np.flatnonzero(positives | negatives)
    shifted = scores + margin * negatives
    ranked = sorted(candidates, key=lambda i: (-shifted[i], not positives[i], i))
    top, rest = ranked[:k], ranked[k:]
    missing = min(positives.sum(), k) - sum(positives[i] for i in top)
    wrong = [i for i in reversed(top) if negatives[i]][:missing]
    right = [i for i in rest if positives[i]][:missing]
    count = min(len(wrong), len(right))
    return set(right[:count]), set(wrong[:count])


@pytest.mark.parametrize("k", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("margin", [0.0, 0.15, 3.0])
def test_masks_are_the_sets_of_the_definition(k, margin):
    generator = np.random.default_rng(k)
    scores = generator.uniform(-1, 1, size=(40, 12))
    kind = generator.integers(0, 3, size=(40, 12))
    kind[0], kind[1], kind[2] = 1, 2, 0  # no negatives, no positives, nothing
    positives, negatives = kind == 1, kind == 2
    loss = TopKPrecisionLoss(k, margin=margin, dtype="float64")
    arrays = tensors(scores, positives, negatives)
    found = [ops.convert_to_numpy(mask) for mask in loss.misplaced_masks(*arrays)]
    for row, (pos, neg) in enumerate(zip(*found, strict=True)):
        expected = naive_sets(scores[row], positives[row], negatives[row], k, margin)
        assert (set(np.flatnonzero(pos)), set(np.flatnonzero(neg))) == expected
    counts = ops.convert_to_numpy(loss.misplaced_pairs(*arrays))
    assert (found[0].sum(1) == counts).all()
    assert (found[1].sum(1) == counts).all()
    assert counts.any() == (k < 12)  # else all are retrieved


def test_ties_leave_as_many_positives_as_negatives():
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 3, size=(60, 10)) / 4
    positives = generator.integers(0, 2, size=(60, 10)).astype(bool)
    loss = TopKPrecisionLoss(3, margin=0.25, dtype="float64")
    pos, neg = (
        ops.convert_to_numpy(mask)
        for mask in loss.misplaced_masks(*tensors(scores, positives, ~positives))
    )
    counts = loss.misplaced_pairs(*tensors(scores, positives, ~positives))
    counts = ops.convert_to_numpy(counts)
    assert (pos.sum(1) == counts).all()
    assert (neg.sum(1) == counts).all()
    assert not (pos & ~positives).any()
    assert not (neg & positives).any()


class Difference(PairLoss):
    """The sum over N minus the sum over P, with the margin once for each pair."""

    def __init__(self, margin=0.1, **kwargs):
        super().__init__(**kwargs)
        self.margin = margin

    def pair_loss(self, scores, positives, negatives):
        costs = ops.where(negatives, scores + self.margin, 0)
        return ops.sum(costs - ops.where(positives, scores, 0), axis=1)


def batch():
    generator = np.random.default_rng(5)
    labels = np.repeat([0, 1, 2, 3], [6, 4, 2, 1])
    return labels, generator.normal(size=(13, 4))


@pytest.mark.parametrize("k", [1, 3, 5])
def test_sum_of_the_sampled_pairs_is_the_top_k_precision_loss(k):
    labels, x = batch()
    top_k = TopKPrecisionLoss(k, margin=0.2, dtype="float64")
    sampled = BoundarySampledLoss(Difference(0.2), k=k, margin=0.2, dtype="float64")
    value, gradient = value_and_gradient(lambda x: sampled(labels, x), x)
    expected, slopes = value_and_gradient(lambda x: top_k(labels, x), x)
    assert value == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(gradient, slopes, atol=1e-12)


def test_triplets_are_those_of_the_sampled_pairs():
    labels, x = batch()
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    scores, same = unit @ unit.T, labels[:, None] == labels
    positives, negatives = same & ~np.eye(13, dtype=bool), ~same
    costs = []
    for a in range(13):
        pos, neg = naive_sets(scores[a], positives[a], negatives[a], 2, 0.1)
        costs += [
            max(0, 2 * scores[a, n] - 2 * scores[a, p] + 0.3) for p in pos for n in neg
        ]
    loss = BoundarySampledLoss(TripletLoss(0.3), k=2, dtype="float64")
    assert float(loss(labels, x)) == pytest.approx(np.mean(costs), abs=1e-12)


def test_loss_on_cosines_also_takes_scores_and_a_gallery():
    labels, x = batch()
    loss = BoundarySampledLoss(Difference(), k=2, dtype="float64", reduction=None)
    weights = ops.convert_to_numpy(pair_weights(loss, labels, x))
    assert set(np.unique(weights)) == {0, 1}
    values = query_gallery_loss(loss, labels[:5], x[:5], labels[5:], x[5:])
    top_k = TopKPrecisionLoss(2, dtype="float64")
    expected = query_gallery_loss(top_k, labels[:5], x[:5], labels[5:], x[5:])
    np.testing.assert_allclose(*map(ops.convert_to_numpy, (values, expected)))


def test_loss_on_distances_takes_batches_alone():
    labels, x = batch()
    loss = BoundarySampledLoss(MarginLoss(), dtype="float64")
    assert np.isfinite(float(loss(labels, x)))
    with pytest.raises(TypeError, match="defined by `pair_loss` alone"):
        pair_weights(loss, labels, x)
    scores = np.zeros((2, 2))
    masks = np.eye(2, dtype=bool), ~np.eye(2, dtype=bool)
    with pytest.raises(ValueError, match=r"must compare cosine.*Received: MarginLoss"):
        loss.pair_loss(*tensors(scores, *masks))


@pytest.mark.parametrize(
    "loss", [ProxyAnchorLoss(), NPairLoss(l2_weight=0.1), "TripletLoss", None]
)
def test_loss_that_is_no_function_of_pairs_is_refused(loss):
    with pytest.raises(TypeError, match=r"`loss` must be .*Received: "):
        BoundarySampledLoss(loss)


def test_loss_is_stored_with_the_one_that_it_holds():
    loss = BoundarySampledLoss(TripletLoss(0.4, average="active"), k=3, margin=0.2)
    stored = keras.saving.serialize_keras_object(loss)
    again = keras.saving.deserialize_keras_object(stored)
    assert again.get_config() == loss.get_config()
    assert again.loss.average == "active"
