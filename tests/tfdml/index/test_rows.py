"""The rows of an index in memory: ids, attributes, and changes that break off."""

import dataclasses
import enum
import threading

import numpy as np
import pytest

from tests.support.index_examples import BOTH, METRICS
from tests.support.index_walk import Walk
from tests.support.peaks import peak_of
from tests.support.threads import before_next, together
from tfdml.index import ExactIndex
from tfdml.index import _checks as given
from tfdml.index.local import Limits, MemoryIndex
from tfdml.index.rows import Columns, check_attributes
from tfdml.index.rows._words import Words

# Attributes


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (np.array(["a", "b"]), "string", ["a", "b"]),
        ([np.str_("a"), None], "string", ["a", None]),
        (np.array(["a", None], object), "string", ["a", None]),
        (np.array([1, 2], np.uint8), "integer", [1, 2]),
        ([np.int16(1), 2], "integer", [1, 2]),
        (range(2), "integer", [0, 1]),
        (np.array([0.5, 2], np.float16), "number", [0.5, 2.0]),
        ([np.float32(0.5), 2], "number", [0.5, 2.0]),
        (np.array([True, False]), "boolean", [True, False]),
        ([np.bool_(True), None], "boolean", [True, None]),
        ((value for value in ("a", "b")), "string", ["a", "b"]),
    ],
)
def test_numpy_values_are_read_as_their_kind(values, kind, expected):
    checked = check_attributes({"x": values}, 2, {})
    assert checked == {"x": (kind, expected)}
    assert [type(value) for value in checked["x"][1]] == [*map(type, expected)]


class Name(str):
    """A string of another type."""


class Size(enum.IntEnum):
    SMALL = 1


def test_values_of_derived_types_become_plain_ones():
    given = {"size": [Size.SMALL, None], "name": [Name("a"), "b"]}
    checked = check_attributes(given, 2, {})
    assert checked == {"size": ("integer", [1, None]), "name": ("string", ["a", "b"])}
    assert [type(value) for _, own in checked.values() for value in own] == [
        int, type(None), str, str,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "a", True], "of one kind. Received: boolean and integer and string"),
        ([1, b"a", {}], "must hold strings, integers.* Received: bytes"),
        ([1, 2**63, 2**64], r"fit int64\. Received: \d+"),
        ([0.5, 2**63], r"fit int64\. Received: 9223372036854775808"),
        ([np.uint64(2**63)], "fit int64"),
        ([1.0, None, float("nan"), 2.0], "must be finite.*Received: nan"),
        ([np.float32(1), -np.inf], "must be finite.*Received: -inf"),
        ([*"abc", "d\0", "e"], "NUL. Received: 'd"),
        ([*"abc", "d\ud800", "e"], "valid Unicode"),
    ],
)
def test_one_wrong_value_of_many_is_named(values, message):
    more = values[:1] * 1_000 + values
    with pytest.raises(ValueError, match=rf"`attributes\['x'\]` .*{message}"):
        check_attributes({"x": more}, len(more), {})


def test_integers_are_floats_beside_floats():
    assert check_attributes({"x": [1, 0.5]}, 2, {}) == {"x": ("number", [1.0, 0.5])}
    checked = check_attributes({"x": [1, None]}, 2, {"x": "number"})
    assert checked == {"x": ("number", [1.0, None])}
    with pytest.raises(ValueError, match=r"must hold integers that a float rep"):
        check_attributes({"x": [2**53 + 1, 0.5]}, 2, {})


def test_attribute_without_a_value_is_none():
    assert check_attributes({"x": [None, None]}, 2, {}) == {}
    assert check_attributes({"x": []}, 0, {}) == {}
    assert check_attributes(None, 2, {"x": "string"}) == {}


def test_attribute_stays_known_when_nobody_has_it_any_more():
    index = ExactIndex.build(np.eye(3))
    index.update([1], attributes={"class": ["shoe"]})
    assert index.get([0, 1, 2]).attributes == [{}, {"class": "shoe"}, {}]
    index.remove([1])
    index.compact()
    assert dict(index.stats().attributes) == {"class": "string"}
    assert index.count({"class": "shoe"}) == 0


