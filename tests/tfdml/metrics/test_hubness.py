"""Hubness against its definition, and against numbers worked out by hand."""

import numpy as np
import pytest

from tfdml.metrics import hubness, hubness_of_occurrences, k_occurrences


def naive(neighbors, gallery):
    """How many rows hold each item, and the four numbers, one item after the other."""
    counts = [sum(item in row for row in neighbors) for item in range(gallery)]
    mean = sum(counts) / gallery
    second, third = (sum((n - mean) ** p for n in counts) / gallery for p in (2, 3))
    return counts, {
        "skewness": third / second**1.5,
        "anti_hubs": counts.count(0) / gallery,
        "largest": max(counts),
        "mean": mean,
    }


def random_neighbors(queries=40, k=3, gallery=25):
    generator = np.random.default_rng(5)
    # Low items come first more often: they are hubs.
    scores = generator.exponential(1 + np.arange(gallery), (queries, gallery))
    return np.argsort(scores, axis=1)[:, :k], gallery


def test_hubness_equals_the_definition():
    neighbors, gallery = random_neighbors()
    counts, expected = naive(neighbors.tolist(), gallery)
    assert k_occurrences(neighbors, gallery).tolist() == counts
    assert hubness(neighbors, gallery) == pytest.approx(expected, rel=1e-12)
    assert expected["anti_hubs"] > 0


def test_one_hub_among_four_items():
    # Counts 1, 3, 0, 0: mean 1, second moment 6 / 4, third moment 6 / 4.
    received = hubness([[1], [0], [1], [1]], gallery=4)
    assert received["skewness"] == pytest.approx(1.5 / 1.5**1.5, rel=1e-12)
    assert received["anti_hubs"] == 0.5
    assert received["largest"] == 3
    assert received["mean"] == 1


def test_items_that_occur_equally_often_have_no_skewness():
    received = hubness([[0, 1], [1, 2], [2, 0]], gallery=3)
    assert received == {"skewness": 0, "anti_hubs": 0, "largest": 2, "mean": 2}


def test_order_within_a_row_does_not_matter():
    neighbors, gallery = random_neighbors()
    assert hubness(neighbors[:, ::-1], gallery) == hubness(neighbors, gallery)


def test_neighbors_are_not_modified():
    neighbors, gallery = random_neighbors()
    before = neighbors.copy()
    hubness(neighbors, gallery)
    np.testing.assert_array_equal(neighbors, before)


@pytest.mark.parametrize(
    ("neighbors", "gallery", "error", "message"),
    [
        ([0, 1], 2, ValueError, r"`neighbors` must be \[Q, k\].*\(2,\)"),
        (np.zeros((0, 3), int), 2, ValueError, "`neighbors` must be .* at least one"),
        (np.zeros((3, 0), int), 2, ValueError, "`neighbors` must be .* at least one"),
        ([[0.0]], 2, TypeError, "`neighbors` must be integers.*float64"),
        ([[0], [2]], 2, ValueError, "`neighbors` must be from 0 to 1.*2 in row 1"),
        ([[0], [-1]], 2, ValueError, "`neighbors` must be from 0 to 1.*-1 in row 1"),
        ([[0, 1], [1, 1]], 2, ValueError, r"twice in a row.*\[1, 1\] in row 1"),
        ([[0]], 0, ValueError, "`gallery` must be a whole number"),
    ],
)
def test_wrong_neighbors_are_named(neighbors, gallery, error, message):
    with pytest.raises(error, match=message):
        hubness(neighbors, gallery)


@pytest.mark.parametrize(
    ("occurrences", "error", "message"),
    [
        ([[1]], ValueError, r"`occurrences` must be \[gallery\]"),
        ([], ValueError, "`occurrences` must be .* at least one item"),
        ([0.5], TypeError, "`occurrences` must be integers"),
        ([3, -1], ValueError, "`occurrences` must be at least 0. Received: -1"),
    ],
)
def test_wrong_occurrences_are_named(occurrences, error, message):
    with pytest.raises(error, match=message):
        hubness_of_occurrences(occurrences)
