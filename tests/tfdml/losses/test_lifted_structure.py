"""Lifted structure losses against golden numbers and naive loops."""

import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import value_and_gradient
from tfdml.losses import (
    CosineLiftedStructureLoss,
    GeneralizedLiftedStructureLoss,
    LiftedStructureLoss,
)

pytestmark = [pytest.mark.backend, pytest.mark.slow]


def random_batch(seed):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, 9)
    return labels, generator.normal(size=(9, 3))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_lifted_structure_loss_equals_a_naive_loop(seed, normalize):
    labels, x = random_batch(seed)
    loss = LiftedStructureLoss(0.7, normalize=normalize, dtype="float64")
    value = float(loss(labels, x))
    if normalize:
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    distance = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
    total, pairs = 0.0, 0
    for i in range(9):
        for j in range(i + 1, 9):
            if labels[i] != labels[j]:
                continue
            others = labels != labels[i]
            rivals = np.exp(0.7 - distance[i, others]).sum()
            rivals += np.exp(0.7 - distance[j, others]).sum()
            total += max(0, distance[i, j] + np.log(rivals)) ** 2
            pairs += 1
    assert value == pytest.approx(total / (2 * pairs), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_generalized_lifted_losses_equal_naive_loops(seed):
    labels, x = random_batch(seed)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    similarity = unit @ unit.T
    distance = np.sqrt(((unit[:, None] - unit[None]) ** 2).sum(-1))
    on_distance, on_similarity = [], []
    for i in range(9):
        right = (labels == labels[i]) & (np.arange(9) != i)
        wrong = labels != labels[i]
        if not right.any():
            continue
        value = np.log(np.exp(distance[i, right]).sum())
        value += np.log(np.exp(0.7 - distance[i, wrong]).sum())
        on_distance.append(max(0, value))
        value = np.log(np.exp(2 * (0.4 - similarity[i, right])).sum()) / 2
        value += np.log(np.exp(5 * similarity[i, wrong]).sum()) / 5
        on_similarity.append(max(0, value))
    loss = GeneralizedLiftedStructureLoss(0.7, dtype="float64")
    assert float(loss(labels, x)) == pytest.approx(np.mean(on_distance), rel=1e-9)
    loss = CosineLiftedStructureLoss(
        0.4, positive_scale=2, negative_scale=5, dtype="float64"
    )
    assert float(loss(labels, x)) == pytest.approx(np.mean(on_similarity), rel=1e-9)


def test_distances_of_a_thousand_do_not_overflow():
    x = np.array([[0, 0], [1000, 0], [0, 1], [3000, 0]], dtype="float32")
    labels = np.array([0, 0, 1, 1])
    # Row 1: 1000 apart from its positive, 1000 and 2000 from its negatives.
    loss = GeneralizedLiftedStructureLoss(
        1.0, normalize=False, reduction=None, dtype="float32"
    )
    values = ops.convert_to_numpy(loss(labels, x))
    assert values[1] == pytest.approx(1000 + 1 - 1000, abs=1e-2)
    whole = LiftedStructureLoss(1.0, normalize=False)
    value, gradient = value_and_gradient(lambda x: whole(labels, x), x)
    assert value == pytest.approx((1000**2 + 3000**2) / 4, rel=1e-2)
    assert np.all(np.isfinite(gradient))
