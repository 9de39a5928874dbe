"""The rows of an index in memory: ids, attributes, and changes that break off."""

import dataclasses
import enum
import tracemalloc

import numpy as np
import pytest

from tests.support.index_examples import BOTH, METRICS
from tests.support.index_walk import Walk
from tests.support.threads import before_next
from tfdml.index import ExactIndex
from tfdml.index import _checks as given
from tfdml.index.local import Limits, LocalIndex
from tfdml.index.rows import (
    Columns,
    IdMap,
    Texts,
    check_attributes,
    check_ids,
    read_ids,
    stored,
)
from tfdml.index.rows._texts import GrowingTexts

# Ids


class Name(str):
    """A string of another type."""


@BOTH
@pytest.mark.parametrize("compacted", [False, True])
def test_emptied_index_takes_ids_of_the_other_kind(index_class, compacted, tmp_path):
    index = index_class.build(np.eye(2), ids=[1, 2], attributes={"class": ["x", "y"]})
    index.save(tmp_path)
    index.remove([1, 2])
    if compacted:
        index.compact()
    for unknown in ([1], ["a"]):
        with pytest.raises(KeyError, match="must be in the index"):
            index.get(unknown)
        assert index.search(np.eye(2), exclude=unknown).ids.shape == (2, 0)
    index.add([[2.0, 1.0]], ["a"], {"class": ["x"]})
    index.close()
    for same in (index, index_class.load(tmp_path)):  # the log is read without it
        assert same.ids.tolist() == ["a"]
        assert same.search(np.eye(2)).ids.tolist() == [["a"], ["a"]]
        assert same.get(["a"]).attributes == [{"class": "x"}]
        assert same.count({"class": "y"}) == 0
        with pytest.raises(ValueError, match="strings"):
            same.get([1])


@pytest.mark.parametrize("width", [1, 2, 5])
def test_map_leads_to_rows_whatever_the_width_of_ids(width):
    rng = np.random.default_rng(0)
    letters = np.array(list("abc"))
    words = ["".join(rng.choice(letters, rng.integers(width + 1))) for _ in range(80)]
    own, added = list(dict.fromkeys(words)), ["x", "long" * width, "y"]
    id_map = IdMap(check_ids(own))
    id_map.append(check_ids(added), len(own))
    rows = {value: row for row, value in enumerate(own + added)}
    asked = [*rows, "z", "a" * 3 * width, *(word + "b" for word in own), "long"]
    found = id_map.rows(check_ids(asked, may_repeat=True))
    assert found.tolist() == [rows.get(value, -1) for value in asked]


def test_map_finds_the_last_row_of_an_id():
    id_map = IdMap(np.array([5, 3, 9]))
    id_map.append(np.array([3, 4]), 3)
    id_map.append(np.array([4, 5]), 5)
    asked = np.array([3, 4, 5, 9, 0])
    assert id_map.rows(asked).tolist() == [3, 5, 6, 2, -1]
    id_map.reset(np.array([4]))
    assert id_map.rows(asked).tolist() == [1, 3, 0, 2, -1]


def test_map_tells_strings_of_the_same_hash_apart(monkeypatch):
    monkeypatch.setattr("tfdml.index.rows._id_map.hash", len, raising=False)
    words = ["a", "b", "cc", "c", "dd", ""]
    id_map = IdMap(stored(read_ids(words)))
    asked = [*words, "x", "xx", "xxx", "dd"]
    found = id_map.rows(read_ids(asked, may_repeat=True))
    assert found.tolist() == [*range(6), -1, -1, -1, 4]


IDS = ["", "a", " a ", "b\n", "é" * 7, "日本/語.jpg", "🙂", "w" * 1_024, "c", "0"]


@pytest.mark.parametrize("ids", [IDS, IDS[::-1], IDS[:1], []])
def test_texts_are_the_strings_in_any_rows(ids):
    ends = [len("".join(ids[: n + 1]).encode()) + n + 1 for n in range(len(ids))]
    texts, growing = Texts.of(ids), GrowingTexts(Texts.of(ids[:3]))
    growing.put(len(ids[:3]), np.array(["failed", "change"], object))
    growing.put(len(ids[:3]), np.array(ids[3:], object))
    for same in (texts, Texts.read(texts.text), growing.first(len(ids))):
        assert same.ends.tolist() == ends
        assert same.text.tobytes().decode() == "".join(value + "\0" for value in ids)
        for rows in (np.arange(len(ids)), np.arange(len(ids))[::-3], np.arange(0)):
            assert same[rows].tolist() == [ids[row] for row in rows]
    assert growing.first(min(2, len(ids)))[np.arange(0)].tolist() == []
    pairs = np.array([[0, 0], [len(ids) - 1, 0]])[: 2 * bool(ids)]
    assert texts[pairs].tolist() == [[ids[row] for row in own] for own in pairs]


