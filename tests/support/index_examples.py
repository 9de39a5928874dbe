"""Galleries, and what a search of them must return, shared by the tests of indexes."""

import numpy as np
import pytest

from tfdml.index import ExactIndex, LocalIndex
from tfdml.neighbors import nearest_neighbors

BOTH = pytest.mark.parametrize("index_class", [ExactIndex, LocalIndex])
METRICS = pytest.mark.parametrize("metric", ["cosine", "dot_product"])


def clustered(rows, dimension, clusters, queries=0):
    """Draw a gallery from Gaussian clusters, and queries from the same ones."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(clusters, dimension))
    noise = 0.5 * rng.normal(size=(rows + queries, dimension))
    points = centers[rng.integers(clusters, size=rows + queries)] + noise
    points = points.astype(np.float32)
    return (points[:rows], points[rows:]) if queries else points


def recall(found, true):
    hits = [len(set(a) & set(b)) for a, b in zip(found, true, strict=True)]
    return sum(hits) / true.size


def assert_finds(result, queries, embeddings, ids, k, metric, *, exactly):
    """Check a search against a comparison with all of these rows, in this order.

    Args:
        exactly: Whether scores must be equal to the last bit, and of equal scores the
            first row must come first. If not, scores may be off by float32's rounding,
            and rows whose scores are as close as that may change places.
    """
    ids = np.asarray(ids)
    k = min(k, len(ids))
    assert result.ids.shape == result.scores.shape == (len(queries), k)
    assert result.scores.dtype == np.float32
    if not k or not len(queries):
        return
    rows, scores = nearest_neighbors(queries, embeddings, k, metric=metric)
    if exactly:
        assert result.ids.tolist() == ids[rows].tolist()
        np.testing.assert_array_equal(result.scores, scores)
        return
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(result.scores, scores, **close)
    assert all(len(set(row)) == k for row in result.ids.tolist())
    # The score that each item has, not that of another one beside it.
    row_of = {value: row for row, value in enumerate(ids.tolist())}
    found = np.array([[row_of[value] for value in row] for row in result.ids.tolist()])
    left, right = queries.astype(np.float64), embeddings.astype(np.float64)
    if metric == "cosine":
        left = left / np.linalg.norm(left, axis=1, keepdims=True)
        right = right / np.linalg.norm(right, axis=1, keepdims=True)
    own = np.einsum("qd,qkd->qk", left, right[found])
    np.testing.assert_allclose(result.scores, own, **close)
