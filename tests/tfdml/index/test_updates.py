"""Changes of an index, against a dictionary of its rows after each step."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

from tests.support.index_examples import BOTH, METRICS
from tests.support.index_walk import Walk
from tfdml.index import ExactIndex
from tfdml.index import _checks as given
from tfdml.index.local import Limits, LocalIndex


@pytest.fixture
def fewer_shortcuts(monkeypatch):
    """Have small galleries searched like large ones: by asking for more than enough."""
    limits = Limits(few_rows=2, fewest_share=50, spare=0.1, on=2)
    monkeypatch.setattr(LocalIndex, "limits", limits)


@BOTH
@METRICS
@pytest.mark.parametrize("id_kind", ["integer", "string"])
def test_index_holds_and_finds_what_a_dictionary_holds(index_class, metric, id_kind):
    walk = Walk(index_class, metric, id_kind, seed=1)
    for _ in range(25):
        walk.step()


@BOTH
def test_large_parts_are_searched_like_a_dictionary(index_class, fewer_shortcuts):
    walk = Walk(index_class, "cosine", "string", seed=2, rows=40)
    for _ in range(25):
        walk.step()


@pytest.mark.slow
@BOTH
@METRICS
@pytest.mark.parametrize("rows", [0, 60])
@pytest.mark.parametrize(("id_kind", "seed"), [("integer", 10), ("string", 11)])
def test_many_steps_hold_and_find_what_a_dictionary_holds(
    index_class, metric, id_kind, rows, seed, request
):
    if rows:
        request.getfixturevalue("fewer_shortcuts")
    walk = Walk(index_class, metric, id_kind, seed, rows)
    for _ in range(150):
        walk.step()


# Bad changes


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (np.ones(3), r"`embeddings`.*vector\[None, :\]"),
        (np.ones((2, 4)), r"dimension of the index, 3.*shape=\(2, 4\)"),
        ([[1, 2, 3], [0, 0, 0]], "`embeddings` must not have a row of zeros.*row 1"),
        ([[1, 2, 3], [1, np.inf, 0]], "`embeddings` must be finite.*row 1"),
        ([[1, 2, 3], [1, 2]], r"`embeddings` must be an array \[rows, D\]"),
        ([["a", "b", "c"]] * 2, "`embeddings` must hold real numbers"),
        (np.ones((1, 3)), "`ids` must hold one id for each of the 1 rows.*2 ids"),
        (np.ones((0, 3)), "`ids` must hold one id for each of the 0 rows.*2 ids"),
    ],
)
def test_bad_embeddings_are_refused_and_nothing_changes(embeddings, message):
    index = ExactIndex.build(np.eye(3))
    with pytest.raises(ValueError, match=message):
        index.add(embeddings, [7, 8])
    with pytest.raises(ValueError, match=message):
        index.update([0, 1], embeddings)
    assert index.ids.tolist() == [0, 1, 2]
    assert index.get([0, 1, 2]).embeddings.tolist() == np.eye(3).tolist()
    with pytest.raises(ValueError, match="`update` must be given"):
        index.update([0])


def test_added_embeddings_are_copied():
    index = ExactIndex.build(np.eye(2, dtype=np.float32))
    rows = np.float32([[3, 4]])
    index.add(rows, [2])
    rows[:] = np.nan
    assert index.get([2]).embeddings.tolist() == [[3, 4]]
    index.get([2]).embeddings[:] = np.nan
    assert index.search([[3, 4]], 1).scores.tolist() == [[1]]


@BOTH
def test_embeddings_are_copied_before_they_are_checked(index_class, monkeypatch):
    # ScaNN ends the process on a NaN that comes in between.
    rows = np.eye(3, dtype=np.float32)
    check = given.as_embeddings

    def changed_after_the_check(name, values, *, unit):
        checked = check(name, values, unit=unit)
        rows[:] = np.nan
        return checked

    monkeypatch.setattr(given, "as_embeddings", changed_after_the_check)
    index = index_class.build(rows)
    assert index.get([0, 1, 2]).embeddings.tolist() == np.eye(3).tolist()
    rows[:] = np.eye(3)
    index.add(rows, [3, 4, 5])
    assert index.get([3, 4, 5]).embeddings.tolist() == np.eye(3).tolist()


def breaking_off(write, error):
    def break_off(*args):
        write(*args)
        raise error

    return break_off


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("_embeddings", "put"),
        ("_ids", "put"),
        ("_columns", "with_rows"),
        ("_map", "append"),
    ],
)
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_change_that_breaks_off_changes_nothing(where, name, error, monkeypatch):
    walk = Walk(ExactIndex, "cosine", "string", seed=3, rows=10)
    walk.add()
    embeddings, ids, classes = walk.new(3)
    for _ in range(2):
        part, known = getattr(walk.index._table, where), list(walk.model.rows)[:2]
        with monkeypatch.context() as patch:
            patch.setattr(part, name, breaking_off(getattr(part, name), error))
            with pytest.raises(error):
                walk.index.add(embeddings, ids, {"class": classes, "new": [1, 2, 3]})
            with pytest.raises(error):
                walk.index.update(known, attributes={"class": ["x"] * 2})
        walk.check()
        assert set(walk.index.stats().attributes) == {"class"}
        for _ in range(5):
            walk.step()


# Memory


def peak_of(call):
    """Return how many bytes a call has taken at most."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("width", [1, 20])
def test_change_of_one_item_copies_neither_gallery_nor_ids(width):
    rows = 40_000
    gallery = np.ones((rows, 16), np.float32)
    ids = [f"{row:06}" for row in range(rows)]
    index = ExactIndex.build(gallery, ids, {"class": ["x"] * rows})
    # The first changes sort the ids and make room for more attributes.
    index.remove(ids[:1])
    index.add(gallery[:1], ids[:1], {"class": ["y"]})
    new = ["n" * width]
    # A mark for each row may be copied; the ids have 24 bytes a row, embeddings 64.
    most = 4 * rows
    assert peak_of(lambda: index.remove(ids[1:2])) < most
    assert peak_of(lambda: index.add(gallery[:1], new, {"class": ["y"]})) < most
    assert peak_of(lambda: index.update(new, 2 * gallery[:1])) < most
    assert peak_of(lambda: index.get(new)) < most
    assert peak_of(lambda: index.remove(new)) < most


def test_search_of_an_unchanged_index_does_no_more_than_its_searcher():
    index = ExactIndex.build(np.eye(50, dtype=np.float32), [f"{n}" for n in range(50)])
    asked = []

    class Searcher:
        def nearest(self, queries, k):
            asked.append((queries, k))
            return np.zeros((len(queries), k), np.int64), np.zeros((len(queries), k))

    state = dataclasses.replace(index._table.snapshot, searcher=Searcher())
    index._table.snapshot = state
    queries = np.ones((1, 50), np.float32)
    index.search(queries, 3)
    assert asked[0][0] is queries
    assert asked[0][1] == 3
    assert set(vars(state)) - {f.name for f in dataclasses.fields(state)} <= {"count"}
