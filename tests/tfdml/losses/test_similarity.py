"""Binomial deviance, multi-similarity, histogram: golden numbers and naive loops."""

import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import SEGMENT_ERROR, tensors, value_and_gradient
from tests.support.golden_cases import sampler_cases
from tfdml.losses import BinomialDevianceLoss, HistogramLoss, MultiSimilarityLoss

pytestmark = [pytest.mark.backend, pytest.mark.slow]


@pytest.mark.parametrize("case", sampler_cases("ms_mining"))
def test_mined_pairs_equal_the_golden_masks(case):
    scores, labels = (np.array(case["inputs"][k]) for k in ("S", "y"))
    same = labels[:, None] == labels[None]
    loss = MultiSimilarityLoss(epsilon=case["params"]["eps"], dtype="float64")
    positives = same & ~np.eye(len(labels), dtype=bool)
    mined = loss.mined_pairs(*tensors(scores, positives, ~same))
    for received, name in zip(mined, ("pos_mask", "neg_mask"), strict=True):
        np.testing.assert_array_equal(
            ops.convert_to_numpy(received), np.array(case["expected"][name], dtype=bool)
        )


def test_pairs_exactly_at_the_bound_of_mining_are_not_kept():
    scores = np.array([[0.75, 0.5], [0.75, 0.625]])
    positives = np.array([[True, False], [True, False]])
    loss = MultiSimilarityLoss(epsilon=0.25)
    mined = loss.mined_pairs(*tensors(scores, positives, ~positives))
    for received, mask in zip(mined, (positives, ~positives), strict=True):
        np.testing.assert_array_equal(
            ops.convert_to_numpy(received), mask & [[False], [True]]
        )


def random_scores(seed):
    """Three anchors against seven items, some in neither mask, with ties at nodes."""
    generator = np.random.default_rng(seed)
    scores = np.clip(generator.normal(0, 0.6, size=(3, 7)), -1, 1)
    scores[0, :3], scores[2, 4:] = 1, -0.5
    kind = generator.integers(0, 3, size=(3, 7))
    kind[1] = np.where(kind[1] == 0, 2, kind[1])  # an anchor without positives
    return scores, kind == 0, kind == 1


def naive_histogram_loss(scores, positives, negatives, intervals):
    """The probability that a negative's node is at or above a positive's node."""
    nodes = np.linspace(-1, 1, intervals + 1)

    def histogram(values):
        shares = np.maximum(0, 1 - np.abs(values[:, None] - nodes) * intervals / 2)
        return shares.sum(axis=0) / len(values)

    right, wrong = histogram(scores[positives]), histogram(scores[negatives])
    return sum(wrong[r] * right[: r + 1].sum() for r in range(intervals + 1))


@pytest.mark.parametrize("intervals", [2, 8, 50])
@pytest.mark.parametrize("seed", range(5))
def test_histogram_loss_of_queries_and_a_gallery_equals_a_naive_form(seed, intervals):
    scores, positives, negatives = random_scores(seed)
    loss = HistogramLoss(2 / intervals, dtype="float64")
    values = ops.convert_to_numpy(
        loss.pair_loss(*tensors(scores, positives, negatives))
    )
    expected = naive_histogram_loss(scores, positives, negatives, intervals)
    assert values.shape == (3,)
    assert values.mean() == pytest.approx(expected, abs=SEGMENT_ERROR)
    assert values[1] == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_histogram_loss_counts_beyond_half_precision(dtype):
    scores = np.concatenate([np.full((2, 3), 0.75), np.full((2, 3000), -0.5)], axis=1)
    positives = np.arange(3003) < 3
    loss = HistogramLoss(0.5, dtype=dtype)
    masks = np.stack([positives] * 2), np.stack([~positives] * 2)
    values = loss.pair_loss(ops.cast(scores, dtype), *masks)
    assert not ops.convert_to_numpy(ops.cast(values, "float32")).any()
    values = loss.pair_loss(ops.cast(-scores, dtype), *masks)
    np.testing.assert_array_equal(ops.convert_to_numpy(ops.cast(values, "float32")), 1)


def test_equal_embeddings_have_a_place_in_the_last_bin():
    embeddings = np.array([[0.6, 0.8], [0.3, 0.4], [-0.6, -0.8]], dtype="float32")
    labels = np.array([0, 0, 1])
    value, gradient = value_and_gradient(
        lambda x: HistogramLoss(0.01)(labels, x), embeddings
    )
    assert value == pytest.approx(0, abs=1e-6)
    assert np.all(np.isfinite(gradient))


def naive_multi_similarity(scores, positives, negatives, alpha, beta, lam, eps):
    values = []
    for s, p, n in zip(scores, positives, negatives, strict=True):
        right = [x for x in s[p] if n.any() and x < s[n].max() + eps]
        wrong = [x for x in s[n] if p.any() and x > s[p].min() - eps]
        value = np.log(1 + sum(np.exp(-alpha * (x - lam)) for x in right)) / alpha
        values.append(
            value + np.log(1 + sum(np.exp(beta * (x - lam)) for x in wrong)) / beta
        )
    return values


@pytest.mark.parametrize("seed", range(5))
def test_multi_similarity_loss_of_queries_and_a_gallery_equals_a_naive_loop(seed):
    scores, positives, negatives = random_scores(seed)
    loss = MultiSimilarityLoss(
        3, negative_scale=20, threshold=0.4, epsilon=0.125, dtype="float64"
    )
    values = ops.convert_to_numpy(
        loss.pair_loss(*tensors(scores, positives, negatives))
    )
    expected = naive_multi_similarity(scores, positives, negatives, 3, 20, 0.4, 0.125)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert values[1] == 0


@pytest.mark.parametrize("seed", range(5))
def test_binomial_deviance_of_queries_and_a_gallery_equals_a_naive_loop(seed):
    scores, positives, negatives = random_scores(seed)
    right = np.log1p(np.exp(3 * (0.4 - scores)))
    wrong = np.log1p(np.exp(20 * (scores - 0.4)))
    per_anchor = [
        sum(v[m].mean() for v, m in ((r, p), (w, n)) if m.any())
        for r, w, p, n in zip(right, wrong, positives, negatives, strict=True)
    ]
    loss = BinomialDevianceLoss(3, negative_scale=20, threshold=0.4, dtype="float64")
    values = ops.convert_to_numpy(
        loss.pair_loss(*tensors(scores, positives, negatives))
    )
    np.testing.assert_allclose(values, per_anchor, rtol=1e-12)
    loss = BinomialDevianceLoss(
        3, negative_scale=20, threshold=0.4, per_anchor=False, dtype="float64"
    )
    values = ops.convert_to_numpy(
        loss.pair_loss(*tensors(scores, positives, negatives))
    )
    assert values.mean() == pytest.approx(
        right[positives].mean() + wrong[negatives].mean(), rel=1e-12
    )


def test_bin_width_that_does_not_divide_two_is_refused():
    with pytest.raises(ValueError, match=r"`bin_width` must divide 2.*bin_width=0\.03"):
        HistogramLoss(0.03)
