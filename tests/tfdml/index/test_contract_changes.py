"""What `Index` promises about changes and files, once over every kind of index."""

from functools import partial

import numpy as np
import pytest

from tests.support.index_examples import METRICS
from tests.support.index_kinds import (
    ATTRIBUTES,
    ID_KINDS,
    IDS,
    ROWS,
    check,
    content,
    drawn,
)
from tests.support.index_walk import Walk
from tests.support.threads import meanwhile
from tfdml.index import ExactIndex, IndexFileError, LocalIndex, Not, Range, load_index


def test_changes_of_nothing_change_nothing(build):
    index = build(drawn(3))
    index.add(np.empty((0, 5)), [], {"n": []})
    index.update([], np.empty((0, 5)))
    index.remove([])
    assert len(index) == 3
    assert index.stats().attributes == {}


def test_new_attributes_may_come_with_new_items(build):
    rows = drawn(4)
    index = build(rows[:2], attributes={"class": ["x", "y"]})
    index.add(rows[2:], [2, 3], {"size": [1.5, None]})
    assert index.get([0, 2, 3]).attributes == [{"class": "x"}, {"size": 1.5}, {}]
    assert index.count({"size": Range(least=1)}) == 1
    assert index.count({"class": Not("x")}) == 3
    assert index.stats().attributes == {"class": "string", "size": "number"}
    index.update([1], attributes={"file": ["a.png"]})
    assert index.get([1, 0]).attributes == [
        {"class": "y", "file": "a.png"},
        {"class": "x"},
    ]


def test_integers_are_floats_where_the_index_has_floats(build):
    index = build(drawn(2), attributes={"price": [0.5, 1]})
    index.add(drawn(1), [2], {"price": [2]})
    values = [own["price"] for own in index.get([1, 2]).attributes]
    assert values == [1.0, 2.0]
    assert [type(value) for value in values] == [float, float]


def test_embeddings_and_attributes_may_be_updated_at_once(build):
    rows = drawn(2)
    index = build(rows, attributes={"class": ["x", "y"], "year": [1, 2]})
    index.update([1], rows[1:] * 2, {"class": [None], "size": [1.5]})
    assert index.get([0, 1]).attributes == [
        {"class": "x", "year": 1},
        {"year": 2, "size": 1.5},
    ]
    np.testing.assert_array_equal(index.get([1]).embeddings, rows[1:] * 2)
    assert [index.count({"class": name}) for name in "xy"] == [1, 0]


def test_index_may_be_emptied_and_filled_again(build):
    rows = drawn()
    names = [f"{row}" for row in range(ROWS)]
    index = build(rows, names, {"class": ["x"] * ROWS})
    index.remove(names)
    for _ in range(2):
        assert index.search(rows, 2).ids.shape == (ROWS, 0)
        assert index.count({"class": "x"}) == 0
        if build.is_local:
            index.compact()
    index.add(rows[::-1], names)
    for _ in range(2):
        items = dict(zip(names, rows[::-1], strict=True))
        check(index.search(rows[:3], 3), rows[:3], items, 3)
        if build.is_local:
            index.compact()


# What is refused


