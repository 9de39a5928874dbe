"""Changes of a saved index: locks, kills, folders that go away.

`test_faults.py` has the disks that fail.
"""

import contextlib
import random
import shutil
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest

from benchmarks.search.killed_index import ROOT, compared, kill_at_random
from tests.support.index_examples import BOTH
from tests.support.saved_indexes import (
    CHANGES,
    EACH_CHANGE,
    items_of,
    log_file,
    run_python,
    snapshot,
)
from tests.support.threads import meanwhile, together
from tfdml.index import ExactIndex, IndexFileError, LockedError, load_index
from tfdml.index.rows import _growing_array as growing


@pytest.fixture
def saved(tmp_path):
    """An index of the ids 0, 1 and 2, saved to a folder."""
    index = ExactIndex.build(np.eye(3), attributes={"class": ["x", "y", None]})
    index.save(tmp_path / "index")
    yield index
    index.close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "index"


def same(folder, index):
    """Whether a load finds what an index holds."""
    return items_of(load_index(folder)) == items_of(index)


def test_index_that_was_never_saved_has_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ExactIndex.build(np.eye(3)) as index:
        CHANGES["add"](index)
        assert index.stats().details["folder"] is None
    assert not list(tmp_path.iterdir())


def test_save_to_another_folder_moves_the_log(saved, folder, tmp_path):
    CHANGES["add"](saved)
    saved.save(tmp_path / "other")
    saved.remove([0])
    assert load_index(tmp_path / "other").ids.tolist() == [1, 2, 7]
    with load_index(folder) as before:
        assert before.ids.tolist() == [0, 1, 2, 7]
        before.remove([1])  # nobody has it locked any more


@BOTH
def test_compaction_loses_nothing_of_the_log(index_class, tmp_path):
    with index_class.build(np.eye(3)) as index:
        index.save(tmp_path)
        CHANGES["add"](index)
        index.compact()
        CHANGES["remove"](index)
        index.add([[0, 1, 1]], [1])
        assert same(tmp_path, index)
        index.save(tmp_path)
        index.update([7], attributes={"class": ["z"]})
        assert same(tmp_path, index)


def test_refused_change_writes_nothing(saved, folder):
    CHANGES["add"](saved)
    before = snapshot(folder)
    for change in (
        lambda: saved.add([[1, 1, 1]], [7]),
        lambda: saved.add([[1, 1, np.nan]], [8]),
        lambda: saved.add([[1, 1, 1]], ["a"]),
        lambda: saved.add([[1, 1, 1]], [8], {"class": [5]}),
        lambda: saved.update([9], [[1, 1, 1]]),
        lambda: saved.update([9], attributes={}),
        lambda: saved.remove([0, 9]),
        lambda: saved.remove([0, 0]),
    ):
        with pytest.raises((ValueError, KeyError)):
            change()
        assert snapshot(folder) == before
    saved.add(np.empty((0, 3)), [])
    saved.update([0], attributes={})
    saved.remove([])
    assert saved.ids.tolist() == [0, 1, 2, 7]  # an updated one would be the last
    assert snapshot(folder) == before


def test_changes_that_are_read_again_copy_the_marks_of_the_rows_once(
    saved, folder, monkeypatch
):
    # Else many small changes of a large index take for ever to load.
    reader = load_index(folder)
    for number in range(10, 30):
        saved.add([[1, 2, number]], [number])
        saved.update([number], attributes={"class": ["y"]})
        saved.remove([number - number % 2])
        saved.add([[1, 2, 3]], [number - number % 2])
    saved.close()
    copied, copies = growing.GrowingArray.copied, []

    def counted(self, size):
        copies.append(size)
        return copied(self, size)

    with monkeypatch.context() as patched:
        patched.setattr(growing.GrowingArray, "copied", counted)
        assert same(folder, saved)
        assert len(copies) == 1
    # Those that search meanwhile see all of them at once.
    before = reader._table.snapshot
    reader.remove([])
    assert before.live.tolist() == [True] * 3
    assert before.count == 3
    assert items_of(reader) == items_of(saved)
    assert reader.ids.tolist() == saved.ids.tolist()
    reader.close()


# Locks


@EACH_CHANGE
def test_second_index_of_a_folder_cannot_change_it(name, saved, folder):
    second = load_index(folder)
    saved.add([[1, 2, 3]], [5])
    with pytest.raises(LockedError, match=rf"{folder} is being changed"):
        CHANGES[name](second)
    assert second.ids.tolist() == [0, 1, 2]
    saved.close()
    CHANGES[name](second)  # and has caught up with what the first has added
    assert 5 in second
    assert items_of(load_index(folder)) == items_of(second)
    second.close()


