"""What `Index` promises about searches and items, once over every kind of index."""

import json

import numpy as np
import pytest

from tests.support.index_examples import METRICS
from tests.support.index_kinds import (
    ATTRIBUTES,
    ID_KINDS,
    IDS,
    NASTY,
    ROWS,
    check,
    drawn,
    ranked,
)
from tests.support.threads import together
from tfdml.index import Not, Range

# Search


@METRICS
@ID_KINDS
def test_search_finds_what_comparing_all_finds(build, metric, id_kind):
    rows, queries = drawn(), drawn(4, seed=1)
    index = build(rows, IDS[id_kind], metric=metric)
    items = dict(zip(IDS[id_kind], rows, strict=True))
    for k in (1, 10, 47, 48, 49, 16_384, np.int64(3), 4.0):
        result = index.search(queries, k)
        check(result, queries, items, int(k), metric)
        assert result.ids.dtype.kind == {"string": "U", "integer": "i"}[id_kind]
    check(index.search(queries), queries, items, 10, metric)


def test_ids_are_numbers_in_order_unless_they_are_given(build):
    rows = drawn()
    index = build(rows)
    assert index.search(rows, 1).ids[:, 0].tolist() == list(range(ROWS))
    assert index.ids.dtype == np.int64


@METRICS
def test_empty_index_finds_nothing(build, metric):
    index = build(np.empty((0, 4)), metric=metric)
    for queries in (0, 3):
        result = index.search(np.ones((queries, 4)), 2)
        assert result.ids.shape == result.scores.shape == (queries, 0)
    assert len(index) == index.count() == 0
    assert index.ids.shape == (0,)
    assert 0 not in index
    with pytest.raises(KeyError, match="Received: 0"):
        index.get([0])
    with pytest.raises(ValueError, match="dimension of the index, 4"):
        index.search(np.eye(5))


def test_no_queries_have_no_answers(build):
    index = build(drawn(5), list("abcde"))
    result = index.search(np.empty((0, 5)), 3)
    assert result.ids.shape == result.scores.shape == (0, 3)
    assert result.ids.dtype.kind == "U"


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8", ">f4"])
def test_other_dtypes_and_lists_are_read(build, dtype):
    rows = np.array([[1, 0], [0, 1], [3, 4]], dtype)
    index = build(rows, ["right", "up", "between"])
    index.add((2 * rows[:1]).tolist(), ["added"])
    ids, scores = index.search(rows[1:2].tolist(), 2)
    assert ids.tolist() == [["up", "between"]]
    np.testing.assert_allclose(scores, [[1, 0.8]], atol=1e-6)


def test_lengths_of_queries_do_not_matter_beyond_their_scores(build):
    rows = drawn()
    index = build(rows, metric="dot_product")
    queries = rows[:4] * np.float32([[1e-20], [1], [1e10], [0]])
    result = index.search(queries, 5)
    np.testing.assert_array_equal(result.ids[:3], index.search(rows[:3], 5).ids)
    assert (result.scores[3] == 0).all()


# milvus-lite computes in this process.
@pytest.mark.filterwarnings("ignore:overflow encountered in matmul")
def test_dot_product_above_float32_is_refused(build):
    index = build([[1e30, 0]], metric="dot_product")
    with pytest.raises(ValueError, match="too large for float32"):
        index.search([[1e30, 0]], k=1)


EXCLUDED = [
    ([], "", ""),
    ([[], []], "", ""),
    (["none", "none"], "", ""),
    (["b", "e"], "be", "be"),
    (("e", "b", "none"), "be", "be"),
    (np.array(["b"]), "b", "b"),
    ({"b"}, "b", "b"),
    ([["a"], ["b", "b", "none"]], "a", "b"),
    (np.array([["a"], ["b"]]), "a", "b"),
    (({"a"}, frozenset("bcd")), "a", "bcd"),
    ([list("abcdef"), []], "abcdef", ""),
    (list("abcdef"), "abcdef", "abcdef"),
]


@pytest.mark.parametrize("number", range(len(EXCLUDED)))
def test_excluded_ids_are_not_returned(build, number):
    exclude, *out = EXCLUDED[number]
    rows, queries = drawn(6), drawn(2, seed=1)
    items = dict(zip("abcdef", rows, strict=True))
    index = build(rows, list("abcdef"))
    result = index.search(queries, 6, exclude=exclude)
    width = 6 - max(map(len, out))  # what the query with the fewest has
    assert result.ids.shape == (2, width)
    for query, ids, own in zip(queries, result.ids, out, strict=True):
        left = {name: row for name, row in items.items() if name not in own}
        assert ids.tolist() == [name for name, _ in ranked(query, left)][:width]


