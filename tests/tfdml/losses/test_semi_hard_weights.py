"""How often each pair of a batch is in a semi-hard triplet, against a naive loop."""

import numpy as np
import pytest
from keras import ops

from tests.support.naive_triplets import random_rows
from tfdml.losses._semi_hard_weights import semi_hard_weights

pytestmark = [pytest.mark.backend, pytest.mark.slow]


@pytest.fixture(params=[10**6, 0], ids=["in turn", "by bisection"])
def few_positives(request):
    """Choose each of the two ways to the weights, whatever the number of positives."""
    return request.param


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("margin", [0.0, 0.25, 2.0])
def test_semi_hard_weights_follow_the_rule(seed, margin, few_positives):
    scores, positives, negatives = random_rows(seed)
    expected = np.zeros_like(scores)
    for a, p in zip(*np.nonzero(positives), strict=True):
        others = scores[a, negatives[a]]
        if len(others) == 0:
            continue
        farther = others[others > scores[a, p]]
        chosen = farther.min() if len(farther) else others.max()
        if chosen < scores[a, p] + margin:
            tied = negatives[a] & (scores[a] == chosen)
            expected[a, p] += 1
            expected[a, tied] -= 1 / tied.sum()
    received = semi_hard_weights(
        ops.convert_to_tensor(scores),
        positives,
        negatives,
        margin,
        few_positives=few_positives,
    )
    np.testing.assert_allclose(ops.convert_to_numpy(received), expected, atol=1e-12)
