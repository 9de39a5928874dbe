"""The recall of an index as it is now, measured with queries of its users."""

import numpy as np
import pytest

from tests.support.installed import skip_without
from tests.support.refuses import refuses
from tfdml.index import LocalIndex
from tfdml.index.engines import _settings as of_engines
from tfdml.neighbors import nearest_neighbors

pytest.importorskip("faiss")


@pytest.fixture
def points():
    """Embeddings without clusters, in which a coarse engine misses many."""
    return np.random.default_rng(0).normal(size=(700, 24))


def test_exact_search_finds_all(points):
    index = LocalIndex.build(points[:600])
    assert index.measure_recall(points[600:]).tolist() == [1.0] * 100


def test_what_an_engine_misses_is_told(points, monkeypatch):
    skip_without("scann")
    limits = of_engines.EngineLimits(measured_from=400)
    monkeypatch.setattr(LocalIndex, "engine_limits", limits)
    index = LocalIndex.build(
        points[:600], engine="scann", metric="dot_product", target_recall=0.5
    )
    queries = points[600:]
    true, _ = nearest_neighbors(queries, points[:600], 10, metric="dot_product")
    found = index.search(queries, 10).ids
    expected = [len({*a} & {*b}) / 10 for a, b in zip(found, true, strict=True)]
    assert min(expected) < 1
    assert index.measure_recall(queries).tolist() == pytest.approx(expected)


def test_items_that_were_added_and_removed_count_as_they_are_now(points):
    index = LocalIndex.build(points[:600], [f"{i}" for i in range(600)])
    index.add(points[600:], [f"{i}" for i in range(600, 700)])
    index.remove([f"{i}" for i in range(100)])
    assert index.measure_recall(points[600:], k=3).tolist() == [1.0] * 100


def test_fewer_items_than_neighbors_are_all_found(points):
    index = LocalIndex.build(points[:4])
    assert index.measure_recall(points[:2]).tolist() == [1.0, 1.0]


def test_bad_arguments_are_refused(points):
    index = LocalIndex.build(points[:20])
    valid = {"queries": points[:2]}
    refuses(index.measure_recall, argument="k", value=0, rule="at least 1", valid=valid)
    refuses(
        index.measure_recall,
        argument="queries",
        value=points[:2, :5],
        rule="24",
        received="",
    )


def test_index_without_items_is_refused(points):
    index = LocalIndex.build(points[:1], ["only"])
    index.remove(["only"])
    with pytest.raises(ValueError, match="at least one item"):
        index.measure_recall(points[:1])
