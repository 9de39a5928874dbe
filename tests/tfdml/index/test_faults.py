"""Saves and changes that fail, are interrupted or are killed at any of their steps."""

import contextlib
import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.faults import each_step
from tests.support.saved_indexes import (
    CHANGES,
    EACH_CHANGE,
    items_of,
    log_file,
    run_python,
)
from tfdml.index import ExactIndex, IndexFileError, load_index, rows
from tfdml.index.storage import ChangeLog

ERRORS = {
    "full disk": OSError(errno.ENOSPC, "No space left on device"),
    "interrupt": KeyboardInterrupt(),
}
EACH_ERROR = pytest.mark.parametrize("stop", ERRORS.values(), ids=ERRORS)


def count(folder):
    """Return how many items a load finds, 0 where there is no index."""
    if not (folder / "manifest.json").exists():
        with pytest.raises(IndexFileError, match="holds no index"):
            load_index(folder)
        return 0
    return len(load_index(folder))


def stopped_saves(folder, before, stop):
    """Save an index of 3 items, stopped at each step; return what a load found then.

    Args:
        before: What the folder holds: nothing, another index of 2 items, or an earlier
            state of the one that is saved, with a change in its log.
        stop: See `each_step`.
    """

    def prepare():
        shutil.rmtree(folder, ignore_errors=True)
        if before == "nothing":
            return ExactIndex.build(np.eye(3))
        index = ExactIndex.build(np.eye(2))
        index.save(folder)
        if before == "another":
            return ExactIndex.build(np.eye(3))
        index.add([[1, 1]], [2])
        if stop == "kill":  # a lock would stay with this process
            index.close()
        return index

    indexes, counts = [], []

    def save(index):
        indexes.append(index)
        index.save(folder)

    for was_stopped in each_step(prepare, save, stop):
        counts.append(count(folder))
        if was_stopped and stop != "kill" and before == "changed":
            goes_on(indexes[-1], folder)
        for index in indexes:
            index.close()
        ExactIndex.build(np.eye(2)).save(folder)  # what is left is in nobody's way
        assert count(folder) == 2
        assert len(list(folder.iterdir())) == 3
    return counts


def goes_on(index, folder):
    """Check that an index takes changes after a failed save, or asks for another."""
    with contextlib.suppress(IndexFileError):
        index.add([[1, 2]], [7])
    if 7 not in index:  # it was replaced, and does not know
        with pytest.raises(IndexFileError, match="Save it again"):
            index.add([[1, 2]], [7])
        index.save(folder)
        index.add([[1, 2]], [7])
    assert load_index(folder).ids.tolist() == index.ids.tolist() == [0, 1, 2, 7]


def check_saves(folder, before, stop):
    counts = stopped_saves(folder, before, stop)
    old = {"nothing": 0, "another": 2, "changed": 3}[before]
    assert set(counts) == {old, 3}
    if stop == "kill":  # the old one, and from some step on the new one
        assert counts == sorted(counts)
    assert len(counts) > 15


BEFORE = pytest.mark.parametrize("before", ["nothing", "another", "changed"])


@BEFORE
@EACH_ERROR
def test_save_that_fails_at_any_step_leaves_the_old_index_or_the_new(
    before, stop, tmp_path
):
    check_saves(tmp_path / "index", before, stop)


@pytest.mark.slow
@BEFORE
def test_save_that_is_killed_at_any_step_leaves_the_old_index_or_the_new(
    before, tmp_path
):
    in_another_process(f"check_saves(folder, {before!r}, 'kill')", tmp_path / "index")


def changed(folder):
    """Save an index with a change in its log."""
    shutil.rmtree(folder, ignore_errors=True)
    with ExactIndex.build(np.eye(3), attributes={"class": ["x", "y", None]}) as index:
        index.save(folder)
        index.add([[1, 2, 3]], [5], {"class": ["new"]})
    return load_index(folder)