def holds(condition, value):
    """The definition of a filter, for one value in Python's own exact numbers."""
    if isinstance(condition, np.generic):
        condition = condition.item()
    if isinstance(condition, Not):
        return not holds(condition.condition, value)
    if value is None:
        return False
    if isinstance(condition, Range):
        limits = condition.least, condition.most
        least, most = (x.item() if isinstance(x, np.generic) else x for x in limits)
        return (least is None or least <= value) and (most is None or value <= most)
    if isinstance(condition, np.ndarray):
        condition = condition.tolist()
    if isinstance(condition, str | int | float):
        condition = [condition]
    return any(value == other for other in condition)


COLUMNS = {
    "class": [*NASTY, "shoe", "boot", None, "shoe", "zebra", None],
    "count": [3, -7, None, 0, 2**53 + 1, 2**63 - 1, -(2**63) + 1, 3] * 3,
    "price": [0.5, -1.0, 2.0**53, None, 1e300, 0.5, 0.1, -0.0] * 3,
    "small": [1e-7, -1e-7, None, 0.25] * 6,
    "sold": [True, False, None, True, True, False, None, False] * 3,
    'ein "Name"]': [1, None, 0] * 8,
}
LIMITS = [0, 3, 2**53, 2**53 + 1, 2.0**53, 2**63 - 1, 2.0**63, -(2**63), 10**400, 0.1]
CONDITIONS = {
    "class": [
        *NASTY, "shoe", "none", np.str_("boot"), NASTY, [], ["shoe", "zebra"],
        ("boot",), {"", "shoe"}, frozenset({"none"}), np.array(["boot", "zebra"]),
        dict.fromkeys(["shoe"]).keys(), Range("boot", "shoe"), Range(most="boot"),
        Range(least='a"b'), Range(most="鞋"), Range("👟"), Range(np.str_("c"), "z"),
    ],
    "count": [
        3, 3.0, 3.5, -7, np.int8(-7), np.float32(3), 2**70, -(10**400), float("inf"),
        [3, 0], [2**53 + 1, 0.5], np.array([0, 3]), np.array([3.0, 0.5]), range(4),
        [2.0**53], 2.0**63, Range(-7, 3), Range(0.5, 2.0**63), [-(2**70), 3], {0, 3},
        *(Range(least=limit) for limit in LIMITS), Range(least=float("-inf")),
        *(Range(most=limit) for limit in LIMITS), Range(most=float("inf")),
        Range(np.int64(0), np.float32(3.5)),
    ],
    "price": [
        0.5, 0, np.float32(0.5), np.float32(0.1), 0.1, 2**53, 2**53 + 1, 10**400,
        float("inf"), [0.5, 2**53 + 1], np.array([0.5, -1]), Range(-1, 0.5),
        *(Range(least=limit) for limit in LIMITS), Range(least=-float("inf")),
        *(Range(most=limit) for limit in LIMITS), Range(most=-(10**400)),
    ],
    "small": [1e-7, [0, -1e-7, np.float32(0.25)], Range(-5e-8, 5e-8)],
    "sold": [True, False, np.bool_(True), [True], [True, False], np.array([False])],
    'ein "Name"]': [1, [0, 1]],
}  # fmt: skip


def test_filters_let_pass_what_their_definition_does(build):
    index = build(drawn(24), attributes=COLUMNS)
    query = drawn(1, seed=1)
    for name, conditions in CONDITIONS.items():
        for condition in [*conditions, *map(Not, conditions)]:
            where = {name: condition}
            passed = [row for row, v in enumerate(COLUMNS[name]) if holds(condition, v)]
            assert index.count(where) == len(passed), where
            found = index.search(query, 24, where=where).ids[0].tolist()
            assert sorted(found) == passed, where
            assert index.ids_where(where).tolist() == passed


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, list(range(ROWS))),
        ({"class": "cat", "sold": True}, [0]),
        ({"class": Not("cat"), "year": 2004, "price": 1e-3}, [3]),
        ({"class": Not(["cat", "dog"]), "year": Range(most=0)}, [4]),
        ({"class": "bird"}, []),
    ],
    ids=str,
)
def test_all_conditions_of_a_filter_hold_and_items_are_excluded(
    build, filled, where, expected
):
    queries = drawn(2, seed=1)
    rows = {row: values for row, values in enumerate(drawn()) if row in expected}
    check(filled.search(queries, ROWS, where=where), queries, rows, ROWS)
    assert filled.count(where) == len(expected)
    if expected:
        del rows[expected[0]]
        result = filled.search(queries, 6, where=where, exclude=expected[:1])
        check(result, queries, rows, 6)


def test_strings_of_any_characters_are_found_and_nothing_else(build):
    generator = np.random.default_rng(3)
    alphabet = list("\"'\\\n\r\t []{}()$%,.=!<>&|aZ09_- ü鞋👟")
    words = sorted(
        {
            "".join(generator.choice(alphabet, size=generator.integers(1, 9)))
            for _ in range(60)
        }
    )
    index = build(drawn(len(words)), words, {"word": words})
    assert index.get(words).attributes == [{"word": word} for word in words]
    for word in words:
        assert index.count({"word": word}) == 1, word
        assert index.count({"word": Not(word)}) == len(words) - 1, word
        assert word in index
    index.remove(words[::2])
    assert [word in index for word in words] == [i % 2 == 1 for i in range(len(words))]


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
    result = index.search_images([b"2", b"0"], 1, exclude=[[2], []])
    assert result.ids[0] != 2
    assert result.ids[1] == 0


