"""Searches of which a part may not be returned: removed, filtered, excluded."""

import numpy as np
import pytest

from tests.index_examples import BOTH
from tests.saved_indexes import use_method
from tfdml.index import ExactIndex, ScannIndex, searching


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
    monkeypatch.setattr(searching, "_FEW_ROWS", 60)
    monkeypatch.setattr(searching, "_ON", on)
    index = ScannIndex.build(directions(400), attributes=LEFT_OUT)
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


@pytest.mark.parametrize("index_class", [ExactIndex, ScannIndex])
def test_query_that_gets_all_there_is_for_it_is_not_searched_on(index_class, calls):
    index = index_class.build(np.eye(6))
    result = index.search(np.eye(6)[:2], 6, exclude=[[0, 1, 2], [5]])
    assert result.ids.shape == (2, 3)
    assert calls == ["searched"]


def test_many_queries_are_searched_in_blocks(monkeypatch):
    index = ExactIndex.build(directions(400), attributes=LEFT_OUT)
    own = [[row, (row + 1) % 400] for row in ROWS.tolist()]
    whole = index.search(directions(400), 3, where={"one in 8": False}, exclude=own)
    monkeypatch.setattr(searching, "_BLOCK_FOUND", 50)
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


@BOTH
@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        ("a", r"`exclude` must be a sequence of ids.*\['a'\]"),
        (7, r"`exclude` must be a sequence of ids.*\[7\]"),
        (np.array("a"), r"`exclude` must be a sequence of ids"),
        ([None], "`exclude` must be all strings or all integers.*NoneType"),
        ([True], "`exclude` must be all strings or all integers.*bool"),
        ([np.bool_(True)], "`exclude` must be all strings or all integers.*bool"),
        ([["a"], "b"], "`exclude` must hold ids, or a sequence of ids for each"),
        ([["a"]], "one sequence of ids for each of the 2 queries.*1"),
        ([["a"], ["b"], []], "one sequence of ids for each of the 2 queries.*3"),
        ([["a"], [["b"]]], "`exclude` must be a flat sequence"),
        ([["a"], [1]], "`exclude` must be of the kind that the index has, strings"),
        (np.array([[1], [2]]), "`exclude` must be of the kind that the index has"),
    ],
)
def test_bad_exclusions_are_refused(index_class, exclude, message):
    index = index_class.build(np.eye(2), ids=["a", "b"])
    with pytest.raises(ValueError, match=message):
        index.search(np.eye(2), exclude=exclude)


@pytest.mark.parametrize(
    ("exclude", "expected"),
    [
        ([], [["a", "b"], ["b", "a"]]),
        ([[], []], [["a", "b"], ["b", "a"]]),
        (["none", "none"], [["a", "b"], ["b", "a"]]),
        (["a", "none"], [["b"], ["b"]]),
        (np.array(["a"]), [["b"], ["b"]]),
        ({"a"}, [["b"], ["b"]]),
        ((word for word in ["a", "a"]), [["b"], ["b"]]),
        ([["a"], ["b", "b"]], [["b"], ["a"]]),
        (np.array([["a"], ["b"]]), [["b"], ["a"]]),
        (({"a"}, frozenset("b")), [["b"], ["a"]]),
        ([["a"], []], [["b"], ["b"]]),
        (["a", "b"], [[], []]),
        ([["a", "b"], []], [[], []]),
    ],
)
def test_excluded_ids_are_not_returned(exclude, expected):
    index = ExactIndex.build(np.eye(2), ids=["a", "b"])
    assert index.search(np.eye(2), exclude=exclude).ids.tolist() == expected
