"""Searches of which a part may not be returned: removed, filtered, excluded."""

import numpy as np
import pytest

from tests.support.saved_indexes import use_method
from tfdml.index import ExactIndex, LocalIndex
from tfdml.index.local import Limits
from tfdml.index.local import _searching as searching
from tfdml.index.rows import Snapshot, banned_rows
from tfdml.neighbors import ExactSearcher, nearest_neighbors


@pytest.fixture
def calls(monkeypatch):
    """Return a list of the ways in which rows were searched for."""
    made = []
    searched, among = searching._searched, searching._among

    def record_searched(*args, times=1):
        if isinstance(args[1], int):
            made.append("searched" if times == 1 else "searched on")
        return searched(*args, times=times)

    def record_among(*args):
        made.append("compared")
        return among(*args)

    monkeypatch.setattr(searching, "_searched", record_searched)
    monkeypatch.setattr(searching, "_among", record_among)
    return made


def directions(count):
    """Draw unit vectors in a plane, at equal angles: row i is nearest to i +- 1."""
    angles = 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


ROWS = np.arange(400)
NEAR_ZERO = [*range(15), *range(385, 400)]
LEFT_OUT = {
    "one in 8": (ROWS % 8 == 1).tolist(),
    "half": ["near" if row < 190 else "far" for row in ROWS],
    "few": (ROWS % 40 == 7).tolist(),
}


@pytest.mark.parametrize("method", ["exact", "hashing", "tree"])
@pytest.mark.parametrize(
    ("where", "exclude", "on", "expected"),
    [
        # Few are left out everywhere: the first that are asked for are enough.
        ({"one in 8": False}, None, 16, ["searched"]),
        # Half are left out, and to the second query they are the nearest of all.
        ({"half": "far"}, None, 16, ["searched", "searched on"]),
        ({"half": "far"}, None, 2, ["searched", "searched on", "compared"]),
        ({"few": True}, None, 16, ["compared"]),
        (None, [[0, 1, 399], [200]], 16, ["searched"]),
        (None, list(range(0, 400, 2)), 16, ["searched"]),
        (None, NEAR_ZERO, 16, ["searched", "searched on"]),
        (None, NEAR_ZERO, 2, ["searched", "searched on", "compared"]),
        (None, [NEAR_ZERO, []], 16, ["searched"]),
    ],
)
def test_searchers_are_asked_for_more_until_all_have_enough(
    method, where, exclude, on, expected, calls, monkeypatch
):
    use_method(method, monkeypatch.setattr)
    index = LocalIndex.build(directions(400), attributes=LEFT_OUT)
    index.limits = Limits(few_rows=60, on=on)
    assert index.settings.method == method
    queries = [0, 100]
    result = index.search(directions(400)[queries], 5, where=where, exclude=exclude)
    assert calls == expected
    (name, value), *_ = where.items() if where else [("one in 8", None)]
    for place, found in enumerate(result.ids.tolist()):
        excluded = exclude or []
        if excluded and isinstance(excluded[0], list):
            excluded = excluded[place]
        allowed = [
            row
            for row in ROWS.tolist()
            if row not in excluded and (value is None or LEFT_OUT[name][row] == value)
        ]
        steps = abs(ROWS - queries[place])
        steps = np.minimum(steps, 400 - steps)  # two rows are as near, on each side
        assert set(found) <= set(allowed)
        assert len(set(found)) == 5
        assert sorted(steps[found].tolist()) == sorted(steps[allowed].tolist())[:5]


@pytest.mark.parametrize("index_class", [ExactIndex, LocalIndex])
def test_query_that_gets_all_there_is_for_it_is_not_searched_on(index_class, calls):
    index = index_class.build(np.eye(6))
    result = index.search(np.eye(6)[:2], 6, exclude=[[0, 1, 2], [5]])
    assert result.ids.shape == (2, 3)
    assert calls == ["searched"]


def test_many_queries_are_searched_in_blocks():
    index = ExactIndex.build(directions(400), attributes=LEFT_OUT)
    own = [[row, (row + 1) % 400] for row in ROWS.tolist()]
    whole = index.search(directions(400), 3, where={"one in 8": False}, exclude=own)
    index.limits = Limits(block_found=50)
    blocks = index.search(directions(400), 3, where={"one in 8": False}, exclude=own)
    assert blocks.ids.tolist() == whole.ids.tolist()
    np.testing.assert_array_equal(blocks.scores, whole.scores)


def test_thousands_of_ids_may_be_excluded():
    count = 6000
    index = ExactIndex.build(directions(count))
    near = [*range(2501), *range(count - 2500, count)]
    result = index.search(directions(count)[:1], 2, exclude=near)
    assert sorted(result.ids[0].tolist()) == [2501, 3499]
    result = index.search(directions(count)[:2], 2, exclude=[near, near[:2499]])
    assert sorted(result.ids[0].tolist()) == [2501, 3499]
    assert result.ids[1].tolist() == [5999, 5998]


@pytest.mark.parametrize("index_class", [ExactIndex, LocalIndex])
def test_few_rows_at_a_time_are_copied_to_be_compared_with(index_class, monkeypatch):
    copied = []
    right = Snapshot.embeddings_of

    def embeddings_of(state, rows):
        copied.append(len(rows))
        return right(state, rows)

    monkeypatch.setattr(Snapshot, "embeddings_of", embeddings_of)
    rows = directions(40)[[*range(40), *range(40)]]  # each is there twice
    allowed = [row % 3 == 0 for row in range(80)]
    index = index_class.build(rows[:60], attributes={"allowed": allowed[:60]})
    index.limits = Limits(block_numbers=2 * 7)
    index.add(rows[60:], range(60, 80), {"allowed": allowed[60:]})
    exclude = [[0, 3], [], [39], [6, 9, 60, 63]]
    found = index.search(rows[:4], 25, where={"allowed": True}, exclude=exclude)
    assert max(copied) == 7
    assert sum(copied) == sum(allowed)
    banned = [
        [row for row in range(80) if not allowed[row] or row in own] for own in exclude
    ]
    width = 80 - max(map(len, banned))
    for query, own in enumerate(banned):
        ids, scores = nearest_neighbors(
            rows[query : query + 1], rows, min(25, width), exclude=[own]
        )
        assert found.ids[query].tolist() == ids[0].tolist()
        np.testing.assert_array_equal(found.scores[query], scores[0])


def test_query_that_excludes_many_has_the_others_search_for_no_more(monkeypatch):
    asked = []
    right = ExactSearcher.nearest

    def nearest(searcher, queries, k, *more):
        asked.append((len(queries), k))
        return right(searcher, queries, k, *more)

    monkeypatch.setattr(ExactSearcher, "nearest", nearest)
    index = ExactIndex.build(directions(3_000))
    near = [*range(1_000), *range(2_001, 3_000)]
    exclude = [[7], near, *([] for _ in range(98))]
    found = index.search(directions(3_000)[:100], 2, exclude=exclude).ids
    assert sum(queries for queries, _ in asked) == 100
    assert sum(queries * k for queries, k in asked) < len(near) + 100 * 10
    assert found[0].tolist() == [0, 1]
    assert found[1].tolist() == [1_000, 1_001]
    assert found[9, 0] == 9


def test_exclusions_take_room_for_themselves_alone():
    rows = [np.arange(1_000), *(np.array([-1]) for _ in range(99)), np.array([4, 3, 4])]
    pairs = banned_rows(rows)
    assert pairs.shape == (2, 1_002)
    assert pairs[:, 1_000:].tolist() == [[100, 100], [3, 4]]
    assert banned_rows([]).shape == (2, 0)