def test_folder_that_another_changes_cannot_be_saved_to(saved, folder):
    CHANGES["add"](saved)
    second = load_index(folder)
    for other in (second, ExactIndex.build(np.eye(5))):
        with pytest.raises(LockedError):
            other.save(folder)
        assert load_index(folder).ids.tolist() == [0, 1, 2, 7]
    saved.add([[1, 2, 3]], [8])
    assert load_index(folder).ids.tolist() == [0, 1, 2, 7, 8]


def test_save_to_its_own_folder_keeps_what_others_have_added(saved, folder):
    # A reader that saves would else put the index of before in the place of theirs.
    reader = load_index(folder)
    CHANGES["add"](saved)
    saved.close()
    reader.save(folder)
    assert reader.ids.tolist() == [0, 1, 2, 7]
    assert load_index(folder).ids.tolist() == [0, 1, 2, 7]


def test_copy_is_replaced_by_a_save_as_any_other_index(saved, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    with load_index(tmp_path / "copy") as copy:
        CHANGES["add"](copy)
    CHANGES["remove"](saved)
    saved.save(tmp_path / "copy")
    assert load_index(tmp_path / "copy").ids.tolist() == [0, 2]


def move_away(folder):
    folder.rename(folder.with_name("moved"))


EVENTS = {
    "replaced": lambda folder: ExactIndex.build(np.eye(4)).save(folder),
    "moved": move_away,
    "a file": lambda folder: (move_away(folder), folder.write_text("a file")),
    "an earlier copy": lambda folder: (
        move_away(folder),
        folder.with_name("copy").rename(folder),
    ),
}


@pytest.mark.parametrize("event", EVENTS)
def test_reader_of_what_its_folder_no_longer_holds_changes_nothing(
    event, saved, folder, tmp_path
):
    shutil.copytree(folder, tmp_path / "copy")
    CHANGES["add"](saved)
    saved.close()
    reader = load_index(folder)
    EVENTS[event](folder)
    before = snapshot(tmp_path)
    for change in CHANGES.values():
        with pytest.raises(IndexFileError, match=r"replaced, moved.*Load it again"):
            change(reader)
    if event in ("replaced", "an earlier copy"):
        with pytest.raises(IndexFileError, match="replaced"):
            reader.save(folder)
    assert snapshot(tmp_path) == before
    assert reader.search(np.eye(3), k=1).ids.tolist() == [[0], [1], [2]]


@pytest.mark.parametrize("is_changed", [False, True])
def test_save_does_not_replace_what_another_has_saved_since(
    is_changed, saved, folder, tmp_path
):
    saved.close()
    reader, other = load_index(folder), load_index(folder)
    if is_changed:
        with reader:
            CHANGES["add"](reader)
    with other:
        if is_changed:
            other.remove([0])  # which it has taken up before
        other.add([[1, 2, 3]], [8])
        other.save(folder)
    before = snapshot(folder)
    (tmp_path / "link").symlink_to(folder)  # the name of the folder does not matter
    for place in (folder, tmp_path / "link"):
        with pytest.raises(IndexFileError, match=r"replaced by another.*to another"):
            reader.save(place)
        assert snapshot(folder) == before
    reader.save(tmp_path / "other")  # nothing of its own is lost either
    assert same(tmp_path / "other", reader)
    linked = load_index(tmp_path / "link")
    with load_index(folder) as third:
        third.save(folder)
    with pytest.raises(IndexFileError, match="replaced by another"):
        linked.save(folder)


def test_save_to_a_folder_that_is_gone_begins_anew(saved, folder):
    reader = load_index(folder)
    shutil.rmtree(folder)
    reader.save(folder)
    assert same(folder, saved)
    # Of what stands there since, it is not the owner.
    shutil.rmtree(folder)
    ExactIndex.build(np.eye(5)).save(folder)
    with pytest.raises(IndexFileError, match="replaced by another"):
        reader.save(folder)
    assert len(load_index(folder)) == 5


def test_whoever_saves_at_the_same_time_loses_nothing(saved, folder):
    saved.close()

    def add_and_save(number):
        while True:
            with load_index(folder) as index:
                try:
                    index.add([[number, 2, 3]], [number])
                    index.save(folder)
                except (LockedError, IndexFileError):
                    if number not in index:
                        continue
                return  # the change was made, even if the save was refused

    together(*(partial(add_and_save, number) for number in range(10, 14)))
    assert load_index(folder).ids.tolist()[:3] == [0, 1, 2]
    assert set(load_index(folder).ids.tolist()) == {0, 1, 2, *range(10, 14)}


def test_readers_that_save_at_the_same_time_lose_no_change_of_each_other(saved, folder):
    saved.close()
    start = threading.Barrier(6)

    def save_and_add(reader, number):
        start.wait()
        with reader, contextlib.suppress(LockedError, IndexFileError):
            reader.save(folder)
            reader.add([[number, 1, 1]], [number])
            return number

    readers = [partial(save_and_add, load_index(folder), n) for n in range(10, 16)]
    kept = set(together(*readers)) - {None}
    assert kept
    assert set(load_index(folder).ids.tolist()) == {0, 1, 2, *kept}


def test_one_thread_at_a_time_writes_to_the_log(saved, folder):
    def add(thread):
        for number in range(20):
            saved.add([[thread, number, 1]], [100 * thread + number])

    def save():
        for _ in range(3):
            saved.save(folder)

    together(save, *(partial(add, number) for number in range(1, 6)))
    assert same(folder, saved)
    assert len(saved) == 103


HOLDER = """
import sys
from tfdml.index import load_index
index = load_index(sys.argv[1])
index.add([[1, 1, 1]], [7])
print("locked", flush=True)
sys.stdin.read()
"""


def test_lock_of_another_process_ends_with_it(saved, folder):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "locked\n"
        for change in (lambda: saved.remove([0]), lambda: saved.save(folder)):
            with pytest.raises(LockedError, match="another process"):
                change()
        process.kill()
    saved.remove([0])
    assert saved.ids.tolist() == [1, 2, 7]  # what the killed one had added is there
    assert load_index(folder).ids.tolist() == [1, 2, 7]


def test_forked_process_neither_changes_nor_unlocks_the_index_of_its_parent(tmp_path):
    result = run_python(
        """
        import os, sys
        import numpy as np
        from tfdml.index import ExactIndex, LockedError, load_index
        folder = sys.argv[1]

        def is_locked(index):
            try:
                index.remove([0])
            except LockedError as error:
                return str(error)

        index = ExactIndex.build(np.eye(3))
        index.save(folder)
        index.add([[1, 1, 1]], [7])
        if (child := os.fork()) == 0:
            told = is_locked(index)
            index.close()
            os._exit("forked" not in told)
        assert os.waitpid(child, 0)[1] == 0
        assert is_locked(load_index(folder)), "the child has unlocked it"
        index.add([[1, 1, 3]], [9])
        if (child := os.fork()) == 0:
            os.read(0, 1)
            os._exit(0)
        index.close()  # also lets go of it for the child, which goes on
        with load_index(folder) as other:
            other.remove([0])
        assert load_index(folder).ids.tolist() == [1, 2, 7, 9]
        os.kill(child, 9)
        os.waitpid(child, 0)
        """,
        str(tmp_path / "index"),
    )
    assert result.returncode == 0, result.stderr


# Folders that go away


@EACH_CHANGE
def test_folder_that_is_deleted_takes_no_change(name, saved, folder):
    saved.add([[1, 2, 3]], [5])
    reader = load_index(folder)
    before = items_of(saved)
    shutil.rmtree(folder)
    for index, remedy in ((saved, "Save it again"), (reader, "Load it again")):
        with pytest.raises(IndexFileError, match=rf"moved or removed.*{remedy}"):
            CHANGES[name](index)
        assert items_of(index) == before
        assert index.search(np.eye(3), k=1).ids.tolist() == [[0], [1], [2]]
    saved.save(folder)
    CHANGES[name](saved)
    assert same(folder, saved)


def test_folder_that_is_moved_while_open_takes_no_change_until_it_is_saved_there(
    saved, folder, tmp_path
):
    CHANGES["add"](saved)
    folder.rename(tmp_path / "moved")
    with pytest.raises(IndexFileError, match="replaced, moved or removed"):
        saved.remove([0])
    assert load_index(tmp_path / "moved").ids.tolist() == [0, 1, 2, 7]
    saved.save(tmp_path / "moved")  # its own lock is in nobody's way
    saved.remove([1])
    assert load_index(tmp_path / "moved").ids.tolist() == [0, 2, 7]
    assert not folder.exists()


def _moved(backup, folder):
    folder.rename(folder.with_name("aside"))
    shutil.move(backup, folder)


def _copied_anew(backup, folder):
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)


