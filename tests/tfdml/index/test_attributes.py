"""Attributes of items: what is taken for a value, and what comes back."""

import numpy as np
import pytest

from tests.support.index_examples import BOTH
from tfdml.index import ExactIndex
from tfdml.index.rows import Columns, check_attributes

VALUES = {
    "class": ["shoe", "", "Straße"],
    "count": [-(2**63), None, 2**63 - 1],
    "price": [0.1, -1e300, None],
    "sold": [True, None, False],
}
KINDS = {"class": "string", "count": "integer", "price": "number", "sold": "boolean"}


@BOTH
@pytest.mark.parametrize("way", ["build", "add", "update", "compact", "load"])
def test_values_come_back_in_their_kind(index_class, way, tmp_path):
    if way == "add":
        index = index_class.build(np.empty((0, 3)))
        index.add(np.eye(3), [0, 1, 2], VALUES)
    elif way == "update":
        index = index_class.build(np.eye(3))
        index.update([0, 1, 2], attributes=VALUES)
    else:
        index = index_class.build(np.eye(3), attributes=VALUES)
    if way == "compact":
        index.add([[1, 1, 1]], [3])
        index.remove([3])
        index.compact()
    if way == "load":
        index.save(tmp_path)
        index = index_class.load(tmp_path)
    assert dict(index.stats().attributes) == KINDS
    for row, attributes in enumerate(index.get([0, 1, 2]).attributes):
        expected = {
            name: values[row]
            for name, values in VALUES.items()
            if values[row] is not None
        }
        assert attributes == expected
        kinds = {name: type(value) for name, value in attributes.items()}
        assert kinds == {name: type(value) for name, value in expected.items()}


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


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (["a", "b"], "`attributes` must be a dictionary.*list"),
        ("ab", "`attributes` must be a dictionary.*str"),
        ({7: ["a", "b"]}, "`attributes` must have non-empty strings as names.*7"),
        ({"": ["a", "b"]}, "`attributes` must have non-empty strings as names.*''"),
        ({"x": "ab"}, r"`attributes\['x'\]` must be a sequence.*'ab'"),
        ({"x": b"ab"}, r"`attributes\['x'\]` must be a sequence"),
        ({"x": None}, r"`attributes\['x'\]` must be a sequence.*None"),
        ({"x": 7}, r"`attributes\['x'\]` must be a sequence.*7"),
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
        ({"class": [1, 2]}, "values of one kind.*integer and string"),
        ({"count": [0.5, None]}, "the kind that the index has, integers"),
        ({"count": [0.5, 1]}, "the kind that the index has, integers"),
        ({"price": [2**53 + 1, None]}, "must hold integers that a float rep"),
        ({"sold": [1, 0]}, "values of one kind.*boolean and integer"),
    ],
)
def test_bad_attributes_are_refused_and_nothing_changes(attributes, message):
    index = ExactIndex.build(np.eye(3), attributes=VALUES)
    before = index.get([0, 1, 2])
    with pytest.raises(ValueError, match=message):
        index.add(2 * np.eye(3)[:2], [3, 4], attributes)
    with pytest.raises(ValueError, match=message):
        index.update([0, 1], 2 * np.eye(3)[:2], attributes)
    after = index.get([0, 1, 2])
    assert after.attributes == before.attributes
    np.testing.assert_array_equal(after.embeddings, before.embeddings)
    assert index.ids.tolist() == [0, 1, 2]
    assert dict(index.stats().attributes) == KINDS


def test_new_attribute_of_one_row_is_none_of_the_others():
    index = ExactIndex.build(np.eye(3))
    index.update([1], attributes={"class": ["shoe"]})
    assert index.get([0, 1, 2]).attributes == [{}, {"class": "shoe"}, {}]
    index.add(2 * np.eye(3)[:1], [3], {"size": [42]})
    assert index.get([3, 1, 0]).attributes == [{"size": 42}, {"class": "shoe"}, {}]
    index.remove([1, 3])
    index.compact()
    # An attribute stays known when nobody has it any more.
    assert dict(index.stats().attributes) == {"class": "string", "size": "integer"}
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


def test_attribute_of_items_that_went_while_compacting_stays_known():
    index = ExactIndex.build(np.eye(3))
    build_again = index._build_again

    def changed_meanwhile(gallery, searcher):
        index.add(2 * np.eye(3)[:1], [3], {"size": [42]})
        index.remove([3])
        return build_again(gallery, searcher)

    index.remove([0])
    index._build_again = changed_meanwhile
    index.compact()
    assert index.count({"size": 42}) == 0


def test_values_of_a_failed_change_are_written_over():
    columns = Columns().with_rows(0, check_attributes({"x": ["a", "b"]}, 2, {}), 2)
    seen = columns.view(2)
    columns.with_rows(2, check_attributes({"x": ["c"], "y": [1]}, 1, {}), 1)
    columns = columns.with_rows(2, check_attributes({"x": ["d"]}, 1, {}), 1)
    assert columns.kinds == {"x": "string"}
    view = columns.view(3)["x"]
    assert [view.value(row) for row in range(3)] == ["a", "b", "d"]
    assert [seen["x"].value(row) for row in range(2)] == ["a", "b"]