def test_strings_that_follow_each_other_are_decoded_in_parts(monkeypatch):
    monkeypatch.setattr("tfdml.index.rows._texts._AT_ONCE", 3)
    monkeypatch.setattr("tfdml.index.rows._id_map._AT_ONCE", 3)
    texts = Texts.read(Texts.of(IDS).text)
    assert texts[np.arange(1, 9)].tolist() == IDS[1:9]
    assert IdMap(texts).rows(read_ids(IDS[::-1])).tolist() == [*range(10)][::-1]


@pytest.mark.parametrize(
    "ids", [IDS, ["", ""], [*"abc", ""], ["item 1", "item 20"] * 5, ["ä", "o", "ü"], []]
)
def test_texts_in_fixed_width_are_those_of_numpy(ids, monkeypatch):
    monkeypatch.setattr("tfdml.index.rows._texts._AT_ONCE", 3)
    monkeypatch.setattr("tfdml.index.rows._texts._FEW", 1)
    texts = Texts.of(ids)
    for rows in (np.arange(len(ids)), np.arange(len(ids))[::-1], np.arange(0)):
        expected = np.array([ids[row] for row in rows], str)
        found = texts.in_fixed_width(rows)
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()
    square = np.array([[0, len(ids) - 1]] * 2)[: 2 * bool(ids)]
    assert texts.in_fixed_width(square).shape == square.shape


@pytest.mark.parametrize("text", [b"a", b"a\0b", b"\xff\0", b"\xc3\0\xa9\0"])
def test_text_that_ends_early_or_is_not_unicode_is_refused(text):
    with pytest.raises(ValueError, match=r"NUL|utf-8"):
        Texts.read(np.frombuffer(text, np.uint8))


def test_one_long_id_costs_what_it_is_long(tmp_path):
    rows, long = 20_000, ["n" * 1_024]
    ids = [f"{row:06}" for row in range(rows)]
    gallery = np.ones((rows + 1, 1), np.float32)
    # As wide as the longest, they would have 4,096 bytes each.
    most = 300 * rows
    assert peak_of(lambda: ExactIndex.build(gallery, ids + long)) < most
    index = ExactIndex.build(gallery[:rows], ids)
    assert peak_of(lambda: index.add(gallery[:1], long)) < most
    assert peak_of(lambda: index.save(tmp_path)) < most
    index.close()
    assert sum(file.stat().st_size for file in tmp_path.rglob("*ids.npy")) < 9 * rows
    read = []
    assert peak_of(lambda: read.append(ExactIndex.load(tmp_path))) < most
    assert peak_of(lambda: read[0].get([*ids[:3], *long])) < most
    assert read[0].get([*long, *ids[:1]]).ids.tolist() == [*long, *ids[:1]]


@pytest.mark.parametrize("long", ["é" * 40, "e" * 40])
@pytest.mark.parametrize("most", [2**30, 100])
def test_ids_are_handed_out_in_fixed_width_or_as_objects(most, long, monkeypatch):
    monkeypatch.setattr("tfdml.index.rows._texts._FEW", 1)
    monkeypatch.setattr("tfdml.index.rows._texts._MOST_WASTE", most)
    ids = ["a", long, "c"]
    index = ExactIndex.build(np.eye(3)[:2], ids[:2], {"x": [1, 2]})
    assert index.ids.dtype == ("U40" if most > 100 else object)
    index.add(np.eye(3)[2:], ids[2:], {"x": [2]})
    found = index.search(np.eye(3), 3).ids
    assert found.dtype == ("U40" if most > 100 else object)
    for own in (index.ids, index.get(ids).ids, check_ids(ids)):
        assert own.dtype == found.dtype
        assert own.tolist() == ids
    assert index.ids_where({"x": 1}).dtype == "U1"
    assert index.ids_where({"x": 3}).dtype.kind == "U"
    assert ExactIndex.build(np.eye(3)).ids.dtype == np.int64


@pytest.mark.parametrize(
    "ids",
    [
        np.array(["a", "bé"]),
        np.array(["a", "bé"], object),
        np.array(["a", "bé"], np.dtypes.StringDType()),
        [np.str_("a"), "bé"],
        (value for value in ("a", "bé")),
        [Name("a"), Name("bé")],
    ],
)
def test_ids_of_every_kind_of_string_become_plain_ones(ids):
    checked = read_ids(ids)
    assert checked.tolist() == ["a", "bé"]
    assert {type(value) for value in checked.tolist()} == {str}


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
    monkeypatch.setattr(LocalIndex, "limits", limits)


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
