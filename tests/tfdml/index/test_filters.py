"""Filters, against their definition row by row."""

import numpy as np
import pytest

from tests.support.index_examples import BOTH
from tfdml.index import ExactIndex, Not, Range, where_from_json

COLUMNS = {
    "class": ["shoe", "boot", None, "", "Straße", "shoe", "zebra", None],
    "count": [3, -7, None, 0, 2**53 + 1, 2**63 - 1, -(2**63), 3],
    "price": [0.5, -1.0, 2.0**53, None, 1e300, 0.5, 0.1, -0.0],
    "sold": [True, False, None, True, True, False, None, False],
}
LIMITS = [0, 3, 2**53, 2**53 + 1, 2.0**53, 2**63 - 1, 2.0**63, -(2**63), 10**400, 0.1]
CONDITIONS = {
    "class": [
        "shoe", "", "none", "shoe\0", "\ud800", np.str_("boot"), [], ["shoe", "zebra"],
        ("boot",), {"", "shoe"}, frozenset({"none"}), np.array(["boot", "zebra"]),
        dict.fromkeys(["shoe"]).keys(), Range("boot", "shoe"), Range(most="boot"),
        Range(least="a\0"), Range(np.str_("c"), "z"),
    ],
    "count": [
        3, 3.0, 3.5, -7, np.int8(-7), np.float32(3), 2**70, -(10**400), float("inf"),
        [3, 0], [2**53 + 1, 0.5], np.array([0, 3]), np.array([3.0, 0.5]), range(4),
        np.array(3), [2.0**53], 2.0**63, Range(-7, 3), Range(0.5, 2.0**63),
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
    "sold": [True, False, np.bool_(True), [True], [True, False], np.array([False])],
}  # fmt: skip


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


@pytest.fixture(scope="module")
def index():
    return ExactIndex.build(np.eye(8), attributes=COLUMNS)


def found(index, where):
    ids = index.search(np.ones((1, 8)), k=8, where=where).ids[0]
    assert index.count(where) == len(ids)
    assert index.ids_where(where).tolist() == sorted(ids.tolist())
    return sorted(ids.tolist())


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        pytest.param(name, wrap(condition), id=f"{name}-{number}-{wrap.__name__}")
        for name, conditions in CONDITIONS.items()
        for number, condition in enumerate(conditions)
        for wrap in (lambda c: c, Not)
    ],
)
def test_condition_holds_where_its_definition_does(index, name, condition):
    expected = [row for row, v in enumerate(COLUMNS[name]) if holds(condition, v)]
    assert found(index, {name: condition}) == expected


def test_all_conditions_must_hold(index):
    assert found(index, {}) == list(range(8))
    assert found(index, {"class": "shoe", "sold": True}) == [0]
    assert found(index, {"class": Not("shoe"), "count": Range(most=0)}) == [1, 3, 6]


