"""What `Index` promises, once over every kind of index."""

import importlib.util
import json
import threading

import numpy as np
import pytest

from tfdml.index import (
    ExactIndex,
    IndexFileError,
    Not,
    Range,
    ScannIndex,
    SearchResult,
    load_index,
)

KINDS = ["ExactIndex", "ScannIndex", "MilvusIndex"]
METRICS = pytest.mark.parametrize("metric", ["cosine", "dot_product"])
IDS = {
    "string": ["Straße/ü.png", "b", 'c "quoted"', "d\\e", "it's", "f"],
    "integer": [7, -3, 0, 2**62, 12, 5],
}
ID_KINDS = pytest.mark.parametrize("id_kind", list(IDS))
ATTRIBUTES = {
    "class": ["cat", "dog", "cat", None, "", "Straße"],
    "year": [1999, 2004, None, 2004, -5, 2**53 + 1],
    "price": [0.5, None, 10.0, 1e-3, 10.0, -2.5],
    "sold": [True, False, None, True, False, False],
}


@pytest.fixture(scope="module")
def milvus_path(tmp_path_factory):
    return str(tmp_path_factory.mktemp("milvus") / "milvus.db")


class Builder:
    """Builds indexes of one kind; FLAT is Milvus' exact one."""

    def __init__(self, kind, path):
        self.kind = kind
        self._path = path
        self._open = []

    def __call__(self, embeddings, ids=None, attributes=None, **options):
        if self.kind == "MilvusIndex":
            from tfdml.index.milvus._index import MilvusIndex

            index = MilvusIndex.build(
                embeddings,
                ids,
                attributes,
                uri=self._path,
                collection=f"gallery_{np.random.default_rng().integers(2**60)}",
                index_type="FLAT",
                **options,
            )
        else:
            index_class = {"ExactIndex": ExactIndex, "ScannIndex": ScannIndex}
            index = index_class[self.kind].build(embeddings, ids, attributes, **options)
        self._open.append(index)
        return index

    def close(self):
        for index in self._open:
            index.close()


@pytest.fixture(params=KINDS)
def build(request, milvus_path):
    """Return what builds an index, of every kind in turn."""
    if request.param == "MilvusIndex":
        for module in ("pymilvus", "milvus_lite"):
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"{module} is not installed.")
    builder = Builder(request.param, milvus_path)
    yield builder
    builder.close()


def drawn(rows, dimension=5, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, dimension)).astype("float32")


def score(a, b, metric):
    a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
    lengths = np.sqrt((a * a).sum() * (b * b).sum()) if metric == "cosine" else 1
    return (a * b).sum() / lengths


def ranked(query, items, metric="cosine"):
    """List ids and scores of all items, best first, one by one."""
    scores = {name: score(query, row, metric) for name, row in items.items()}
    return sorted(scores.items(), key=lambda item: -item[1])


def check(result, queries, items, k, metric="cosine"):
    """Compare an answer with comparing all items."""
    assert isinstance(result, SearchResult)
    assert result.scores.dtype == np.float32
    width = min(k, len(items))
    assert result.ids.shape == result.scores.shape == (len(queries), width)
    for query, ids, scores in zip(queries, *result, strict=True):
        expected = ranked(query, items, metric)[:width]
        assert ids.tolist() == [name for name, _ in expected]
        np.testing.assert_allclose(
            scores, [value for _, value in expected], rtol=1e-5, atol=1e-5
        )


def content(index, ids):
    """Return all that is known of some items, in a form that can be compared."""
    items = index.get(ids)
    return items.ids.tolist(), items.embeddings.tolist(), items.attributes, len(index)


# Search


@METRICS
@ID_KINDS
@pytest.mark.parametrize("k", [1, 3, 6])
def test_search_finds_what_comparing_all_finds(build, metric, id_kind, k):
    rows, queries = drawn(6), drawn(4, seed=1)
    index = build(rows, IDS[id_kind], metric=metric)
    items = dict(zip(IDS[id_kind], rows, strict=True))
    result = index.search(queries, k)
    check(result, queries, items, k, metric)
    assert result.ids.dtype.kind == {"string": "U", "integer": "i"}[id_kind]


