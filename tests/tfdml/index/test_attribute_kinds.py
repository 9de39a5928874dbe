"""That the first value of an attribute does not decide on its kind for ever."""

import itertools

import numpy as np
import pytest

from tests.support.index_examples import BOTH
from tests.support.threads import before_next
from tfdml.index import Range, load_index, verify_index

VALUES = {"string": "cheap", "integer": 10, "number": 12.5, "boolean": True}
ROW = np.eye(3)[:1]


def of(index, *ids):
    return [own.get("x") for own in index.get(list(ids)).attributes]


@BOTH
def test_integers_become_floats_with_the_first_float(index_class, tmp_path):
    index = index_class.build(ROW, ["a"], {"x": [10]})
    index.save(tmp_path)
    index.add(ROW, ["b"], {"x": [12.5]})
    index.add(ROW, ["c"], {"x": [11]})
    index.add(ROW, ["d"])
    index.close()
    with load_index(tmp_path) as read:  # the log holds what was added
        for same in (index, read):
            assert same.stats().attributes == {"x": "number"}
            assert of(same, "a", "b", "c", "d") == [10.0, 12.5, 11.0, None]
            assert isinstance(of(same, "a")[0], float)
            assert same.ids_where({"x": Range(10, 12)}).tolist() == ["a", "c"]
            assert same.ids_where({"x": 12.5}).tolist() == ["b"]
        read.save(tmp_path)
    assert verify_index(tmp_path) is not None
    with load_index(tmp_path) as again:
        assert of(again, "a", "b", "c", "d") == [10.0, 12.5, 11.0, None]


@BOTH
def test_integers_that_no_float_represents_stay_integers(index_class):
    index = index_class.build(np.eye(3)[:2], ["a", "b"], {"x": [2**53 + 1, 3]})
    with pytest.raises(ValueError, match=r"beyond 2\*\*53.*Use another name"):
        index.add(ROW, ["c"], {"x": [0.5]})
    assert of(index, "a", "b") == [2**53 + 1, 3]
    index.remove(["a"])
    index.add(ROW, ["c"], {"x": [0.5]})
    assert of(index, "b", "c") == [3.0, 0.5]


@BOTH
@pytest.mark.parametrize(
    ("before", "after"), list(itertools.permutations(VALUES, 2)), ids=str
)
def test_kind_that_no_item_has_any_more_is_free(index_class, before, after, tmp_path):
    index = index_class.build(np.eye(3)[:2], ["a", "b"], {"x": [VALUES[before], None]})
    index.save(tmp_path)
    is_wider = (before, after) in (("integer", "number"), ("number", "integer"))
    if not is_wider:
        with pytest.raises(ValueError, match=f"that the index has, {before}.*{after}"):
            index.add(ROW, ["c"], {"x": [VALUES[after]]})
    index.remove(["a"])
    index.add(ROW, ["c"], {"x": [VALUES[after]]})
    index.close()
    with load_index(tmp_path) as read:
        for same in (index, read):
            assert of(same, "b", "c") == [None, VALUES[after]]
            assert same.count({"x": VALUES[after]}) == 1
        read.save(tmp_path)
    with load_index(tmp_path) as again:
        assert of(again, "b", "c") == [None, VALUES[after]]


@BOTH
def test_last_value_of_a_kind_may_be_replaced_by_one_of_another(index_class):
    index = index_class.build(np.eye(3)[:2], ["a", "b"], {"x": ["cheap", "dear"]})
    with pytest.raises(ValueError, match="that the index has, string"):
        index.update(["a"], attributes={"x": [10]})
    assert of(index, "a", "b") == ["cheap", "dear"]
    index.update(["a", "b"], attributes={"x": [10, None]})
    assert of(index, "a", "b") == [10, None]
    index.update(["a"], attributes={"x": [0.5]})
    assert of(index, "a") == [0.5]


@BOTH
def test_none_does_not_decide_on_a_kind(index_class):
    index = index_class.build(np.eye(3)[:2], ["a", "b"], {"x": [None, None]})
    assert index.stats().attributes == {}
    index.add(ROW, ["c"], {"x": [None]})
    index.add(ROW, ["d"], {"x": ["cheap"]})
    assert index.stats().attributes == {"x": "string"}


@BOTH
def test_kind_that_changes_while_the_index_is_rebuilt_stays(index_class, monkeypatch):
    index = index_class.build(np.eye(3), ["a", "b", "c"], {"x": [1, 2, None]})
    index.add(ROW, ["d"], {"x": [3]})
    index.remove(["b"])

    def change():
        index.add(ROW, ["e"], {"x": [4.5]})

    before_next(monkeypatch, index, "_build_again", change)
    index.compact()
    assert of(index, "a", "c", "d", "e") == [1.0, None, 3.0, 4.5]


@BOTH
def test_search_that_began_before_sees_the_old_kind(index_class):
    index = index_class.build(np.eye(3)[:2], ["a", "b"], {"x": [1, 2]})
    before = index._guarded._table.snapshot
    index.add(ROW, ["c"], {"x": [0.5]})
    assert before.columns["x"].kind == "integer"
    assert before.values_of(np.array([0, 1])) == [{"x": 1}, {"x": 2}]
