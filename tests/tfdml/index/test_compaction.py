"""Indexes that are built again, by themselves or when told, while they are in use."""

import threading
import weakref

import numpy as np
import pytest

from tests.support.index_examples import BOTH
from tests.support.index_walk import Walk
from tests.support.saved_indexes import items_of, run_python
from tests.support.threads import before_next
from tfdml.index import ExactIndex
from tfdml.index.local import Limits, MemoryIndex


@pytest.fixture
def eager(monkeypatch):
    """Have an index built again after a handful of changes."""
    monkeypatch.setattr(MemoryIndex, "limits", Limits(tail_least=5))


@BOTH
def test_many_changes_have_the_index_built_again(index_class, eager):
    index = index_class.build(np.eye(3))
    index.add(np.eye(3), [3, 4, 5])
    assert index._guarded._compaction._thread is None
    index.add(np.eye(3), [6, 7, 8])
    index.close()  # waits
    assert index.stats().details["added"] == 0
    index.remove([0, 6])
    index.close()
    assert index.stats().details["removed"] == 0
    assert index.ids.tolist() == [1, 2, 3, 4, 5, 7, 8]


@BOTH
def test_save_keeps_what_was_built_again(index_class, eager, tmp_path):
    index = index_class.build(np.empty((0, 3)), [])
    with index:
        index.save(tmp_path)
        index.add(np.eye(3)[[0, 1, 2] * 2], range(6))
        assert index.stats().details["save_is_due"]
        index.save(tmp_path)
        assert not index.stats().details["save_is_due"]
    loaded = index_class.load(tmp_path)
    assert items_of(loaded) == items_of(index)
    assert loaded.stats().details["added"] == 0
    assert not loaded.stats().details["save_is_due"]


def test_save_builds_again_what_others_have_changed(eager, tmp_path):
    index = ExactIndex.build(np.eye(3))
    index.save(tmp_path)
    reader = ExactIndex.load(tmp_path)
    with index:
        for number in range(4):  # too few for one that is loaded with them
            index.add(np.eye(3)[:1], [10 + number])
    with reader:
        reader.add(np.eye(3)[:1], [20])
        assert reader.stats().details["added"] == 5
    other = ExactIndex.load(tmp_path)
    with ExactIndex.load(tmp_path) as another:
        another.add(np.eye(3)[:1], [21])
    other.save(tmp_path)
    other.close()
    assert other.stats().details["added"] == 0
    assert ExactIndex.load(tmp_path).ids.tolist() == [0, 1, 2, *range(10, 14), 20, 21]


def test_save_goes_on_where_the_index_cannot_be_built_again(
    eager, monkeypatch, caplog, tmp_path
):
    index = ExactIndex.build(np.eye(3))

    def fail(gallery, searcher):
        raise MemoryError("no room")

    monkeypatch.setattr(index, "_build_again", fail)
    index.add(np.eye(3)[[0, 1, 2] * 2], range(10, 16))
    index.save(tmp_path)
    index.close()
    assert "cannot be rebuilt" in caplog.text
    assert not index.stats().details["save_is_due"]  # a try would fail again
    assert items_of(ExactIndex.load(tmp_path)) == items_of(index)


@BOTH
def test_index_is_built_again_once_searches_of_what_was_loaded_are_many(
    index_class, eager, monkeypatch, tmp_path
):
    # It was built empty, and filled by its log: else it would be slow for ever.
    with index_class.build(np.empty((0, 3)), []) as index:
        index.save(tmp_path)
        index.add(np.eye(3)[[0, 1, 2] * 2], range(6))
    monkeypatch.setattr(MemoryIndex, "limits", Limits(tail_least=5, compared=40))
    reader = index_class.load(tmp_path)
    expected = items_of(reader)
    for _ in range(4):  # as a program that ends soon
        found = reader.search(np.eye(3), 2)
        assert reader._guarded._compaction._thread is None
    for _ in range(10):
        again = reader.search(np.eye(3), 2)
        assert again.ids.tolist() == found.ids.tolist()
    reader.close()
    assert reader.stats().details["added"] == 0
    assert items_of(reader) == expected
    thread = reader._guarded._compaction._thread
    for _ in range(20):
        reader.search(np.eye(3), 2)
    assert reader._guarded._compaction._thread is thread
    with reader:  # and it still takes changes
        reader.remove([0])
        assert items_of(index_class.load(tmp_path)) == items_of(reader)