def test_ids_are_numbers_in_order_unless_they_are_given(build):
    rows = drawn(5)
    assert build(rows).search(rows, 1).ids.tolist() == [[0], [1], [2], [3], [4]]


def test_k_is_ten_unless_it_is_given(build):
    rows = drawn(12)
    assert build(rows).search(rows[:2]).ids.shape == (2, 10)


@pytest.mark.parametrize("k", [7, 16_384])
def test_more_than_there_are_gives_all(build, k):
    rows = drawn(6)
    check(build(rows).search(rows[:2], k), rows[:2], dict(enumerate(rows)), k)


def test_empty_index_finds_nothing(build):
    index = build(np.empty((0, 4)))
    for queries in (0, 3):
        result = index.search(np.ones((queries, 4)), 2)
        assert result.ids.shape == result.scores.shape == (queries, 0)
    assert len(index) == index.count() == 0


def test_no_queries_have_no_answers(build):
    index = build(drawn(5), list("abcde"))
    result = index.search(np.empty((0, 5)), 3)
    assert result.ids.shape == result.scores.shape == (0, 3)
    assert result.ids.dtype.kind == "U"


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", ">f4"])
def test_other_dtypes_and_lists_are_read(build, dtype):
    rows = np.array([[1, 0], [0, 1], [3, 4]], dtype)
    index = build(rows, ["right", "up", "between"])
    index.add((2 * rows[:1]).tolist(), ["added"])
    ids, scores = index.search(rows[1:2].tolist(), 2)
    assert ids.tolist() == [["up", "between"]]
    np.testing.assert_allclose(scores, [[1, 0.8]], atol=1e-6)


def test_excluded_ids_are_not_returned(build):
    rows, queries = drawn(6), drawn(3, seed=1)
    index = build(rows, list("abcdef"))
    items = dict(zip("abcdef", rows, strict=True))
    for exclude in (["b", "e"], ("b", "e"), np.array(["b", "e"]), ["e", "b", "none"]):
        left = {name: row for name, row in items.items() if name not in "be"}
        check(index.search(queries, 6, exclude=exclude), queries, left, 6)
    check(index.search(queries, 3, exclude=[]), queries, items, 3)


def test_each_query_may_exclude_its_own_ids(build):
    rows, queries = drawn(6), drawn(3, seed=1)
    index = build(rows, list("abcdef"))
    result = index.search(queries, 6, exclude=[["a"], [], ["b", "c", "none"]])
    assert result.ids.shape == (3, 4)  # what the third query has
    for query, ids, out in zip(queries, result.ids, ["a", "", "bc"], strict=True):
        left = {n: r for n, r in zip("abcdef", rows, strict=True) if n not in out}
        assert ids.tolist() == [name for name, _ in ranked(query, left)][:4]


def test_excluding_all_leaves_nothing(build):
    index = build(drawn(3))
    assert index.search(drawn(2), 3, exclude=[0, 1, 2]).ids.shape == (2, 0)


CONDITIONS = [
    ({"class": "cat"}, [0, 2]),
    ({"class": ""}, [4]),
    ({"class": "Straße"}, [5]),
    ({"class": "bird"}, []),
    ({"class": ["dog", "Straße", "bird"]}, [1, 5]),
    ({"class": []}, []),
    ({"class": Not("cat")}, [1, 3, 4, 5]),
    ({"class": Not(["cat", "dog"])}, [3, 4, 5]),
    ({"class": Range("cat", "dog")}, [0, 1, 2]),
    ({"class": Range(least="cau")}, [1]),
    ({"year": 2004}, [1, 3]),
    ({"year": 2004.0}, [1, 3]),
    ({"year": 2004.5}, []),
    ({"year": 2**53 + 1}, [5]),
    ({"year": 2**53}, []),
    ({"year": [1999, -5]}, [0, 4]),
    ({"year": Range(most=1999)}, [0, 4]),
    ({"year": Range(1999.5, 2004)}, [1, 3]),
    ({"year": Range(least=2**53 + 1)}, [5]),
    ({"year": Not(Range(0, 2010))}, [2, 4, 5]),
    ({"price": 10}, [2, 4]),
    ({"price": Range(1e-3, 0.5)}, [0, 3]),
    ({"price": Range(least=-2.5, most=0)}, [5]),
    ({"price": Not(10.0)}, [0, 1, 3, 5]),
    ({"sold": True}, [0, 3]),
    ({"sold": False}, [1, 4, 5]),
    ({"sold": [True, False]}, [0, 1, 3, 4, 5]),
    ({"sold": Not(True)}, [1, 2, 4, 5]),
    ({"class": "cat", "sold": True}, [0]),
    ({"class": Not("cat"), "year": 2004, "price": 1e-3}, [3]),
    ({}, [0, 1, 2, 3, 4, 5]),
]


