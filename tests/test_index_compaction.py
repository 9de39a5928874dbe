"""Indexes that are built again, by themselves or when told, while they are in use."""

import weakref

import numpy as np
import pytest

from tests.index_examples import BOTH
from tests.index_walk import Walk
from tests.saved_indexes import run_python
from tfdml.index import ExactIndex, compaction


@pytest.fixture
def eager(monkeypatch):
    """Have an index built again after a handful of changes."""
    monkeypatch.setattr(compaction, "_TAIL_LEAST", 5)


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


def test_rows_added_while_it_is_built_again_are_built_in_too(eager, monkeypatch):
    index = ExactIndex.build(np.eye(3))
    build_again, built = index._build_again, []

    def slow(gallery, searcher):
        if not built:  # others add meanwhile, and nobody changes it afterwards
            built.append(len(gallery))
            index.add(np.eye(3), [20, 21, 22])
            index.add(np.eye(3), [23, 24, 25])
        return build_again(gallery, searcher)

    monkeypatch.setattr(index, "_build_again", slow)
    index.add(np.tile(np.eye(3), (2, 1)), [3, 4, 5, 6, 7, 8])
    index.close()
    assert built == [9]
    assert index.stats().details["added"] == 0
    assert index.count() == 15


def test_index_that_cannot_be_built_again_goes_on(eager, monkeypatch, caplog):
    walk = Walk(ExactIndex, "cosine", "integer", seed=4, rows=3)
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
    assert "cannot be built again" in caplog.text
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

    monkeypatch.setattr(compaction.threading.Thread, "start", fail)
    index.add(np.eye(3)[[0, 1, 2] * 3], range(3, 12))
    assert len(index) == 12
    assert "can't start new thread" in caplog.text
    index.close()


@BOTH
def test_changes_while_the_index_is_built_again_are_kept(index_class, monkeypatch):
    walk = Walk(index_class, "cosine", "string", seed=5, rows=20)
    build_again = walk.index._build_again

    def changed_meanwhile(gallery, searcher):
        for action in (walk.remove, walk.add, walk.update, walk.again, walk.attributes):
            action()
            walk.check()
        return build_again(gallery, searcher)

    for _ in range(3):
        walk.add()
        walk.remove()
        monkeypatch.setattr(walk.index, "_build_again", changed_meanwhile)
        walk.index.compact()
        monkeypatch.undo()
        walk.check()


@pytest.mark.parametrize("again", [["a", "b"], [7, 8]])
def test_index_may_be_emptied_while_it_is_built_again(again, monkeypatch):
    index = ExactIndex.build(np.eye(3), attributes={"class": ["x", "y", "z"]})
    index.remove([1])
    build_again = index._build_again

    def emptied_meanwhile(gallery, searcher):
        index.remove([0, 2])
        index.add(np.eye(3)[:2], again, {"class": ["v", "w"]})
        return build_again(gallery, searcher)

    monkeypatch.setattr(index, "_build_again", emptied_meanwhile)
    index.compact()
    assert index.ids.tolist() == again
    assert index.search(np.eye(3)[:2], 1).ids.tolist() == [[again[0]], [again[1]]]
    assert index.get(again).attributes == [{"class": "v"}, {"class": "w"}]


@BOTH
def test_program_that_ends_waits_for_the_index(index_class):
    result = run_python(
        f"""
        import sys, time
        sys.modules["tensorflow"] = None
        import numpy as np
        from tfdml.index import {index_class.__name__}
        index = {index_class.__name__}.build(np.eye(8))
        build_again = index._build_again

        def slowly(*args):
            time.sleep(0.5)
            built = build_again(*args)
            print("built again")
            return built

        index._build_again = slowly
        rows = np.random.default_rng(0).normal(size=(5000, 8))
        index.add(rows, range(8, 5008))
        print("end")
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