BAD_EMBEDDINGS = [
    (np.ones(5), r"`embeddings`.*vector\[None, :\]"),
    (np.ones((2, 4)), r"dimension of the index, 5.*shape=\(2, 4\)"),
    (np.ones((2, 0)), r"`embeddings` must have the shape \[rows, D\]"),
    ([[1] * 5, [0] * 5], "`embeddings` must not have a row of zeros.*row 1"),
    ([[1] * 5, [1, 1, 1, 1, np.inf]], "`embeddings` must be finite.*row 1"),
    ([[1] * 5, [1, 1, 1, 1, 1e39]], "`embeddings` must be finite.*row 1"),
    ([[1] * 5, [1, 1, 1, 1, np.nan]], "`embeddings` must be finite.*row 1"),
    ([[1] * 5, [1] * 4], "`embeddings` must be an array"),
    ([["a"] * 5] * 2, "`embeddings` must hold real numbers"),
    (np.ones((2, 5)) * 1j, "`embeddings` must hold real numbers.*complex128"),
    (np.ones((1, 5)), "`ids` must hold one id for each of the 1 rows.*2 ids"),
    (np.ones((0, 5)), "`ids` must hold one id for each of the 0 rows.*2 ids"),
    (np.ones((3, 5)), "`ids` must hold one id for each of the 3 rows.*2 ids"),
]
BAD_ATTRIBUTES = [
    (["a", "b"], "`attributes` must be a dictionary.*list"),
    ("ab", "`attributes` must be a dictionary.*str"),
    ({7: ["a", "b"]}, "`attributes` must have non-empty strings as names.*7"),
    ({"": ["a", "b"]}, "`attributes` must have non-empty strings as names.*''"),
    ({"x": "ab"}, r"`attributes\['x'\]` must be a sequence.*'ab'"),
    ({"x": b"ab"}, r"`attributes\['x'\]` must be a sequence"),
    ({"x": None}, r"`attributes\['x'\]` must be a sequence.*None"),
    ({"x": np.array(7)}, r"`attributes\['x'\]` must be a sequence.*7"),
    ({"x": {"a", "b"}}, r"`attributes\['x'\]` must be a sequence"),
    ({"x": {"a": 1, "b": 2}}, r"`attributes\['x'\]` must be a sequence"),
    ({"x": ["a"]}, "one value for each of the 2 rows.*1 values"),
    ({"x": ["a", "b", "c"]}, "one value for each of the 2 rows.*3 values"),
    ({"x": ["a", 1]}, "values of one kind.*integer and string"),
    ({"x": [True, 1]}, "values of one kind.*boolean and integer"),
    ({"x": [1.0, True]}, "values of one kind.*boolean and number"),
    ({"x": [1, 2**63]}, "must fit int64"),
    ({"x": [1.0, float("nan")]}, "must be finite; use None"),
    ({"x": [1.0, np.float32(np.inf)]}, "must be finite"),
    ({"x": ["a", "b\0"]}, "must not contain the character NUL"),
    ({"x": ["a", "\udcff"]}, r"`attributes\['x'\]` must be valid Unicode"),
    ({"\ud800": ["a", "b"]}, r"name in `attributes` must be valid Unicode"),
    ({"x": ["a", b"b"]}, "must hold strings, integers.*bytes"),
    ({"x": [["a"], ["b"]]}, "must hold strings, integers.*list"),
    ({"x": np.ones((2, 2))}, "must hold strings, integers.*list"),
    ({"x": [1j, 2j]}, "must hold strings, integers.*complex"),
    ({"class": [1, 2]}, "the kind that the index has, string.*integer"),
    ({"year": [0.5, None]}, "must hold integers, as in the index"),
    ({"year": [0.5, 1]}, "must hold integers, as in the index"),
    ({"price": [2**53 + 1, None]}, "must hold integers that a float rep"),
    ({"sold": [1, 0]}, "the kind that the index has, boolean.*integer"),
]
BAD_IDS = [
    (["a", 1], r"all strings or all integers.*int, str"),
    ([1.0, 2.0], r"all strings or all integers.*float"),
    (np.array([1.0, 2.0]), r"all strings or all integers.*float"),
    ([True, False], r"all strings or all integers.*bool"),
    ([1, True], r"all strings or all integers.*bool, int"),
    (np.array([True, False]), r"all strings or all integers.*bool"),
    ([np.bool_(True), 2], r"all strings or all integers.*bool"),
    ([b"a", b"b"], r"all strings or all integers.*bytes"),
    ([None, "b"], r"all strings or all integers.*NoneType, str"),
    (np.array([[1], [2]]), r"`ids` must be a flat sequence"),
    ([[1], [2]], r"`ids` must be a flat sequence"),
    ([np.array([1]), np.array([2])], r"`ids` must be a flat sequence"),
    ([1, 2**63], r"`ids` must fit int64"),
    ([1, np.uint64(2**63)], r"`ids` must fit int64"),
    (np.array([1, 2**63], np.uint64), r"`ids` must fit int64"),
    (["a", "a\0"], r"`ids` must not contain the character NUL"),
    (["a", "b\udcff"], r"`ids` must be valid Unicode.*'b\\udcff'"),
    (["\ud83d", "\ude00"], r"`ids` must be valid Unicode"),
    (["a", "b" * 1_025], r"`ids` must have at most 1,024 characters.*1,025"),
    ("ab", r"`ids` must be a sequence of ids.*\['ab'\]"),
    (b"ab", r"`ids` must be a sequence of ids"),
    (7, r"`ids` must be a sequence of ids.*\[7\]"),
    (np.int64(7), r"`ids` must be a sequence of ids"),
    (np.array(7), r"`ids` must be a sequence of ids"),
    ({"a", "b"}, r"`ids` must be an ordered sequence, not a set"),
    (["8", "9"], "`ids` must be of the kind that the index has, integers"),
]
REPEATED = [
    ([3, 3], r"`ids` must not repeat.*3 2 times"),
    (np.array([3, 3]), r"`ids` must not repeat.*3 2 times"),
    ([np.int64(3), 3], r"`ids` must not repeat.*3 2 times"),
]