@pytest.fixture(scope="module")
def filled(milvus_path):
    """Return an index of each kind with all attributes, built when it is asked for."""
    built = {}

    def of(kind):
        if kind not in built:
            built[kind] = Builder(kind, milvus_path)
            built[kind].index = built[kind](drawn(6), None, ATTRIBUTES)
        return built[kind].index

    yield of
    for builder in built.values():
        builder.close()


@pytest.mark.parametrize(
    ("where", "expected"), CONDITIONS, ids=[str(where) for where, _ in CONDITIONS]
)
def test_filter_lets_pass_what_it_says(build, filled, where, expected):
    index, queries = filled(build.kind), drawn(2, seed=1)
    rows = {row: values for row, values in enumerate(drawn(6)) if row in expected}
    check(index.search(queries, 6, where=where), queries, rows, 6)
    assert index.count(where) == len(expected)
    if expected:
        del rows[expected[0]]
        result = index.search(queries, 6, where=where, exclude=expected[:1])
        check(result, queries, rows, 6)


@pytest.mark.parametrize(
    "where",
    [
        {"color": "red"},
        {"class": 3},
        {"year": "2004"},
        {"year": True},
        {"sold": 1},
        {"price": float("nan")},
        {"class": None},
        {"class": Not(Not("cat"))},
        {"year": Range("a", "b")},
        ["class"],
        "class",
    ],
    ids=str,
)
def test_filter_on_what_the_index_has_not_is_refused(build, filled, where):
    index = filled(build.kind)
    with pytest.raises(ValueError, match="`where"):
        index.search(drawn(1), 1, where=where)
    with pytest.raises(ValueError, match="`where"):
        index.count(where)


@pytest.mark.parametrize(
    ("queries", "k", "options", "message"),
    [
        (np.ones(5), 1, {}, "`queries` must have the shape"),
        (np.ones((1, 4)), 1, {}, "`queries` must have the dimension of the index, 5"),
        (np.full((1, 5), np.nan), 1, {}, "`queries` must be finite"),
        (np.full((1, 5), np.inf), 1, {}, "`queries` must be finite"),
        (np.full((1, 5), 1e39), 1, {}, "`queries` must be finite"),
        (np.zeros((1, 5)), 1, {}, "`queries` must not have a row of zeros"),
        ([["a"] * 5], 1, {}, "`queries` must hold real numbers"),
        (np.ones((1, 5)) * 1j, 1, {}, "`queries` must hold real numbers"),
        (np.ones((1, 5)), 0, {}, "`k` must be"),
        (np.ones((1, 5)), -1, {}, "`k` must be"),
        (np.ones((1, 5)), 1, {"exclude": "a"}, "`exclude` must be a sequence of ids"),
        (np.ones((1, 5)), 1, {"exclude": ["a"]}, "`exclude` must be of the kind"),
        (np.ones((1, 5)), 1, {"exclude": [[1], [2]]}, "one sequence of ids for each"),
        (np.ones((1, 5)), 1, {"exclude": [1, [2]]}, "`exclude` must hold ids, or"),
    ],
)
def test_wrong_search_is_refused(build, filled, queries, k, options, message):
    with pytest.raises(ValueError, match=message):
        filled(build.kind).search(queries, k, **options)


@pytest.mark.parametrize("k", [2.5, "3", True, None])
def test_k_must_be_a_whole_number(build, filled, k):
    with pytest.raises((TypeError, ValueError), match="`k` must be"):
        filled(build.kind).search(drawn(1), k)