def test_texts_of_items_that_are_gone_are_not_kept():
    index = ExactIndex.build(np.eye(3), attributes={"file": ["a", "b", None]})
    index.add(np.eye(3)[:2], [3, 4], {"file": ["c", "b"]})
    index.remove([0, 3])
    index.compact()
    assert index._table.columns["file"].words == ["b"]
    index.add(np.eye(3)[:1], [5], {"file": ["c"]})
    found = index.get([1, 2, 4, 5]).attributes
    assert found == [{"file": "b"}, {}, {"file": "b"}, {"file": "c"}]
    assert index.count({"file": ["a", "c"]}) == 1


def test_attribute_of_items_that_went_while_compacting_stays_known(monkeypatch):
    index = ExactIndex.build(np.eye(3))
    index.remove([0])

    def come_and_go():
        index.add(2 * np.eye(3)[:1], [3], {"size": [42]})
        index.remove([3])

    before_next(monkeypatch, index, "_build_again", come_and_go)
    index.compact()
    assert index.count({"size": 42}) == 0


@pytest.mark.parametrize("first", [["a", "b", "c"], ["a", "b", "a"], ["a"], []])
def test_words_are_numbered_once_each_in_order(first):
    words = Words([])
    before = [words.number(word) for word in "ab"]  # by a search that has begun
    assert before == [-1, -1]
    given = [*first, "b", "d", "b", "a"]
    numbers = [*words.add(first), *words.add(given[len(first) :])]
    distinct = list(dict.fromkeys(given))
    assert words.strings == distinct
    assert numbers == [distinct.index(word) for word in given]
    for same in (words, Words(list(distinct))):
        found = [same.number(word) for word in [*distinct, "z"]]
        assert found == [*range(len(distinct)), -1]


def test_words_are_found_while_others_are_added():
    words = Words([f"old {n}" for n in range(200)])
    started = threading.Event()

    def read():
        started.set()
        for n in range(2_000):
            number = words.number(f"new {n}")
            assert number in (-1, 200 + n)
            assert number < len(words.strings)
            assert words.number(f"old {n % 200}") == n % 200

    def write():
        started.wait()
        for n in range(2_000):
            assert words.add([f"new {n}", "old 7"]).tolist() == [200 + n, 7]

    together(read, read, write)


def test_values_of_a_failed_change_are_written_over():
    columns = Columns().with_rows(0, check_attributes({"x": ["a", "b"]}, 2, {}), 2)
    seen = columns.view(2)
    columns.with_rows(2, check_attributes({"x": ["c"], "y": [1]}, 1, {}), 1)
    columns = columns.with_rows(2, check_attributes({"x": ["d"]}, 1, {}), 1)
    assert columns.kinds == {"x": "string"}
    view = columns.view(3)["x"]
    assert view.values_at(np.arange(3)) == ["a", "b", "d"]
    assert seen["x"].values_at(np.arange(2)) == ["a", "b"]


# Changes


@pytest.fixture
def fewer_shortcuts(monkeypatch):
    """Have small galleries searched like large ones: by asking for more than enough."""
    limits = Limits(few_rows=2, fewest_share=50, spare=0.1, on=2)
    monkeypatch.setattr(MemoryIndex, "limits", limits)


@BOTH
def test_large_parts_are_searched_like_a_dictionary(index_class, fewer_shortcuts):
    walk = Walk(index_class.build, "cosine", "string", seed=2, rows=40)
    for _ in range(25):
        walk.step()


@pytest.mark.full
@BOTH
@METRICS
@pytest.mark.parametrize("rows", [0, 60])
@pytest.mark.parametrize(("id_kind", "seed"), [("integer", 10), ("string", 11)])
def test_many_steps_hold_and_find_what_a_dictionary_holds(
    index_class, metric, id_kind, rows, seed, request
):
    if rows:
        request.getfixturevalue("fewer_shortcuts")
    walk = Walk(index_class.build, metric, id_kind, seed, rows)
    for _ in range(150):
        walk.step()


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
    walk = Walk(ExactIndex.build, "cosine", "string", seed=3, rows=10)
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