def refused(index, change, error, message):
    """Check that a change is refused, and that nothing has changed."""
    before = content(index, list(range(6)))
    with pytest.raises(error, match=message):
        change()
    assert content(index, list(range(6))) == before
    assert 98 not in index
    assert set(index.stats().attributes) == set(ATTRIBUTES)


def test_bad_embeddings_are_refused_and_nothing_changes(build, filled):
    for embeddings, message in BAD_EMBEDDINGS:
        refused(filled, partial(filled.add, embeddings, [98, 99]), ValueError, message)
        refused(filled, partial(filled.update, [0, 1], embeddings), ValueError, message)


def test_bad_attributes_are_refused_and_nothing_changes(build, filled):
    rows = np.ones((2, 5))
    for attributes, message in BAD_ATTRIBUTES:
        add = partial(filled.add, rows, [98, 99], attributes)
        refused(filled, add, ValueError, message)
        update = partial(filled.update, [0, 1], rows, attributes)
        refused(filled, update, ValueError, message)


def test_bad_ids_are_refused_and_nothing_changes(build, filled):
    rows = np.ones((2, 5))
    for ids, message in BAD_IDS + REPEATED:
        for change in (
            partial(filled.add, rows, ids),
            partial(filled.update, ids, rows),
            partial(filled.remove, ids),
        ):
            refused(filled, change, ValueError, message)
    for ids, message in BAD_IDS:
        refused(filled, partial(filled.get, ids), ValueError, message)
    with pytest.raises(ValueError, match="`exclude` must be of the kind"):
        filled.search(rows, exclude=["8"])
    assert filled.get([3, 3]).ids.tolist() == [3, 3]


def test_ids_that_are_known_or_missing_are_refused_and_nothing_changes(build, filled):
    rows = np.ones((2, 5))
    for change, error, message in (
        (lambda: filled.add(rows, [98, 0]), ValueError, "not be in the index already"),
        (lambda: filled.add(rows, [0, 98]), ValueError, "Received: 0. Use `update`"),
        (lambda: filled.update([0, 98], rows), KeyError, "in the index. Received: 98"),
        (lambda: filled.remove([0, 98]), KeyError, "must be in the index"),
        (lambda: filled.remove([98]), KeyError, "must be in the index"),
        (lambda: filled.get([0, 98]), KeyError, "Received: 98"),
        (lambda: filled.update([0]), ValueError, "`update` must be given"),
    ):
        refused(filled, change, error, message)


@pytest.mark.parametrize(
    ("embeddings", "options", "message"),
    [
        (np.eye(2), {"metric": "squared_l2"}, r"`metric` must be one of.*'squared_l2'"),
        (np.eye(2), {"metric": None}, r"`metric` must be one of.*None"),
        (np.ones(2), {}, r"`embeddings`.*shape=\(2,\).*vector\[None, :\]"),
        (np.empty((3, 0)), {}, r"`embeddings` must have the shape \[rows, D\]"),
        ([], {}, r"`embeddings` must have the shape \[rows, D\]"),
        ([[1, 2], [3]], {}, "`embeddings` must be an array"),
        (None, {}, "`embeddings` must be an array"),
        ([["a", "b"]], {}, "`embeddings` must hold real numbers"),
        (np.eye(2) * 1j, {}, "`embeddings` must hold real numbers"),
        ([[1, np.nan]], {}, "`embeddings` must be finite.*row 0"),
        ([[1, 2], [0, 0]], {}, "`embeddings` must not have a row of zeros.*row 1"),
        (np.eye(2), {"model_fingerprint": 7}, "`model_fingerprint` must be a string"),
        (np.eye(2), {"embed": "model"}, "`embed` must be a function of images"),
        (np.eye(2), {"ids": 7}, r"`ids` must be a sequence of ids.*\[7\]"),
        (np.eye(2), {"ids": [7]}, "`ids` must hold one id for each of the 2 rows"),
        (np.eye(2), {"ids": ["a", "a"]}, r"`ids` must not repeat.*'a' 2 times"),
        (np.eye(2), {"attributes": ["a", "b"]}, "`attributes` must be a dictionary"),
    ],
)
def test_bad_arguments_of_build_are_refused(build, embeddings, options, message):
    with pytest.raises(ValueError, match=message):
        build(embeddings, **options)