def test_images_are_embedded_and_searched_for(build):
    rows = drawn(4)
    index = build(rows, attributes={"class": list("abab")})
    with pytest.raises(ValueError, match="`embed` must be set"):
        index.search_images([b"1"])
    index.embed = lambda images: rows[[int(image) for image in images]]
    result = index.search_images([b"2", b"0"], 1)
    assert result.ids.tolist() == [[2], [0]]
    result = index.search_images([b"2"], 1, where={"class": "b"})
    assert result.ids.tolist() == index.search(rows[2:3], 1, where={"class": "b"}).ids
    assert index.search_images([b"2"], 1, exclude=[2]).ids.tolist() != [[2]]


# Changes


@METRICS
@ID_KINDS
def test_added_items_are_found(build, metric, id_kind):
    rows, queries = drawn(6), drawn(3, seed=1)
    ids = IDS[id_kind]
    index = build(rows[:2], ids[:2], metric=metric)
    index.add(rows[2:], ids[2:])
    items = dict(zip(ids, rows, strict=True))
    check(index.search(queries, 6), queries, items, 6, metric)
    assert len(index) == index.count() == 6
    assert index.get(ids).ids.tolist() == ids


def test_empty_index_takes_items(build):
    rows = drawn(3)
    index = build(np.empty((0, 5)), np.empty(0, str))
    index.add(rows, ["a", "b", "c"], {"class": ["x", "y", "x"]})
    assert index.search(rows, 1).ids.tolist() == [["a"], ["b"], ["c"]]
    assert index.count({"class": "x"}) == 2


def test_adding_nothing_changes_nothing(build):
    index = build(drawn(3))
    index.add(np.empty((0, 5)), [])
    index.remove([])
    assert len(index) == 3


def test_new_attributes_may_come_with_new_items(build):
    rows = drawn(4)
    index = build(rows[:2], attributes={"class": ["x", "y"]})
    index.add(rows[2:], [2, 3], {"size": [1.5, None]})
    assert index.get([0, 2, 3]).attributes == [{"class": "x"}, {"size": 1.5}, {}]
    assert index.count({"size": Range(least=1)}) == 1
    assert index.count({"class": Not("x")}) == 3
    assert index.stats().attributes == {"class": "string", "size": "number"}


def test_integers_are_floats_where_the_index_has_floats(build):
    index = build(drawn(1), attributes={"price": [0.5]})
    index.add(drawn(1), [1], {"price": [2]})
    value = index.get([1]).attributes[0]["price"]
    assert value == 2.0
    assert isinstance(value, float)


@pytest.mark.parametrize(
    ("embeddings", "ids", "attributes", "message"),
    [
        (np.ones((1, 5)), [0], None, "`ids` must not be in the index already"),
        (np.ones((2, 5)), [8, 0], None, "`ids` must not be in the index already"),
        (np.ones((2, 5)), [8, 8], None, "`ids` must not repeat"),
        (np.ones((2, 5)), [8], None, "`ids` must hold one id for each"),
        (np.ones((1, 5)), ["8"], None, "`ids` must be of the kind"),
        (np.ones((1, 5)), [2**63], None, "`ids` must fit int64"),
        (np.ones((1, 5)), [8.5], None, "`ids` must be all strings or all integers"),
        (np.ones((1, 5)), ["x" * 1_025], None, "`ids` must have at most 1,024 char"),
        (np.ones((1, 5)), ["\udcff"], None, "`ids` must be valid Unicode"),
        (np.ones((1, 5)), 8, None, "`ids` must be a sequence"),
        (np.ones((1, 4)), [8], None, "`embeddings` must have the dimension"),
        (np.zeros((1, 5)), [8], None, "`embeddings` must not have a row of zeros"),
        ([[1, 1, 1, 1, np.nan]], [8], None, "`embeddings` must be finite"),
        (np.ones((1, 5)), [8], {"class": [3]}, "`attributes"),
        (np.ones((1, 5)), [8], {"class": ["a", "b"]}, "`attributes"),
        (np.ones((1, 5)), [8], {"class": "a"}, "`attributes"),
        (np.ones((1, 5)), [8], {"price": [np.inf]}, "`attributes"),
        (np.ones((1, 5)), [8], {"year": [2.5]}, "`attributes"),
        (np.ones((1, 5)), [8], {"year": [2**63]}, "`attributes"),
        (np.ones((1, 5)), [8], {"sold": [1]}, "`attributes"),
        (np.ones((1, 5)), [8], {"": ["a"]}, "`attributes"),
        (np.ones((1, 5)), [8], {"class": ["\udcff"]}, "must be valid Unicode"),
        (np.ones((1, 5)), [8], {"\udcff": ["a"]}, "must be valid Unicode"),
        (np.ones((1, 5)), [8], {"new": [[1]]}, "`attributes"),
    ],
)
def test_wrong_items_are_refused_and_none_is_added(
    build, filled, embeddings, ids, attributes, message
):
    index = filled(build.kind)
    before = content(index, list(range(6)))
    with pytest.raises(ValueError, match=message):
        index.add(embeddings, ids, attributes)
    assert content(index, list(range(6))) == before
    assert 8 not in index
    assert set(index.stats().attributes) == set(ATTRIBUTES)