def _copied_over(backup, folder):
    shutil.copytree(backup, folder, dirs_exist_ok=True)


@EACH_CHANGE
@pytest.mark.parametrize("restore", [_moved, _copied_anew, _copied_over])
@pytest.mark.parametrize("is_of_before", ["the last change", "the last save"])
def test_index_over_which_a_backup_is_restored_takes_no_change(
    name, restore, is_of_before, saved, folder, tmp_path
):
    saved.add([[1, 2, 3]], [5])
    shutil.copytree(folder, tmp_path / "backup")
    saved.add([[3, 2, 1]], [6])
    if is_of_before == "the last save":
        saved.save(folder)
    restore(tmp_path / "backup", folder)
    restored = items_of(load_index(folder))
    before = snapshot(folder)
    for _ in range(2):
        with pytest.raises(IndexFileError, match="was replaced, moved or removed"):
            CHANGES[name](saved)
        with pytest.raises(IndexFileError, match=r"replaced"):
            saved.save(folder)
    assert snapshot(folder) == before
    assert saved.ids.tolist() == [0, 1, 2, 5, 6]
    saved.close()
    with load_index(folder) as again:
        assert items_of(again) == restored
        CHANGES[name](again)


def test_log_that_somebody_else_wrote_to_takes_no_change(saved, folder):
    # As on a file system without locks.
    CHANGES["add"](saved)
    with log_file(folder).open("ab") as file:
        file.write(b"x")
    before = snapshot(folder)
    with pytest.raises(IndexFileError, match="Save it again"):
        saved.remove([0])
    assert snapshot(folder) == before
    assert saved.ids.tolist() == [0, 1, 2, 7]


