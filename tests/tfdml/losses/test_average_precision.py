"""FastAP and Smooth-AP against their definitions, item by item."""

import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, SEGMENT_ERROR, value_and_gradient
from tests.support.ranked_batches import batch, similarities, with_positives
from tfdml.losses import FastAPLoss, SmoothAPLoss

pytestmark = [pytest.mark.backend, pytest.mark.slow]


def naive_fast_ap(labels, s, bins):
    """1 - FastAP of each anchor with positives, triangular bins one by one."""
    values = np.zeros(len(labels))
    width = 4 / bins
    for a in range(len(labels)):
        others = np.arange(len(labels)) != a
        right = others & (labels == labels[a])
        if not right.any():
            continue
        precision, before, right_before = 0.0, 0.0, 0.0
        for node in range(bins + 1):
            near = np.maximum(0, 1 - np.abs(2 - 2 * s[a] - node * width) / width)
            before += near[others].sum()
            right_before += near[right].sum()
            if before > 0:
                precision += near[right].sum() * right_before / before
        values[a] = 1 - precision / right.sum()
    return values


def naive_smooth_ap(labels, s, temperature):
    """1 - Smooth-AP of each anchor with positives, positive by positive."""
    values = np.zeros(len(labels))
    for a in range(len(labels)):
        right = [i for i in range(len(labels)) if labels[i] == labels[a] and i != a]
        wrong = [i for i in range(len(labels)) if labels[i] != labels[a]]
        for i in right:
            above = {
                j: 1 / (1 + np.exp((s[a, i] - s[a, j]) / temperature))
                for j in [*right, *wrong]
            }
            before = 1 + sum(above[j] for j in right if j != i)
            total = before + sum(above[j] for j in wrong)
            values[a] += (1 - before / total) / len(right)
    return values


LOSSES = [
    (FastAPLoss(), lambda y, s: naive_fast_ap(y, s, 10)),
    (FastAPLoss(num_bins=1), lambda y, s: naive_fast_ap(y, s, 1)),
    (FastAPLoss(num_bins=37), lambda y, s: naive_fast_ap(y, s, 37)),
    (SmoothAPLoss(temperature=0.3), lambda y, s: naive_smooth_ap(y, s, 0.3)),
    (SmoothAPLoss(temperature=0.05), lambda y, s: naive_smooth_ap(y, s, 0.05)),
]
all_losses = pytest.mark.parametrize(("loss", "naive"), LOSSES)


def typed(loss, dtype, **changes):
    return type(loss).from_config({**loss.get_config(), "dtype": dtype, **changes})


@all_losses
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 2e-5)])
def test_values_are_those_of_the_definition(loss, naive, seed, dtype, tolerance):
    labels, embeddings = batch(seed)
    expected = naive(labels, similarities(embeddings))
    assert expected.any()
    received = typed(loss, dtype, reduction=None)(labels, embeddings.astype(dtype))
    scale = len(labels) / with_positives(labels)
    np.testing.assert_allclose(
        ops.convert_to_numpy(received), scale * expected, atol=tolerance
    )


@all_losses
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_gradients_are_the_slopes_of_the_definition(loss, naive, compiled):
    labels, embeddings = batch(7)
    weights = np.linspace(0.2, 1.7, len(labels))
    value, gradient = value_and_gradient(
        lambda x: typed(loss, "float64")(labels, x, sample_weight=weights),
        embeddings,
        compiled=compiled,
    )

    def function(x):
        return (naive(labels, similarities(x)) * weights).sum() / with_positives(labels)

    assert value == pytest.approx(function(embeddings), rel=1e3 * SEGMENT_ERROR)
    for place in np.ndindex(embeddings.shape):
        step = np.zeros_like(embeddings)
        step[place] = 1e-6
        slope = (function(embeddings + step) - function(embeddings - step)) / 2e-6
        assert gradient[place] == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_smooth_ap_of_tied_positives_has_the_gradient_of_the_definition():
    scores = np.array([[0.3, 0.3, 0.3, 0.5, 0.2, 0.1]])
    positives = np.array([[True, True, True, False, False, False]])
    loss = SmoothAPLoss(temperature=0.2, dtype="float64")
    _, gradient = value_and_gradient(
        lambda s: ops.sum(loss.pair_loss(s, positives, ~positives)),
        scores,
        compiled=BACKEND == "jax",
    )
    labels = np.array([0, 0, 0, 0, 1, 2, 3])

    def function(row):
        s = np.zeros((7, 7))
        s[0, 1:] = row
        return naive_smooth_ap(labels, s, 0.2)[0]

    for place in range(6):
        step = np.zeros(6)
        step[place] = 1e-6
        slope = (function(scores[0] + step) - function(scores[0] - step)) / 2e-6
        assert gradient[0, place] == pytest.approx(slope, abs=1e-7)


def test_smooth_ap_of_a_low_temperature_is_the_average_precision():
    labels, embeddings = batch(3)
    s = similarities(embeddings)
    values = []
    for a in range(len(labels)):
        order = [i for i in np.argsort(-s[a], kind="stable") if i != a]
        hits = labels[order] == labels[a]
        if hits.any():
            ranks = np.flatnonzero(hits) + 1
            values.append(1 - np.mean(np.arange(1, len(ranks) + 1) / ranks))
    # Row 4 equals row 1: ranks of equal items are shared, not strict.
    assert (labels == labels[4]).sum() == 1 or labels[1] == labels[4]
    loss = float(SmoothAPLoss(1e-4, dtype="float64")(labels, embeddings))
    assert loss == pytest.approx(np.mean(values), abs=0.05)


@all_losses
def test_anchor_without_negatives_has_the_loss_zero(loss, naive):
    labels, embeddings = np.zeros(6, int), batch(0, 6)[1]
    value, gradient = value_and_gradient(
        lambda x: typed(loss, "float64")(labels, x),
        embeddings,
        compiled=BACKEND == "jax",
    )
    assert value == 0
    assert not gradient.any()


@all_losses
def test_a_nan_among_the_scores_comes_to_light(loss, naive):
    labels, embeddings = batch(1)
    embeddings[2, 1] = np.nan
    assert np.isnan(float(loss(labels, embeddings.astype("float32"))))


def test_smooth_ap_takes_as_many_steps_as_the_largest_class():
    """A class of half the batch: the loop has one pass a positive."""
    labels, embeddings = np.repeat([0, 1], 20), batch(2, 40)[1]
    expected = naive_smooth_ap(labels, similarities(embeddings), 0.1).mean()
    value = float(SmoothAPLoss(0.1, dtype="float64")(labels, embeddings))
    assert value == pytest.approx(expected, rel=1e-9)


def test_queries_and_gallery_may_differ():
    scores = np.array([[0.9, 0.8, 0.1], [0.2, 0.3, 0.4]], "float32")
    positives = np.array([[True, False, True], [False, True, False]])
    value = SmoothAPLoss(1e-3).pair_loss(
        ops.convert_to_tensor(scores), positives, ~positives
    )
    # Ranks 1 and 3 of three: precisions 1 and 2/3. Rank 2: precision 1/2.
    np.testing.assert_allclose(
        ops.convert_to_numpy(value), [1 - (1 + 2 / 3) / 2, 1 / 2], atol=1e-6
    )


def test_half_precision_counts_large_batches():
    generator = np.random.default_rng(0)
    embeddings = generator.normal(size=(600, 4)).astype("float32")
    labels = np.repeat([0, 1], 300)
    with_half = float(FastAPLoss(dtype="bfloat16")(labels, embeddings))
    assert with_half == pytest.approx(float(FastAPLoss()(labels, embeddings)), rel=0.02)
