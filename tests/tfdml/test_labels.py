"""Labels and roles of items: what is taken, what it becomes, what is refused."""

import tracemalloc

import numpy as np
import pytest

from tfdml._core.labels import (
    as_labels,
    as_role,
    class_codes,
)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([3, -1, 3], "i"),
        (np.array([3, 1, 3], "uint8"), "u"),
        (np.array([3, -1, 3], object), "i"),
        (np.array([np.int32(3), -1, np.uint8(3)], object), "i"),
        ([2**70, 1, 2**70], "O"),
        (np.array([2**63, -1, 2**63], object), "O"),
        ([2**63, -1, 2**63], "O"),  # of which NumPy alone makes floats
        ([True, False, True], "b"),
        (np.array([True, False, True], object), "b"),
        (np.array([3.0, -1.0, 3.0], "float32"), "i"),
        ([3.0, -1.0, 3.0], "i"),
        (np.array([3.0, 1.0, 3.0], object), "i"),
        (["dog", "cat", "dog"], "U"),
        (np.array(["dog", "cat", "dog"], np.dtypes.StringDType()), "U"),
        (np.array(["dog", "cat", "dog"], object), "U"),
        ([np.str_("dog"), "cat", "dog"], "U"),
        (np.array([b"dog", b"cat", b"dog"], object), "S"),
        ([np.array(3), np.array(-1), np.array(3)], "i"),
        ([[3], [-1], [3]], "i"),  # a column, as Keras' data sets have it
        (np.array([["dog"], ["cat"], ["dog"]]), "U"),
        (memoryview(np.array([3, 1, 3], "uint8")), "u"),
        (np.arange(6, dtype="int16")[::2] % 4 * -1, "i"),
        (np.ma.array([3, -1, 3]), "i"),
    ],
    ids=lambda value: str(value).split(" at 0x")[0][:40],
)
def test_values_stay_and_their_numbers_follow_their_order(values, kind):
    received = as_labels("labels", values, 3)
    assert received.dtype.kind == kind
    assert received.tolist() == np.asarray(values, object).ravel().tolist()
    codes = class_codes("labels", values)
    assert codes.tolist() == [1, 0, 1]
    assert codes.dtype == np.int64


@pytest.mark.parametrize("values", [[], np.array([]), np.array([], object)])
def test_no_values_are_taken(values):
    assert as_labels("labels", values, 0).shape == (0,)
    assert class_codes("labels", values).shape == (0,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "1", 2], "integers or strings, all of one type. Received: int and str"),
        (["a", float("nan"), "b"], "missing values.* Received: nan in row 1. Leave"),
        (np.array(["a", None, "b"], object), "missing values.*Received: None in row 1"),
        ([1.0, float("nan"), 2.0], "missing values.*Received: nan in row 1"),
        (np.array([1.0, 2.0, np.nan], "float16"), "missing values.*nan in row 2"),
        (np.ma.array([1, 2, 3], mask=[0, 1, 0]), "missing values.*masked.*row 1"),
        (np.array([1, np.datetime64("NaT", "s"), 2], object), "integers or strings"),
        (np.array([True, 2, 3], object), "Received: bool and int"),
        (np.array([1, 2.5, 3], object), "Received: float and int"),
        ([0.0, 1.5, 2.0], "whole numbers or strings. Received: 1.5 in row 1"),
        ([0.0, 1.0, float("inf")], "whole numbers or strings. Received: inf in row 2"),
        (np.array([0, 2**24, 1], "float32"), "integers, not floats, above 16777216"),
        (np.zeros(3, complex), "must hold integers or strings. Received: dtype=comp"),
        (np.zeros(3, "datetime64[s]"), "Received: dtype=datetime64"),
        ([[1], [1, 2], [3]], "must be an array: .*inhomogeneous"),
        (np.eye(3), r"shape \[3\]. Received: shape=\(3, 3\)\. One-hot .*argmax"),
        ([1, 2], r"must have the shape \[3\]. Received: shape=\(2,\)"),
        (iter([1, 2, 3]), "an array or a sequence. Received: .* type list_iterator"),
        ({1: 2}, "an array or a sequence. Received: a value of type dict"),
        (None, "an array or a sequence. Received: None"),
        (7, r"must have the shape \[3\]. Received: shape=\(\)"),
    ],
    ids=lambda value: str(value).split(" at 0x")[0][:40],
)
def test_other_values_are_refused(values, message):
    for function in (as_labels, class_codes):
        with pytest.raises(ValueError, match=f"`labels` .*{message}"):
            function("labels", values, 3)