def test_copy_of_a_folder_that_is_being_changed_loads(saved, folder, tmp_path):
    allowed, done, rng = threading.Semaphore(0), [10], np.random.default_rng(0)

    def change():
        if allowed.acquire(timeout=0.1):
            ids = [*range(done[-1], done[-1] + int(rng.integers(1, 40)))]
            saved.add(rng.normal(size=(len(ids), 3)), ids)
            done.append(ids[-1] + 1)

    with meanwhile(change):
        for copy in range(10):
            least = done[-1]
            allowed.release(20)  # while it is copied and loaded
            shutil.copytree(folder, tmp_path / f"copy-{copy}")
            ids = load_index(tmp_path / f"copy-{copy}").ids.tolist()
            assert ids == [0, 1, 2, *range(10, ids[-1] + 1)][: len(ids)]
            assert len(ids) >= 3 + least - 10
            # A reader sees a whole number of changes too.
            ids = load_index(folder).ids.tolist()
            end, known = ids[-1] + 1, list(done)
            assert len(ids) == 3 or end in known or end > known[-1]


# Kills


KILLS = [("ExactIndex", 3), ("LocalIndex", 2)]
MORE_KILLS = [pytest.param(kind, 25, marks=pytest.mark.full) for kind, _ in KILLS]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "runs"), KILLS + MORE_KILLS)
def test_index_that_is_killed_again_and_again_loses_nothing(kind, runs, folder):
    items, acknowledged, doing = {}, 0, set()
    for run in range(runs):
        seconds = random.Random(run).uniform(0.0, 0.6)  # noqa: S311
        killed = kill_at_random(
            folder, seconds, run, kind=kind, items=items, changes=5 * (run + 1)
        )
        assert not killed.unreadable
        assert not killed.lost
        items, acknowledged = killed.items, acknowledged + killed.acknowledged
        doing.add(killed.last)
    assert acknowledged >= 5 * runs
    if runs > 20:
        assert len(doing - {""}) >= 2


def test_loss_is_noticed(folder):
    # The comparison itself: an index that has lost, or has what it should not.
    killed = kill_at_random(folder, 0.0, 0, changes=20)
    items = killed.items
    assert len(items) > 3
    first, second, third, *_ = items
    with load_index(folder) as index:
        index.remove([first])
        index.update([second], np.ones((1, 8)))
        index.update([third], attributes={"version": [77]})
    found = compared(folder, [], items)
    assert any(line.startswith(f"{first} is None") for line in found.lost)
    assert f"{second} has another embedding" in found.lost
    assert any(line.startswith(f"{third} is 77") for line in found.lost)
    (folder / "manifest.json").unlink()
    assert "holds no index" in compared(folder, [], items).unreadable
