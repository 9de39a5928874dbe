"""The clustering loss against loops written from the paper and the authors' code."""

import numpy as np
import pytest
from keras import ops
from sklearn.metrics import normalized_mutual_info_score

from tests.support.autodiff import JIT, value_and_gradient
from tfdml.losses import ClusteringLoss

pytestmark = [pytest.mark.backend, pytest.mark.slow]


def clustering_of(distances, medoids):
    """Give each row to its nearest medoid, and each medoid to itself."""
    found = np.argmin(distances[:, medoids], axis=1)
    for place, row in enumerate(medoids):
        found[row] = place
    return found


def structured_margin(labels, distances, medoids):
    found = clustering_of(distances, medoids)
    return 1 - normalized_mutual_info_score(labels, found, average_method="geometric")


def naive_medoids(labels, distances, gamma, rounds):
    """Algorithms 1 and 2 of the paper, candidate by candidate."""
    count, medoids = len(set(labels)), []
    while len(medoids) < count:
        scores = {}
        for i in sorted(set(range(len(labels))) - set(medoids)):
            some = [*medoids, i]
            energy = -distances[:, some].min(axis=1).sum()
            scores[i] = energy + gamma * structured_margin(labels, distances, some)
        medoids.append(max(scores, key=scores.get))
    for _ in range(rounds):
        clusters = clustering_of(distances, medoids)
        for k in range(count):
            members, scores = np.flatnonzero(clusters == k), {}
            for j in members:
                some = [*medoids[:k], j, *medoids[k + 1 :]]
                energy = -distances[members, j].sum()
                scores[j] = energy + gamma * structured_margin(labels, distances, some)
            medoids[k] = max(scores, key=scores.get)
    return medoids


def naive_loss(labels, x, gamma, rounds):
    """Return the loss of unit rows and its gradient, by the definition."""
    distances = np.sqrt(np.maximum(((x[:, None] - x) ** 2).sum(2), 0))
    medoids = naive_medoids(labels, distances, gamma, rounds)
    nearest = np.array(medoids)[clustering_of(distances, medoids)]
    rows, own = np.arange(len(x)), np.empty(len(x), int)
    for label in set(labels):
        members = np.flatnonzero(labels == label)
        sums = distances[np.ix_(members, members)].sum(axis=0)
        own[members] = members[np.argmin(sums)]
    gap = (distances[rows, own] - distances[rows, nearest]).sum()
    gap += gamma * structured_margin(labels, distances, medoids)
    slopes = np.zeros_like(x)
    if gap > 0:
        for i in rows:
            for sign, j in ((1, own[i]), (-1, nearest[i])):
                if i != j:
                    direction = sign * (x[i] - x[j]) / distances[i, j]
                    slopes[i] += direction
                    slopes[j] -= direction
    return max(gap, 0), slopes


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def tangent(slopes, x):
    """The gradient before rows of length 1 were scaled to it."""
    return slopes - (slopes * x).sum(axis=1, keepdims=True) * x


@pytest.mark.parametrize(
    ("seed", "gamma", "rounds"),
    [(0, 1, 5), (1, 1, 0), (2, 10, 5), (3, 0, 5), (4, 100, 2), (5, 4, 1)],
)
def test_loss_and_gradient_equal_naive_loops(seed, gamma, rounds):
    generator = np.random.default_rng(seed)
    labels = np.repeat([7, 3, 5, 9, 4], [5, 4, 3, 2, 1])[generator.permutation(15)]
    x = unit(generator.normal(size=(15, 3)))
    loss = ClusteringLoss(gamma, rounds=rounds, dtype="float64")
    expected, slopes = naive_loss(labels, x, gamma, rounds)
    assert expected > 0
    value, gradient = value_and_gradient(lambda x: loss(labels, x), x)
    assert value == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(gradient, tangent(slopes, x), atol=1e-5)


@pytest.mark.parametrize("jit", JIT)
def test_loop_compiles_and_takes_classes_of_any_number(jit):
    generator = np.random.default_rng(8)
    loss = ClusteringLoss(dtype="float64")
    for classes in (1, 3, 12):
        labels, x = np.arange(12) % classes, unit(generator.normal(size=(12, 4)))
        value, gradient = value_and_gradient(
            lambda x, labels=labels: loss(labels, x), x, compiled=jit
        )
        expected, slopes = naive_loss(labels, x, 1.0, 5)
        assert value == pytest.approx(expected, abs=1e-6)
        np.testing.assert_allclose(gradient, tangent(slopes, x), atol=1e-5)
        assert (value == 0) == (classes in (1, 12))


def test_classes_that_are_the_best_clustering_cost_nothing():
    centers = np.eye(4)[np.repeat([0, 1, 2, 3], 3)]
    x = unit(centers + 0.01 * np.random.default_rng(0).normal(size=(12, 4)))
    labels = np.repeat([2, 7, 1, 8], 3)
    value, gradient = value_and_gradient(lambda x: ClusteringLoss()(labels, x), x)
    assert value == 0
    assert not gradient.any()
    mixed = np.tile([2, 7, 1, 8], 3)
    assert float(ClusteringLoss()(mixed, x)) > 10


def test_shares_of_the_anchors_have_the_loss_as_their_mean():
    generator = np.random.default_rng(4)
    labels, x = np.repeat([0, 1, 2], 4), unit(generator.normal(size=(12, 3)))
    shares = ClusteringLoss(reduction=None, dtype="float64")(labels, x)
    shares = ops.convert_to_numpy(shares)
    assert shares.mean() == pytest.approx(naive_loss(labels, x, 1.0, 5)[0], rel=1e-6)
    assert shares.min() < 0