def test_updated_embeddings_are_searched_and_attributes_stay(build):
    rows, new = drawn(4), drawn(2, seed=2)
    index = build(rows, list("abcd"), {"class": ["x", "y", "x", None]})
    index.update(["d", "b"], new)
    items = {"a": rows[0], "b": new[1], "c": rows[2], "d": new[0]}
    check(index.search(rows, 4), rows, items, 4)
    assert index.get(["b", "d"]).attributes == [{"class": "y"}, {}]
    assert len(index) == 4


def test_updated_attributes_are_filtered_by_and_embeddings_stay(build):
    rows = drawn(3)
    index = build(rows, attributes={"class": ["x", "y", "x"], "year": [1, 2, 3]})
    index.update([0, 1], attributes={"class": ["z", None]})
    assert index.get([0, 1, 2]).attributes == [
        {"class": "z", "year": 1},
        {"year": 2},
        {"class": "x", "year": 3},
    ]
    assert [index.count({"class": name}) for name in "xyz"] == [1, 0, 1]
    check(index.search(rows, 3), rows, dict(enumerate(rows)), 3)
    index.update([2], rows[2:3] * 2, {"size": [1.5]})
    assert index.get([2]).attributes == [{"class": "x", "year": 3, "size": 1.5}]
    np.testing.assert_array_equal(index.get([2]).embeddings, rows[2:3] * 2)


@pytest.mark.parametrize(
    ("ids", "embeddings", "attributes", "error", "message"),
    [
        ([0, 9], np.ones((2, 5)), None, KeyError, "`ids` must be in the index"),
        ([0, 0], np.ones((2, 5)), None, ValueError, "`ids` must not repeat"),
        ([0], None, None, ValueError, "`update` must be given"),
        ([0, 1], np.ones((1, 5)), None, ValueError, "`ids` must hold one id"),
        ([0], np.ones((1, 4)), None, ValueError, "`embeddings` must have the dim"),
        ([0], np.ones((1, 5)), {"class": [3]}, ValueError, "`attributes"),
        ([0], None, {"class": ["a", "b"]}, ValueError, "`attributes"),
        (["0"], np.ones((1, 5)), None, ValueError, "`ids` must be of the kind"),
    ],
)
def test_wrong_update_is_refused_and_nothing_changes(
    build, filled, ids, embeddings, attributes, error, message
):
    index = filled(build.kind)
    before = content(index, list(range(6)))
    with pytest.raises(error, match=message):
        index.update(ids, embeddings, attributes)
    assert content(index, list(range(6))) == before


@ID_KINDS
def test_removed_items_are_gone_and_may_come_again(build, id_kind):
    rows, queries, ids = drawn(6), drawn(2, seed=1), IDS[id_kind]
    index = build(rows, ids)
    index.remove([ids[4], ids[1]])
    items = dict(zip(ids, rows, strict=True))
    del items[ids[4]], items[ids[1]]
    check(index.search(queries, 6), queries, items, 6)
    assert len(index) == 4
    assert ids[4] not in index
    assert ids[0] in index
    with pytest.raises(KeyError, match="must be in the index"):
        index.get([ids[1]])
    new = drawn(1, seed=5)
    index.add(new, [ids[1]])
    items[ids[1]] = new[0]
    check(index.search(queries, 6), queries, items, 6)


