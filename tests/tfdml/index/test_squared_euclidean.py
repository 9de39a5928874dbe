"""Indexes that compare by squared Euclidean distance, for embeddings of any length."""

import numpy as np
import pytest

from tests.support.refuses import refuses
from tfdml.index import (
    ExactIndex,
    LocalIndex,
    MilvusIndex,
    Range,
    load_index,
    near_duplicates,
    verify_index,
)
from tfdml.index.engines._settings import EngineLimits
from tfdml.neighbors import nearest_neighbors

KINDS = pytest.mark.parametrize("kind", [ExactIndex, LocalIndex])
GENERATOR = np.random.default_rng(0)
# Lengths from short to long: neither cosines nor dot products find the same.
ROWS = GENERATOR.normal(size=(60, 6)) * GENERATOR.uniform(0.1, 20, size=(60, 1))
QUERIES = GENERATOR.normal(size=(9, 6)) * 5


def naive(rows, query, k):
    """Return rows and scores, the nearest first, by plain loops in float64."""
    rows, query = rows.astype("float32"), query.astype("float32")
    scores = []
    for row in rows.astype("float64"):
        pairs = zip(row, query.astype("float64"), strict=True)
        scores.append(-sum((a - b) ** 2 for a, b in pairs))
    order = sorted(range(len(rows)), key=lambda i: -scores[i])[:k]
    return order, [scores[i] for i in order]


def check(index, rows, ids, k=5):
    found = index.search(QUERIES, k)
    for query, near, scores in zip(QUERIES, found.ids, found.scores, strict=True):
        expected, values = naive(rows, query, k)
        assert near.tolist() == [ids[row] for row in expected]
        np.testing.assert_allclose(scores, values, rtol=1e-6)


@KINDS
def test_nearest_are_those_at_the_smallest_distance(kind):
    index = kind.build(ROWS, metric="squared_euclidean")
    assert index.metric == index.stats().metric == "squared_euclidean"
    check(index, ROWS, list(range(60)))
    other = [i for i, _ in (naive(ROWS, q, 1) for q in QUERIES)]
    cosines, _ = nearest_neighbors(QUERIES, ROWS, 1)
    assert [row[0] for row in other] != cosines[:, 0].tolist()


@KINDS
def test_item_is_at_distance_0_from_itself(kind, tmp_path):
    index = kind.build(ROWS, metric="squared_euclidean")
    found = index.search(ROWS, 1)
    assert found.ids[:, 0].tolist() == list(range(60))
    assert found.scores.tolist() == [[0.0]] * 60
    assert not np.signbit(found.scores).any()
    index.save(tmp_path / "index")
    report = verify_index(tmp_path / "index")
    assert (report.problems, report.tried, report.found) == ((), 60, 60)


@KINDS
def test_changes_filters_and_files_keep_the_metric(kind, tmp_path):
    size = {"size": list(range(40))}
    index = kind.build(ROWS[:40], None, size, metric="squared_euclidean")
    index.add(ROWS[40:], list(range(40, 60)), {"size": list(range(40, 60))})
    index.remove([7, 50])
    left = [i for i in range(60) if i not in (7, 50)]
    check(index, ROWS[left], left)
    few = [i for i in left if 30 <= i <= 44]
    found = index.search(QUERIES, 4, where={"size": Range(30, 44)})
    for query, near in zip(QUERIES, found.ids, strict=True):
        assert near.tolist() == [few[row] for row in naive(ROWS[few], query, 4)[0]]
    index.save(tmp_path / "index")
    index.close()
    with load_index(tmp_path / "index") as loaded:
        assert loaded.metric == "squared_euclidean"
        check(loaded, ROWS[left], left)
        loaded.compact()
        check(loaded, ROWS[left], left)


def test_zeros_are_an_embedding_like_others():
    rows = np.array([[0.0, 0.0], [3.0, 4.0]])
    index = ExactIndex.build(rows, metric="squared_euclidean")
    found = index.search(np.zeros((1, 2)), 2)
    assert (found.ids.tolist(), found.scores.tolist()) == ([[0, 1]], [[0.0, -25.0]])


def test_large_gallery_is_compared_with_all_rows(monkeypatch):
    limits = EngineLimits(hashing_from=30, measured_from=30)
    monkeypatch.setattr(LocalIndex, "engine_limits", limits)
    index = LocalIndex.build(ROWS, metric="squared_euclidean")
    assert index.settings.method == "exact"
    assert "Squared Euclidean" in index.settings.reason
    assert index.recall.value == 1
    check(index, ROWS, list(range(60)))


def test_engines_of_codes_are_refused(tmp_path):
    refuses(
        LocalIndex.build,
        argument="engine",
        value="faiss",
        rule="must be 'exact' or left out",
        valid={"embeddings": ROWS, "metric": "squared_euclidean"},
    )
    index = LocalIndex.build(ROWS, metric="squared_euclidean")
    with pytest.raises(ValueError, match="must compare by cosine or dot product"):
        index.write_scann(tmp_path)
    refuses(
        MilvusIndex.build,
        argument="metric",
        value="squared_euclidean",
        rule="must be one of cosine, dot_product",
        valid={"embeddings": ROWS, "uri": "gallery.db", "collection": "c"},
    )


def test_near_duplicates_are_pairs_within_a_distance():
    rows = np.array([[0.0, 0], [0.3, 0], [0.55, 0], [50, 0], [50, 0.2], [9, 9]])
    index = ExactIndex.build(rows + 100, list("abcdef"), metric="squared_euclidean")
    found = near_duplicates(index, threshold=-0.1)
    pairs = zip(found.pairs.first, found.pairs.second, found.pairs.scores, strict=True)
    by_pair = {a + b: round(float(score), 3) for a, b, score in pairs}
    assert by_pair == {"ab": -0.09, "bc": -0.062, "de": -0.04}
    # `b` is nearest to all of its group.
    assert found.groups == [("b", "c", "a"), ("d", "e")]
    assert found.least_scores == pytest.approx([-0.09, -0.04], abs=1e-4)
    refuses(
        lambda threshold: near_duplicates(index, threshold=threshold),
        argument="threshold",
        value=0.95,
        rule="must be at most 0",
    )