def test_searches_of_an_index_with_few_changes_build_nothing(monkeypatch):
    monkeypatch.setattr(MemoryIndex, "limits", Limits(compared=0))
    index = ExactIndex.build(np.eye(3))
    index.add(np.eye(3), [3, 4, 5])
    for _ in range(5):
        index.search(np.eye(3), 2)
    assert index._guarded._compaction._thread is None


def test_rows_added_while_it_is_built_again_are_built_in_too(eager, monkeypatch):
    index = ExactIndex.build(np.eye(3))

    def add():  # others do, and nobody changes it afterwards
        index.add(np.eye(3), [20, 21, 22])
        index.add(np.eye(3), [23, 24, 25])

    before_next(monkeypatch, index, "_build_again", add)
    index.add(np.tile(np.eye(3), (2, 1)), [3, 4, 5, 6, 7, 8])
    index.close()
    assert index.stats().details["added"] == 0
    assert index.count() == 15


def test_index_that_cannot_be_built_again_goes_on(eager, monkeypatch, caplog):
    walk = Walk(ExactIndex.build, "cosine", "integer", seed=4, rows=3)
    tries = []

    def fail(gallery, searcher):
        tries.append(len(gallery))
        raise MemoryError("no room")

    monkeypatch.setattr(walk.index, "_build_again", fail)
    for _ in range(60):
        embeddings, ids, classes = walk.new(1)
        walk.index.add(embeddings, ids, {"class": classes})
        walk.model.add(ids, embeddings, classes)
        walk.index._guarded._compaction.wait()
    # At 6 rows more than were built of, and whenever these have doubled.
    assert tries == [9, 15, 27, 51]
    assert "cannot be rebuilt" in caplog.text
    walk.check()
    with pytest.raises(MemoryError):
        walk.index.compact()
    walk.check()
    monkeypatch.undo()
    walk.compact()
    walk.check()


def test_change_is_made_where_no_thread_can_be_started(eager, monkeypatch, caplog):
    index = ExactIndex.build(np.eye(3))

    def fail(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    index.add(np.eye(3)[[0, 1, 2] * 3], range(3, 12))
    assert len(index) == 12
    assert "can't start new thread" in caplog.text
    index.close()


@BOTH
def test_changes_while_the_index_is_built_again_are_kept(index_class, monkeypatch):
    walk = Walk(index_class.build, "cosine", "string", seed=5, rows=20)

    def change():
        for action in (walk.remove, walk.add, walk.update, walk.again, walk.attributes):
            action()
            walk.check()

    for _ in range(3):
        walk.add()
        walk.remove()
        before_next(monkeypatch, walk.index, "_build_again", change)
        walk.index.compact()
        walk.check()


@pytest.mark.parametrize("again", [["a", "b"], [7, 8]])
def test_index_may_be_emptied_while_it_is_built_again(again, monkeypatch):
    index = ExactIndex.build(np.eye(3), attributes={"class": ["x", "y", "z"]})
    index.remove([1])

    def empty():
        index.remove([0, 2])
        index.add(np.eye(3)[:2], again, {"class": ["v", "w"]})

    before_next(monkeypatch, index, "_build_again", empty)
    index.compact()
    assert index.ids.tolist() == again
    assert index.search(np.eye(3)[:2], 1).ids.tolist() == [[again[0]], [again[1]]]
    assert index.get(again).attributes == [{"class": "v"}, {"class": "w"}]


@BOTH
def test_program_that_ends_waits_for_the_index(index_class):
    result = run_python(
        f"""
        import sys, threading, time
        sys.modules["tensorflow"] = None
        import numpy as np
        from tfdml.index import {index_class.__name__}
        index = {index_class.__name__}.build(np.eye(8))
        build_again = index._build_again

        ended = threading.Event()

        def slowly(*args):
            ended.wait()
            time.sleep(0.2)
            built = build_again(*args)
            print("built again")
            return built

        index._build_again = slowly
        index.add(np.random.default_rng(0).normal(size=(5000, 8)), range(8, 5008))
        print("end")
        ended.set()
        """
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == ["end", "built again"]


def test_index_that_nobody_holds_goes_at_once():
    # Its lock with it: a cycle would keep both until Python collects garbage.
    index = ExactIndex.build(np.eye(3))
    index.add(np.eye(3), [3, 4, 5])
    index.search(np.eye(3), 2)
    index.compact()
    gone = weakref.ref(index)
    del index
    assert gone() is None