ONES = np.ones((2, 5))
BAD_SEARCHES = [
    ({"queries": np.ones(5)}, r"`queries`.*vector\[None, :\]"),
    ({"queries": np.ones((1, 4))}, r"dimension of the index, 5.*shape=\(1, 4\)"),
    ({"queries": np.ones((2, 0))}, r"`queries` must have the shape \[rows, D\]"),
    ({"queries": [[1] * 5, [np.nan] * 5]}, "`queries` must be finite.*row 1"),
    ({"queries": np.full((1, 5), np.inf)}, "`queries` must be finite"),
    ({"queries": np.full((1, 5), 1e39)}, "`queries` must be finite"),
    ({"queries": np.zeros((1, 5))}, "`queries` must not have a row of zeros"),
    ({"queries": [["a"] * 5]}, "`queries` must hold real numbers"),
    ({"queries": None}, "`queries` must be an array"),
    ({"queries": ONES * 1j}, "`queries` must hold real numbers.*complex128"),
    *(
        ({"k": k}, "`k` must be a whole number of at least 1")
        for k in (0, -1, -(10**9), 0.5, 2.5, np.nan, np.inf, "3", None, True, [3])
    ),
    ({"exclude": "a"}, r"`exclude` must be a sequence of ids.*\['a'\]"),
    ({"exclude": 7}, r"`exclude` must be a sequence of ids.*\[7\]"),
    ({"exclude": np.array(7)}, r"`exclude` must be a sequence of ids"),
    ({"exclude": [None]}, "`exclude` must be all strings or all integers.*NoneType"),
    ({"exclude": [True]}, "`exclude` must be all strings or all integers.*bool"),
    ({"exclude": ["a"]}, "`exclude` must be of the kind that the index has, integers"),
    ({"exclude": np.array([["a"], ["b"]])}, "`exclude` must be of the kind that"),
    ({"exclude": [np.bool_(True)]}, "`exclude` must be all strings or all integers"),
    ({"exclude": [[1], 2]}, "`exclude` must hold ids, or a sequence of ids for each"),
    ({"exclude": [[1]]}, "one sequence of ids for each of the 2 queries.*1"),
    ({"exclude": [[1], [2], []]}, "one sequence of ids for each of the 2 queries.*3"),
    ({"exclude": [[1], [[2]]]}, "`exclude` must be a flat sequence"),
    ({"exclude": [[1], ["a"]]}, "`exclude` must be of the kind that the index has"),
]


def test_bad_searches_are_refused(build, filled):
    for options, message in BAD_SEARCHES:
        with pytest.raises(ValueError, match=message):
            filled.search(**{"queries": ONES} | options)


BAD_FILTERS = [
    ("class", "`where` must be a dictionary.*'class'"),
    (["class"], "`where` must be a dictionary"),
    (7, "`where` must be a dictionary"),
    ({"color": "red"}, r"`where` must name attributes.*\['class'.*'color'"),
    ({7: "red"}, r"`where` must name attributes.*7"),
    *(
        ({name: value}, rf"`where\['{name}'\]` must compare with {kind}s, the kind")
        for name, kind, values in (
            (
                "class",
                "string",
                [
                    7, None, b"shoe", ["shoe", 7], [["shoe"]], {"least": "a"}, Not(7),
                    Range(1, 2), Not(Not("shoe")),
                ],
            ),
            ("year", "integer", ["3", True, np.bool_(True), float("nan")]),
            ("price", "number", [np.float32("nan"), [0.5, np.nan], 1j, Range("a")]),
            ("sold", "boolean", [1, "True", Range(0, 1)]),
        )
        for value in values
    ),
]  # fmt: skip