@pytest.mark.parametrize(
    ("ids", "error"),
    [([0, 9], KeyError), ([0, 0], ValueError), (["0"], ValueError), (0, ValueError)],
)
def test_wrong_removal_is_refused_and_nothing_is_removed(build, filled, ids, error):
    index = filled(build.kind)
    before = content(index, list(range(6)))
    with pytest.raises(error, match="`ids`"):
        index.remove(ids)
    assert content(index, list(range(6))) == before


def test_index_may_be_emptied_and_filled_again(build):
    rows = drawn(3)
    index = build(rows, list("abc"), {"class": list("xyz")})
    index.remove(list("abc"))
    assert index.search(rows, 2).ids.shape == (3, 0)
    assert index.count({"class": "x"}) == 0
    index.add(rows[::-1], list("cde"))
    check(index.search(rows, 3), rows, dict(zip("cde", rows[::-1], strict=True)), 3)


def test_what_was_given_is_neither_changed_nor_shared(build):
    rows, queries = drawn(4), drawn(2, seed=1)
    ids, values = ["a", "b", "c"], {"class": ["x", "y", "z"]}
    before = rows.copy(), queries.copy()
    index = build(rows[:3], ids, values)
    index.add(rows[3:], ["d"])
    first = index.search(queries, 4)
    np.testing.assert_array_equal(rows, before[0])
    np.testing.assert_array_equal(queries, before[1])
    rows[:], ids[0], values["class"][0] = 1, "changed", "changed"
    again = index.search(queries, 4)
    np.testing.assert_array_equal(again.ids, first.ids)
    np.testing.assert_array_equal(again.scores, first.scores)
    assert index.get(["a"]).attributes == [{"class": "x"}]
    again.ids[:] = "nonsense"
    again.scores[:] = 7
    found = index.get(["a", "d"])
    found.embeddings[:] = 7
    np.testing.assert_array_equal(index.search(queries, 4).ids, first.ids)
    np.testing.assert_array_equal(index.get(["d"]).embeddings, before[0][3:])


# What it holds


@METRICS
@ID_KINDS
def test_get_returns_items_as_they_were_given_in_the_order_asked_for(
    build, metric, id_kind
):
    rows, ids = 3 * drawn(6), IDS[id_kind]
    index = build(rows, ids, ATTRIBUTES, metric=metric)
    order = [3, 0, 5, 2]
    found = index.get([ids[row] for row in order])
    assert found.ids.tolist() == [ids[row] for row in order]
    np.testing.assert_array_equal(found.embeddings, rows[order])
    assert found.embeddings.dtype == np.float32
    for row, attributes in zip(order, found.attributes, strict=True):
        expected = {
            name: values[row]
            for name, values in ATTRIBUTES.items()
            if values[row] is not None
        }
        assert attributes == expected
        assert {n: type(v) for n, v in attributes.items()} == {
            n: type(v) for n, v in expected.items()
        }


@ID_KINDS
def test_ids_are_those_of_all_items(build, id_kind):
    ids = IDS[id_kind]
    index = build(drawn(5), ids[:5])
    assert sorted(index.ids.tolist()) == sorted(ids[:5])
    index.add(drawn(1, seed=1), ids[5:])
    index.update(ids[3:4], attributes={"class": ["x"]})
    index.remove(ids[1:3])
    expected = sorted({*ids} - {*ids[1:3]})
    assert sorted(index.ids.tolist()) == expected
    assert index.ids.dtype.kind == {"string": "U", "integer": "i"}[id_kind]
    index.ids[:] = index.ids[0]
    assert sorted(index.ids.tolist()) == expected
    index.remove(expected)
    assert index.ids.shape == (0,)


def test_getting_nothing_returns_nothing(build):
    found = build(drawn(2), ["a", "b"]).get([])
    assert found.ids.shape == (0,)
    assert found.embeddings.shape == (0, 5)
    assert found.attributes == []


def test_unknown_id_is_named(build):
    with pytest.raises(KeyError, match="Received: 'c'"):
        build(drawn(2), ["a", "b"]).get(["a", "c"])