@BOTH
def test_filter_sees_added_and_updated_items(index_class):
    index = index_class.build(np.eye(4), attributes={"class": ["x", "y", "x", None]})
    index.add(2 * np.eye(4)[:2], [4, 5], {"class": ["x", "z"]})
    index.update([0], attributes={"class": ["z"]})
    index.remove([2])
    for _ in range(2):
        assert index.count({"class": "x"}) == 1
        assert sorted(index.ids_where({"class": ["x", "z"]}).tolist()) == [0, 4, 5]
        result = index.search(np.ones((2, 4)), where={"class": ["x", "z"]})
        assert [sorted(row) for row in result.ids.tolist()] == [[0, 4, 5]] * 2
        assert index.search(np.ones((2, 4)), where={"class": "w"}).ids.shape == (2, 0)
        index.compact()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("class", "`where` must be a dictionary.*'class'"),
        (["class"], "`where` must be a dictionary"),
        (7, "`where` must be a dictionary"),
        ({"color": "red"}, r"`where` must name attributes.*\['class'.*'color'"),
        ({7: "red"}, r"`where` must name attributes.*7"),
        (
            {"class": 7},
            r"`where\['class'\]` must compare with strings, the kind.*7",
        ),
        ({"class": None}, r"must compare with strings, the kind.*None"),
        ({"class": b"shoe"}, r"must compare with strings, the kind.*b'shoe'"),
        ({"class": ["shoe", 7]}, r"must compare with strings, the kind.*7"),
        (
            {"class": [["shoe"]]},
            r"must compare with strings, the kind.*\['shoe'\]",
        ),
        (
            {"class": {"least": "a"}},
            r"must compare with strings, the kind.*'least'",
        ),
        ({"class": Range(1, 2)}, r"must compare with strings, the kind.*1"),
        ({"class": Not(7)}, r"must compare with strings, the kind.*7"),
        (
            {"class": Not(Not("shoe"))},
            r"must compare with strings, the kind.*Not",
        ),
        ({"count": "3"}, r"must compare with integers, the kind.*'3'"),
        ({"count": True}, r"must compare with integers, the kind.*True"),
        (
            {"count": np.bool_(True)},
            r"must compare with integers, the kind.*True",
        ),
        (
            {"count": float("nan")},
            r"must compare with integers, the kind.*nan",
        ),
        (
            {"price": np.float32(np.nan)},
            r"must compare with numbers, the kind.*nan",
        ),
        (
            {"price": [0.5, float("nan")]},
            r"must compare with numbers, the kind.*nan",
        ),
        ({"price": 1j}, r"must compare with numbers, the kind.*1j"),
        (
            {"price": Range("a", "b")},
            r"must compare with numbers, the kind.*'a'",
        ),
        ({"sold": 1}, r"must compare with booleans, the kind.*1"),
        ({"sold": "True"}, r"must compare with booleans, the kind.*'True'"),
        ({"sold": Range(0, 1)}, r"must compare with booleans, the kind.*0"),
    ],
)
def test_bad_filter_is_refused(index, where, message):
    with pytest.raises(ValueError, match=message):
        index.search(np.ones((1, 8)), where=where)
    with pytest.raises(ValueError, match=message):
        index.count(where)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((), "`Range` must have `least`, `most` or both"),
        ((2, 1), "`least` must be at most `most`.*least=2, most=1"),
        (("b", "a"), "`least` must be at most `most`"),
        ((1, "a"), "must be of one kind"),
        ((True, 1), "`least` must be a number or a string.*True"),
        ((np.bool_(True), 1), "`least` must be a number or a string"),
        ((float("nan"), 1), "`least` must be a number or a string.*nan"),
        ((None, [1]), "`most` must be a number or a string"),
        ((1j, None), "`least` must be a number or a string"),
    ],
)
def test_bad_range_is_refused(limits, message):
    with pytest.raises(ValueError, match=message):
        Range(*limits)


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({}, {}),
        ({"a": "x", "b": 2, "c": True}, {"a": "x", "b": 2, "c": True}),
        ({"a": ["x", "y"], "b": []}, {"a": ["x", "y"], "b": []}),
        ({"a": {"least": 1}}, {"a": Range(1)}),
        ({"a": {"most": "x", "least": None}}, {"a": Range(most="x")}),
        ({"a": {"not": "x"}}, {"a": Not("x")}),
        ({"a": {"not": ["x", 1]}}, {"a": Not(["x", 1])}),
        ({"a": {"not": {"least": 1, "most": 2}}}, {"a": Not(Range(1, 2))}),
    ],
)
def test_filter_is_read_from_json(values, where):
    assert where_from_json(values) == where


def nested(depth):
    value = "x"
    for _ in range(depth):
        value = {"not": value}
    return {"a": value}


@pytest.mark.parametrize(
    "values",
    [
        None, "a", ["a"], 7,
        {"a": None}, {"a": {}}, {"a": [None]}, {"a": [["x"]]}, {"a": {"is": "x"}},
        {"a": {"least": 1, "not": 2}}, {"a": {"least": None}}, {"a": {"least": [1]}},
        {"a": {"least": 2, "most": 1}}, {"a": {"least": True}},
        {"a": {"not": None}}, nested(2), nested(100_000),
    ],
)  # fmt: skip
def test_other_json_is_refused(values):
    with pytest.raises(ValueError, match=r"`(where|Range|least)"):
        where_from_json(values)


def test_numbers_of_a_filter_must_be_finite_where_they_are_compared(index):
    # Python's JSON reads NaN.
    with pytest.raises(ValueError, match=r"must compare with integers, the kind.*nan"):
        index.count(where_from_json({"count": float("nan")}))
