"""Labels and roles of items: what is taken, what it becomes, what is refused."""

import numpy as np
import pytest

from tfdml._labels import (
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
        (["dog", "cat", "dog"], "U"),
        (np.array(["dog", "cat", "dog"], object), "U"),
        ([np.str_("dog"), "cat", "dog"], "U"),
        (np.array([b"dog", b"cat", b"dog"], object), "S"),
        ([np.array(3), np.array(-1), np.array(3)], "i"),
    ],
    ids=str,
)
def test_values_stay_and_their_numbers_follow_their_order(values, kind):
    received = as_labels("labels", values, 3)
    assert received.dtype.kind == kind
    assert received.tolist() == np.asarray(values, object).tolist()
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
        (["a", float("nan"), "b"], "all of one type. Received: float and str"),
        (np.array(["a", None, "b"], object), "Received: NoneType and str"),
        (np.array([True, 2, 3], object), "Received: bool and int"),
        (np.array([1.0, 2.0, 3.0], object), "Received: float"),
        (np.array([1, 2.5, 3], object), "Received: float and int"),
        ([0.0, 1.0, 2.0], "Received: float"),
        (np.zeros(3), "must hold integers or strings. Received: dtype=float64"),
        (np.zeros(3, "datetime64[s]"), "Received: dtype=datetime64"),
        ([[1], [1, 2], [3]], "must be an array: "),
        ([["a"], ["b"], ["c"]], r"must have the shape \[3\]. Received: shape=\(3, 1\)"),
        ([1, 2], r"must have the shape \[3\]. Received: shape=\(2,\)"),
        (7, r"must have the shape \[3\]. Received: shape=\(\)"),
    ],
    ids=str,
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
