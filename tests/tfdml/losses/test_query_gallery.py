"""A pair-based loss between two different sets, queries and a gallery."""

import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import value_and_gradient
from tfdml._core.batches import gallery_masks
from tfdml.losses import MetricLoss, PairLoss, TopKPrecisionLoss, query_gallery_loss
from tfdml.ops import label_masks, masked_logsumexp

pytestmark = [pytest.mark.backend, pytest.mark.slow]

numpy = ops.convert_to_numpy
LABELS = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3])


class NCA(PairLoss):
    """-log(sum_pos e^(scale S) / sum_all e^(scale S)) of each anchor."""

    def __init__(self, scale):
        super().__init__(dtype="float64")
        self.scale = scale

    def pair_loss(self, scores, positives, negatives):
        found = ops.any(positives, axis=1)
        scores = self.scale * scores
        right = masked_logsumexp(scores, positives)
        everything = masked_logsumexp(scores, ops.logical_or(positives, negatives))
        return ops.where(found, everything - ops.where(found, right, 0), 0)


class FirstValue(MetricLoss):
    def call(self, labels, embeddings):
        return embeddings[:, 0]


def random_batch():
    return LABELS, np.random.default_rng(0).normal(size=(10, 4))


def cosines(x):
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit @ unit.T


def test_queries_against_a_gallery_equal_one_query_at_a_time():
    labels, x = random_batch()
    query_labels, queries = labels[:3] * 0 + np.array([0, 3, 7]), x[[9, 1, 4]]
    loss = NCA(3.0)
    received = numpy(query_gallery_loss(loss, query_labels, queries, labels, x))
    scores = np.exp(3 * cosines(np.concatenate([queries, x]))[:3, 3:])
    for i, label in enumerate(query_labels):
        right = scores[i, labels == label].sum()
        expected = -np.log(right / scores[i].sum()) if right else 0
        assert received[i] == pytest.approx(expected)


def test_set_against_itself_counts_each_item_as_its_own_positive():
    labels, x = random_batch()
    loss = TopKPrecisionLoss(1, margin=0.0, dtype="float64")
    assert numpy(query_gallery_loss(loss, labels, x, labels, x)).max() < 1e-12
    assert numpy(loss(labels, x)) > 0


def test_gradient_reaches_queries_and_gallery():
    labels, x = random_batch()
    loss = NCA(3.0)
    for part in (slice(0, 4), slice(4, 10)):
        _, gradient = value_and_gradient(
            lambda x: ops.mean(
                query_gallery_loss(loss, labels[:4], x[:4], labels[4:] % 2, x[4:])
            ),
            x,
            compiled=True,
        )
        assert np.abs(gradient[part]).max() > 0


def test_one_query_and_one_gallery_item_are_enough():
    value = query_gallery_loss(
        TopKPrecisionLoss(1), [5], [[3.0, 0.0]], [[6]], [[0.6, 0.8]]
    )
    assert numpy(value).tolist() == [0]


def test_faults_of_a_set_are_named():
    labels, x = random_batch()
    loss = NCA(1.0)
    with pytest.raises(ValueError, match=r"gallery set: .*3 labels and 10"):
        query_gallery_loss(loss, labels, x, labels[:3], x)
    with pytest.raises(ValueError, match=r"query set: .*whole numbers.*0\.5"):
        query_gallery_loss(loss, labels + 0.5, x, labels, x)
    with pytest.raises(ValueError, match=r"`gallery_embeddings` .* shape=\(4,\)"):
        query_gallery_loss(loss, labels, x, labels[:4], x[0])
    with pytest.raises(ValueError, match=r"equal dimensions\. Received: 4 and 3"):
        query_gallery_loss(loss, labels, x, labels, x[:, :3])


def test_loss_that_needs_a_square_matrix_is_refused():
    labels, x = random_batch()
    with pytest.raises(TypeError, match=r"PairLoss.*Received: FirstValue"):
        query_gallery_loss(FirstValue(), labels, x, labels, x)


def test_loss_that_does_more_than_compare_pairs_is_refused():
    class LengthsToo(NCA):
        def call(self, labels, embeddings):
            return super().call(labels, embeddings) + ops.sum(embeddings, axis=1)

    class AllTheSame(LengthsToo):
        is_pairwise = True

    labels, x = random_batch()
    loss = LengthsToo(1.0)
    with pytest.raises(TypeError, match=r"`pair_loss` alone.*Received: LengthsToo"):
        query_gallery_loss(loss, labels, x, labels, x)
    assert query_gallery_loss(AllTheSame(1.0), labels, x, labels, x).shape == (10,)


def test_labels_of_types_that_merge_classes_are_refused():
    labels, x = random_batch()
    with pytest.raises(ValueError, match="common integer type"):
        query_gallery_loss(
            NCA(1.0), labels.astype("int32"), x, labels.astype("float32"), x
        )
    mixed = query_gallery_loss(
        NCA(1.0), labels.astype("int32"), x, labels.astype("uint8"), x
    )
    assert mixed.shape == (10,)


def test_masks_of_a_gallery_that_holds_the_anchors_are_those_of_the_batch():
    labels = ops.convert_to_tensor(np.array([1, 1, 2, 1]))
    whole = [numpy(mask) for mask in label_masks(labels)]
    part = gallery_masks(labels[1:3], labels, ops.convert_to_tensor([1, 2]))
    for received, expected in zip(part, whole, strict=True):
        np.testing.assert_array_equal(numpy(received), expected[1:3])