def test_bad_filters_are_refused(build, filled):
    for where, message in BAD_FILTERS:
        with pytest.raises(ValueError, match=message):
            filled.search(ONES, where=where)
        with pytest.raises(ValueError, match=message):
            filled.count(where)


# Files


@METRICS
@ID_KINDS
def test_saved_index_is_loaded_as_it_was(build, metric, id_kind, tmp_path):
    rows, queries, ids = drawn(), drawn(3, seed=1), IDS[id_kind]
    index = build(
        rows[:44],
        ids[:44],
        {name: values[:44] for name, values in ATTRIBUTES.items()},
        metric=metric,
        model_fingerprint="abc",
    )
    index.add(rows[44:], ids[44:])
    index.remove(ids[:1])
    index.save(tmp_path / "index")
    before = content(index, ids[1:]), index.search(queries, 5)
    index.close()
    loaded = type(index).load(tmp_path / "index", model_fingerprint="abc")
    with loaded:
        assert content(loaded, ids[1:]) == before[0]
        result = loaded.search(queries, 5)
        np.testing.assert_array_equal(result.ids, before[1].ids)
        np.testing.assert_allclose(result.scores, before[1].scores, rtol=1e-6)
        assert loaded.stats().metric == metric
        loaded.add(rows[:1], ids[:1])
        assert len(loaded) == ROWS
    with load_index(tmp_path / "index") as again:
        assert type(again) is type(index)
        assert len(again) == ROWS  # also what was added after it was saved


@pytest.mark.parametrize("ids", [[], [1], ["a"]])
def test_emptied_index_comes_back(build, ids, tmp_path):
    index = build(np.ones((len(ids), 3)), ids)
    index.remove(ids)
    index.save(tmp_path / "index")
    index.close()
    with load_index(tmp_path / "index") as loaded:
        assert len(loaded) == 0
        assert loaded.search(np.ones((2, 3))).ids.shape == (2, 0)
        loaded.add(np.ones((1, 3)), ids or [7])
    with load_index(tmp_path / "index") as loaded:
        assert loaded.ids.tolist() == (ids or [7])


def test_index_of_another_model_or_class_is_refused(build, tmp_path):
    index = build(drawn(3), model_fingerprint="abc")
    index.save(tmp_path / "index")
    index.close()
    for load in (load_index, type(index).load):
        with pytest.raises(IndexFileError, match=r"`model_fingerprint`.*'abc'.*'xyz'"):
            load(tmp_path / "index", model_fingerprint="xyz")
        for bad in ({"embed": 3}, {"model_fingerprint": 3}):
            with pytest.raises(ValueError, match=f"`{next(iter(bad))}` must be a"):
                load(tmp_path / "index", **bad)
    other = LocalIndex if build.kind == "exact" else ExactIndex
    with pytest.raises(IndexFileError, match=f"must hold a {other.__name__}"):
        other.load(tmp_path / "index")
    with pytest.raises(IndexFileError, match="holds no index"):
        type(index).load(tmp_path)


def test_other_files_are_not_overwritten(build, tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(IndexFileError, match="must be empty or hold an index"):
        build(drawn(3)).save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


# Many changes


@pytest.mark.parametrize(
    ("metric", "id_kind", "rows"),
    [("cosine", "string", 0), ("dot_product", "integer", 45)],
)
def test_index_holds_and_finds_what_a_dictionary_holds(build, metric, id_kind, rows):
    walk = Walk(build, metric, id_kind, seed=1, rows=rows)
    for _ in range(40 if build.is_local else 15):
        walk.step()


def test_searches_go_on_while_others_change_the_index(build):
    rows = drawn(40)
    index = build(rows, attributes={"kept": [True] * 40})

    def search():
        result = index.search(rows, 1, where={"kept": True})
        # Milvus has no transactions: a search sees part of an update.
        own = slice(None) if build.is_local else slice(4, None)
        assert result.ids[own, 0].tolist() == list(range(40))[own]
        index.stats()
        index.get([4, 5])

    with meanwhile(*[search] * 3):
        for step in range(60 if build.is_local else 8):
            index.add(rows[:2] * 2, [100 + step, 200 + step], {f"new {step}": [1, 2]})
            index.update([3], rows[3:4] * 2)
            index.remove([100 + step])
            if build.is_local and step % 20 == 0:
                index.compact()
