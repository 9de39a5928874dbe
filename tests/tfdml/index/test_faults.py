"""Saves and changes that fail, are interrupted or are killed at any of their steps."""

import contextlib
import errno
import shutil

import numpy as np
import pytest

from tests.support.faults import each_step
from tests.support.saved_indexes import items_of, run_python
from tfdml.index import ExactIndex, IndexFileError, load_index

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


CHANGES = {
    "add": lambda index: index.add([[1, 1, 1]], [7]),
    "update": lambda index: index.update([1], [[1, 1, 1]]),
    "remove": lambda index: index.remove([1]),
}


def check_changes(folder, name, stop):
    """Load, change and close an index, stopped at each step."""

    def prepare():
        shutil.rmtree(folder, ignore_errors=True)
        with ExactIndex.build(np.eye(3), attributes={"class": ["x", "y", None]}) as one:
            one.save(folder)
            one.add([[1, 2, 3]], [5])
        return load_index(folder)

    seen = []

    def change(index):
        seen.append((items_of(index), index))
        CHANGES[name](index)

    for was_stopped in each_step(prepare, change, stop):
        if stop == "kill":  # the list was filled in the other process
            seen.append((items_of(prepare()), None) if not seen else seen[-1])
        before, index = seen[-1]
        after = items_of(load_index(folder))
        if index is not None:
            assert items_of(index) == after
            if not was_stopped:
                assert after != before
            elif after == before:
                CHANGES[name](index)
                assert items_of(load_index(folder)) == items_of(index) != before
            index.close()
        else:
            with load_index(folder) as again:
                again.add([[3, 2, 1]], [8])  # the next writer goes on
            assert items_of(load_index(folder)).keys() == after.keys() | {8}


@pytest.mark.parametrize("name", CHANGES)
@EACH_ERROR
def test_change_that_fails_at_any_step_is_made_or_not(name, stop, tmp_path):
    check_changes(tmp_path / "index", name, stop)


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
