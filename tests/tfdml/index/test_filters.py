"""Filters as they are written; `test_contract.py` has what they let pass."""

import numpy as np
import pytest

from tfdml.index import ExactIndex, Not, Range, where_from_json


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


def test_numbers_of_a_filter_must_be_finite_where_they_are_compared():
    index = ExactIndex.build(np.eye(1), attributes={"count": [3]})
    # Python's JSON reads NaN.
    with pytest.raises(ValueError, match=r"must compare with integers, the kind.*nan"):
        index.count(where_from_json({"count": float("nan")}))


@pytest.mark.parametrize("count", [0, 1, 16, 17, 60])
@pytest.mark.parametrize("kind", [str, int, float, lambda value: value % 2 == 0])
def test_list_of_values_marks_what_a_loop_over_the_rows_marks(kind, count):
    numbers = np.random.default_rng(count).integers(80, size=500).tolist()
    values = [None if number % 7 == 0 else kind(number) for number in numbers]
    wanted = [kind(number) for number in range(10, 10 + count)]
    index = ExactIndex.build(np.ones((500, 1)), attributes={"x": values})
    expected = [value is not None and value in wanted for value in values]
    for condition, marks in (
        (wanted, expected), (Not(wanted), [not held for held in expected])
    ):  # fmt: skip
        found = index.ids_where({"x": condition})
        assert found.tolist() == np.flatnonzero(marks).tolist()