def test_eight_threads_search_at_once(build, filled):
    queries = drawn(40, seed=1)
    expected = filled.search(queries, 10).ids.tolist()

    def search():
        return [filled.search(queries, 10).ids.tolist() for _ in range(10)]

    assert together(*[search] * 8) == [[expected] * 10] * 8


# What it holds


@METRICS
@ID_KINDS
def test_get_returns_items_as_they_were_given_in_the_order_asked_for(
    build, metric, id_kind
):
    rows, ids = 3 * drawn(), IDS[id_kind]
    index = build(rows, ids, ATTRIBUTES, metric=metric)
    order = [3, 0, 5, 2, 3]
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


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (np.array(["a", "bb", "ccc"]), "U"),
        (np.array(["a", "bb", "ccc"], dtype=object), "U"),
        ([np.str_("a"), "b", np.str_("c")], "U"),
        (["a\ufffd", "a ", " a"], "U"),
        (["👟" * 1_024, "a", "aa"], "U"),
        ([np.int8(7), 3, np.uint64(9)], "i"),
        (np.array([3, 1, 2], dtype=np.uint8), "i"),
        (range(5, 8), "i"),
        ({4: "x", 5: "y", 6: "z"}.keys(), "i"),
    ],
)
def test_ids_of_all_types_come_back_after_a_save(build, ids, kind, tmp_path):
    index = build(np.eye(3), ids)
    index.save(tmp_path / "index")
    index.close()
    with type(index).load(tmp_path / "index") as loaded:
        assert sorted(loaded.ids.tolist()) == sorted(ids)
        found = loaded.search(np.eye(3), k=1).ids
        assert found[:, 0].tolist() == list(ids)
        assert found.dtype.kind == loaded.ids.dtype.kind == kind
        assert all(value in loaded for value in ids)
        assert loaded.get(ids).ids.tolist() == list(ids)


def test_getting_nothing_returns_nothing(build):
    found = build(drawn(2), ["a", "b"]).get([])
    assert found.ids.shape == (0,)
    assert found.embeddings.shape == (0, 5)
    assert found.attributes == []


def test_contains_tells_ids_from_everything_else(build, filled):
    assert 0 in filled
    assert np.int64(5) in filled
    for other in (
        ROWS, -1, "0", True, np.bool_(True), 0.0, None, 2**63, 2**70, "", b"0", [0],
    ):  # fmt: skip
        assert other not in filled


def test_stats_and_properties_say_what_the_index_is(build):
    index = build(
        drawn(), None, ATTRIBUTES, metric="dot_product", model_fingerprint="abc"
    )
    index.add(drawn(1, seed=1), [99])
    index.remove([0])
    stats = index.stats()
    assert stats.kind == build.index_class.__name__
    assert stats.count == ROWS
    assert stats.dimension == index.dimension == 5
    assert stats.metric == index.metric == "dot_product"
    assert stats.model_fingerprint == index.model_fingerprint == "abc"
    assert stats.attributes == {
        "class": "string", "year": "integer", "price": "number", "sold": "boolean",
    }  # fmt: skip
    assert json.loads(json.dumps(stats.details)) == stats.details


def test_what_was_given_is_neither_changed_nor_shared(build):
    rows, queries = drawn(4), drawn(2, seed=1)
    ids, values = ["a", "b", "c"], {"class": ["x", "y", "z"]}
    before = rows.copy(), queries.copy()
    index = build(rows[:3], ids, values)
    more = np.array(["d"])
    index.add(rows[3:], more)
    first = index.search(queries, 4)
    np.testing.assert_array_equal(rows, before[0])
    np.testing.assert_array_equal(queries, before[1])
    rows[:], ids[0], more[0], values["class"][0] = 1, "changed", "x", "changed"
    again = index.search(queries, 4)
    np.testing.assert_array_equal(again.ids, first.ids)
    np.testing.assert_array_equal(again.scores, first.scores)
    assert index.get(["a"]).attributes == [{"class": "x"}]
    index.ids[:] = again.ids[:] = "nonsense"
    assert sorted(index.ids.tolist()) == list("abcd")
    again.scores[:] = 7
    found = index.get(["a", "d"])
    found.embeddings[:] = 7
    found.ids[:] = "b"
    np.testing.assert_array_equal(index.search(queries, 4).ids, first.ids)
    np.testing.assert_array_equal(index.get(["d"]).embeddings, before[0][3:])


def test_index_is_closed_at_the_end_of_a_with(build):
    with build(np.eye(3)) as index:
        index.add(2 * np.eye(3), [3, 4, 5])
        assert len(index) == 6
    index.close()  # once more does nothing
