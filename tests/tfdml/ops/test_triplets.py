"""How often each pair of a batch is in a triplet above 0, against naive loops."""

import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import value_and_gradient
from tests.support.naive_triplets import naive_distances, random_rows, triplets_of
from tfdml.ops import hinge_weights, label_masks, squared_distances, unit_rows

pytestmark = [pytest.mark.backend, pytest.mark.slow]


@pytest.fixture(params=[10**6, 0], ids=["in turn", "by bisection"])
def few_positives(request):
    """Choose each of the two ways to the weights, whatever the number of positives."""
    return request.param


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("margin", [0.0, 0.25, 2.0])
@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_hinge_weights_count_the_triplets(seed, margin, window, shared, few_positives):
    scores, positives, negatives = random_rows(seed)
    shares = np.random.default_rng(seed).random(scores.shape)
    expected = np.zeros_like(scores)
    for a, p, n in triplets_of(positives, negatives):
        above = scores[a, n] > scores[a, p] or not window
        if above and scores[a, n] < scores[a, p] + margin:
            expected[a, p] += shares[a, n] if shared else 1
            expected[a, n] -= shares[a, n] if shared else 1
    received = hinge_weights(
        ops.convert_to_tensor(scores),
        positives,
        negatives,
        margin,
        window=window,
        shares=ops.convert_to_tensor(shares) if shared else None,
        few_positives=few_positives,
    )
    np.testing.assert_allclose(ops.convert_to_numpy(received), expected, atol=1e-12)


def naive_triplet_loss(x, labels, margin):
    distances = naive_distances(x)
    same = labels[:, None] == labels
    positives = same & ~np.eye(len(labels), dtype=bool)
    hinges = [
        max(0, distances[a, p] - distances[a, n] + margin)
        for a, p, n in triplets_of(positives, ~same)
    ]
    return np.mean(hinges)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_hinges_of_the_weights_equal_a_loop_over_triplets(compiled, few_positives):
    generator = np.random.default_rng(1)
    labels, x = generator.integers(0, 4, 24), generator.normal(size=(24, 5))
    x[3] = x[7]
    same = np.equal.outer(labels, labels)
    number = ((same.sum(axis=1) - 1) * (~same).sum(axis=1)).sum()

    def mean_hinge(x):
        rows = unit_rows(x)
        distances = squared_distances(rows, rows)
        positives, negatives = label_masks(ops.convert_to_tensor(labels))
        weights = hinge_weights(
            distances, positives, negatives, 0.5, few_positives=few_positives
        )
        triplets = ops.sum(ops.where(positives, weights, 0))
        return (ops.sum(weights * distances) + 0.5 * triplets) / number

    value, gradient = value_and_gradient(mean_hinge, x, compiled=compiled)
    assert value == pytest.approx(naive_triplet_loss(x, labels, 0.5), abs=1e-12)
    direction = generator.normal(size=x.shape)
    ends = [naive_triplet_loss(x + s * 1e-6 * direction, labels, 0.5) for s in (-1, 1)]
    slope = (ends[1] - ends[0]) / 2e-6
    assert (gradient * direction).sum() == pytest.approx(slope, abs=1e-7)