def check_changes(folder, name, stop, **steps):
    """Load and change an index, stopped at each step; return how often it was."""
    with changed(folder) as index:
        before = items_of(index)
        CHANGES[name](index)
        made = items_of(index)
    indexes = []

    def change(index):
        indexes.append(index)
        CHANGES[name](index)

    runs = 0
    for was_stopped in each_step(lambda: changed(folder), change, stop, **steps):
        runs += 1
        after = items_of(load_index(folder))
        assert after in ([before, made] if was_stopped else [made])
        if stop == "kill":
            indexes.append(load_index(folder))  # the next writer goes on
        with indexes.pop() as index:
            assert items_of(index) == after
            if after == before:
                assert set(index.stats().attributes) == {"class"}
                CHANGES[name](index)
            # Nothing half-made shows up later.
            index.add([[5, -5, 1], [-6, 6, 1]], [20, 21], {"class": ["z", None]})
            assert items_of(load_index(folder)) == items_of(index)
            assert items_of(index).items() > made.items()
            rows = index.get([20, 21]).embeddings
            assert index.search(rows, k=1).ids[:, 0].tolist() == [20, 21]
    return runs


@EACH_CHANGE
@EACH_ERROR
def test_change_that_fails_at_any_step_is_made_or_not(name, stop, tmp_path):
    assert check_changes(tmp_path / "index", name, stop) > 5


@EACH_CHANGE
@pytest.mark.parametrize(
    ("stop", "every"),
    [
        (KeyboardInterrupt(), 11),
        (MemoryError(), 13),
        pytest.param(KeyboardInterrupt(), 1, marks=pytest.mark.full),
        pytest.param(MemoryError(), 1, marks=pytest.mark.full),
    ],
)
def test_change_that_is_interrupted_at_any_line_is_made_or_not(
    name, stop, every, tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # nothing here is killed
    code = str(Path(rows.__file__).parent)
    runs = check_changes(tmp_path / "index", name, stop, code=code, every=every)
    assert runs > 60 // every


class HalfWritten:
    """A log of which half a record is written before an error."""

    def __init__(self, file, error):
        self._file, self._error = file, error

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, content):
        self._file.write(bytes(content)[:20])
        raise self._error


@EACH_CHANGE
@pytest.mark.parametrize("stop", [*ERRORS.values(), MemoryError()])
def test_change_that_is_half_written_is_not_made(name, stop, tmp_path):
    with changed(tmp_path) as index:
        index.add([[1, 2, 3]], [6])
        before, size = items_of(index), log_file(tmp_path).stat().st_size
        written = index._guarded._saved._log
        file, written._file = written._file, HalfWritten(written._file, stop)
        with pytest.raises(type(stop)):
            CHANGES[name](index)
        written._file = file
        assert items_of(index) == items_of(load_index(tmp_path)) == before
        assert log_file(tmp_path).stat().st_size == size
        CHANGES[name](index)  # there is space again
        assert items_of(load_index(tmp_path)) == items_of(index) != before


@EACH_CHANGE
def test_change_of_which_nobody_knows_whether_it_was_written_is_looked_up(
    name, tmp_path, monkeypatch
):
    # The disk fails, also when it is asked to take the change back.
    index = changed(tmp_path)
    index.add([[1, 2, 3]], [6])
    before = items_of(index)

    def broken(*arguments):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        patched.setattr(ChangeLog, "cut", broken)
        with pytest.raises(OSError, match="Input/output error"):
            CHANGES[name](index)
        assert items_of(index) == before
    on_disk = items_of(load_index(tmp_path))
    with index:
        index.add([[3, 2, 1]], [8])  # it reads what is there first
        found = items_of(load_index(tmp_path))
        assert found == items_of(index)
        assert found.keys() == on_disk.keys() | {8}


@pytest.mark.slow
def test_change_that_is_killed_at_any_step_is_made_or_not(tmp_path):
    code = "for name in CHANGES: check_changes(folder, name, 'kill')"
    in_another_process(code, tmp_path / "index")


def in_another_process(code, folder):
    """Run code with the names of this file where no thread is, so that it may fork."""
    result = run_python(
        "import sys; from pathlib import Path\n"
        "from tests.tfdml.index.test_faults import *\n"
        f"folder = Path(sys.argv[1])\n{code}",
        str(folder),
    )
    assert result.returncode == 0, result.stderr