def test_role_of_none_is_that_of_everyone():
    assert as_role("is_query", None, 3).tolist() == [True] * 3
    assert as_role("is_query", [True, False], 2).tolist() == [True, False]


@pytest.mark.parametrize("role", [[0, 1], [True], [[True, False]], ["a", "b"]])
def test_role_that_is_no_bool_of_each_item_is_refused(role):
    with pytest.raises(ValueError, match=r"`is_query` must be a bool .*shape \[2\]"):
        as_role("is_query", role, 2)


pandas = pytest.importorskip("pandas")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pandas.Series([3, 1, 3], index=[2, 0, 1]), [3, 1, 3]),
        (pandas.Series(["b", "a", "b"], index=[9, 8, 7]), ["b", "a", "b"]),
        (pandas.Series(["b", "a", "b"], dtype="category"), ["b", "a", "b"]),
        (pandas.Series([3, 1, 3], dtype="category"), [3, 1, 3]),
        (pandas.Series([3, 1, 3], dtype="Int64"), [3, 1, 3]),
        (pandas.Series([True, False, True], dtype="boolean"), [True, False, True]),
        (pandas.Series([3.0, 1.0, 3.0]), [3, 1, 3]),
        (pandas.DataFrame({"label": [3, 1, 3]}, index=[1, 2, 0]), [3, 1, 3]),
        (pandas.Index(["b", "a", "b"]), ["b", "a", "b"]),
    ],
)
def test_column_of_pandas_counts_by_position(column, expected):
    assert as_labels("labels", column, 3).tolist() == expected


@pytest.mark.parametrize(
    "column",
    [
        pandas.Series([3, 1, None]),
        pandas.Series([3, 1, None], dtype="Int64"),
        pandas.Series(["a", "b", None]),
        pandas.Series(["a", "b", None], dtype="category"),
        pandas.Series([True, False, None], dtype="boolean"),
    ],
)
def test_missing_value_of_pandas_is_reported(column):
    with pytest.raises(ValueError, match=r"missing values.*row 2\. Leave such rows"):
        as_labels("labels", column)


def test_role_may_be_a_column_of_pandas():
    for dtype in ("bool", "boolean"):
        column = pandas.Series([True, False], index=[1, 0], dtype=dtype)
        assert as_role("is_query", column, 2).tolist() == [True, False]


@pytest.mark.parametrize("value", ["x" * 1025, b"x" * 10**6])
@pytest.mark.parametrize("kept", [list, tuple, lambda x: np.array(x, object)])
@pytest.mark.parametrize("column", [False, True])
def test_long_string_is_refused_before_all_get_its_length(value, kept, column):
    values = [type(value)()] * 1000 + [value]  # a gigabyte in an array of strings
    if column:
        values = [[one] for one in values]
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="at most 1,024") as refused:
            as_labels("labels", kept(values))
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    assert str(refused.value).startswith(
        "`labels` must have at most 1,024 characters each. "
        f"Received: {len(value):,} in row 1000, "
    )
    assert len(str(refused.value)) <= 500


def test_string_of_1024_characters_is_a_label():
    assert as_labels("labels", ["x" * 1024, ""]).tolist() == ["x" * 1024, ""]