def test_contains_tells_ids_from_everything_else(build, filled):
    index = filled(build.kind)
    assert 0 in index
    assert np.int64(5) in index
    for other in (6, -1, "0", True, 0.0, None, 2**70, "", b"0", [0], (0,)):
        assert other not in index


def test_stats_say_what_the_index_is(build):
    index = build(
        drawn(6), None, ATTRIBUTES, metric="dot_product", model_fingerprint="abc"
    )
    index.add(drawn(1, seed=1), [9])
    index.remove([0])
    stats = index.stats()
    assert stats.kind == build.kind
    assert stats.count == 6
    assert stats.dimension == 5
    assert stats.metric == "dot_product"
    assert stats.model_fingerprint == "abc"
    assert stats.attributes == {
        "class": "string", "year": "integer", "price": "number", "sold": "boolean",
    }  # fmt: skip
    assert json.loads(json.dumps(stats.details)) == stats.details


# Files


@METRICS
@ID_KINDS
def test_saved_index_is_loaded_as_it_was(build, metric, id_kind, tmp_path):
    rows, queries, ids = drawn(6), drawn(3, seed=1), IDS[id_kind]
    index = build(
        rows[:4],
        ids[:4],
        {name: values[:4] for name, values in ATTRIBUTES.items()},
        metric=metric,
        model_fingerprint="abc",
    )
    index.add(rows[4:], ids[4:])
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
        assert len(loaded) == 6
    with load_index(tmp_path / "index") as again:
        assert type(again) is type(index)
        assert len(again) == 6  # also what was added after it was saved


def test_index_of_another_model_or_class_is_refused(build, tmp_path):
    index = build(drawn(3), model_fingerprint="abc")
    index.save(tmp_path / "index")
    index.close()
    with pytest.raises(IndexFileError, match="`model_fingerprint` must be"):
        type(index).load(tmp_path / "index", model_fingerprint="xyz")
    other = ScannIndex if build.kind == "ExactIndex" else ExactIndex
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


def test_any_changes_leave_what_a_dictionary_would_hold(build):
    generator = np.random.default_rng(0)
    steps = 40 if build.kind == "MilvusIndex" else 200
    items, classes = {}, {}
    index = build(np.empty((0, 5)), np.empty(0, str))
    for step in range(steps):
        there = sorted(items)
        few = generator.permutation(there)[: generator.integers(4)].tolist()
        action = generator.integers(3 if items else 1)
        rows = drawn(max(1, len(few)), seed=step + 100)
        if action == 0:
            names = [f"{step}-{number}" for number in range(len(rows))]
            values = generator.choice(["x", "y", None], len(rows)).tolist()
            index.add(rows, names, {"class": values})
        elif action == 1 and few:
            names, values = few, generator.choice(["x", "z"], len(few)).tolist()
            index.update(names, rows, {"class": values})
        else:
            index.remove(few)
            for name in few:
                del items[name], classes[name]
            continue
        items.update(zip(names, rows, strict=True))
        classes.update(zip(names, values, strict=True))
        assert len(index) == len(items)
    queries = drawn(5, seed=1)
    check(index.search(queries, 20), queries, items, 20)
    for name in "xyz":
        some = {i: row for i, row in items.items() if classes[i] == name}
        check(index.search(queries, 9, where={"class": name}), queries, some, 9)
    names = sorted(items)
    found = index.get(names)
    np.testing.assert_array_equal(found.embeddings, [items[name] for name in names])


def test_searches_go_on_while_others_change_the_index(build):
    if build.kind == "MilvusIndex":
        pytest.skip("Milvus has no transactions, and a search sees part of a change.")
    rows = drawn(40)
    index = build(rows, attributes={"kept": [True] * 40})
    errors, done = [], threading.Event()

    def search():
        try:
            while not done.is_set():
                result = index.search(rows, 1, where={"kept": True})
                assert result.ids[:, 0].tolist() == list(range(40))
                index.stats()
                index.get([3, 4])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(60):
        index.add(rows[:2] * 2, [100 + step, 200 + step], {f"new {step}": [1, 2]})
        index.update([3], rows[3:4] * 2)
        index.remove([100 + step])
        if step % 20 == 0:
            index.compact()
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []
