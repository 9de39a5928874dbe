"""K-reciprocal distances against loops over whole matrices in float64."""

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.neighbors import KReciprocalDistances


def drawn(count, dimension=5, clusters=8, seed=0):
    generator = np.random.default_rng(seed)
    centers = generator.normal(size=(clusters, dimension))
    noise = 0.6 * generator.normal(size=(count, dimension))
    return centers[np.arange(count) % clusters] + noise


def naive(embeddings, k1, k2, weight):
    """Follow the paper over matrices `[N, N]`."""
    count = len(embeddings)
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = np.divide(embeddings, np.where(lengths > 0, lengths, 1))
    plain = np.maximum(2 - 2 * unit @ unit.T, 0)
    farthest = plain.max(axis=1, keepdims=True)
    plain /= np.where(farthest > 0, farthest, 1)
    ranked = []
    for item in range(count):
        # Of equal ones the first, as they are rounded in a search.
        cosines = (unit[item] @ unit.T).astype(np.float32)
        others = [other for other in range(count) if other != item]
        ranked.append([item, *sorted(others, key=lambda o, c=cosines: (-c[o], o))])

    def mutual(item, k):
        return {
            other for other in ranked[item][: k + 1] if item in ranked[other][: k + 1]
        }

    vectors = np.zeros((count, count))
    for item in range(count):
        own = mutual(item, k1)
        joined = set(own)
        for other in own:
            theirs = mutual(other, int(np.around(k1 / 2)))
            if len(theirs & own) > 2 / 3 * len(theirs) + 1e-12:
                joined |= theirs
        for other in joined:
            vectors[item, other] = np.exp(-plain[item, other])
        vectors[item] /= vectors[item].sum()
    if k2 > 1:
        vectors = np.stack([vectors[own[:k2]].mean(axis=0) for own in ranked])
    result = np.zeros((count, count))
    for one in range(count):
        for other in range(count):
            common = np.minimum(vectors[one], vectors[other]).sum()
            jaccard = 1 - common / (2 - common)
            result[one, other] = (1 - weight) * jaccard + weight * plain[one, other]
    return result


@pytest.mark.parametrize(
    ("k1", "k2", "weight"),
    [(20, 6, 0.3), (1, 1, 0.0), (5, 1, 0.5), (7, 8, 0.3), (59, 60, 0.3), (6, 3, 1.0)],
)
def test_distances_are_those_of_the_paper(k1, k2, weight):
    rows = drawn(60)
    distances = KReciprocalDistances(rows, k1=k1, k2=k2, weight=weight)
    found = distances.of(np.arange(60))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, naive(rows, k1, k2, weight), atol=2e-6)
    np.testing.assert_array_equal(distances.of([7, 3]), found[[7, 3]])
    assert distances.of([]).shape == (0, 60)


def test_equal_rows_and_rows_of_zeros_are_compared():
    rows = drawn(40)
    rows[5:12] = rows[4]
    rows[30:33] = 0
    found = KReciprocalDistances(rows, k1=6, k2=3).of(np.arange(40))
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (found <= 1).all()
    same = KReciprocalDistances(np.ones((5, 3)), k1=2, k2=2).of(np.arange(5))
    assert np.isfinite(same).all()


def test_blocks_do_not_change_the_distances(monkeypatch):
    rows = drawn(60)
    whole = KReciprocalDistances(rows, k1=8, k2=4).of(np.arange(60))
    monkeypatch.setattr("tfdml.neighbors._reciprocal._AT_ONCE", 300)
    parts = KReciprocalDistances(rows, k1=8, k2=4).of(np.arange(60))
    np.testing.assert_array_equal(parts, whole)


@refusals(
    ("k1", 0, "must be a whole number of at least 1"),
    ("k1", 60, "must be from 1 to 59"),
    ("k2", 0, "must be a whole number of at least 1"),
    ("k2", 22, "must be from 1 to 21"),
    ("weight", 1.1, "must be from 0 to 1"),
    ("embeddings", np.ones(3), "must have the shape"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    valid = {"embeddings": drawn(60)}
    refuses(
        KReciprocalDistances, argument=argument, value=value, rule=rule, valid=valid
    )
