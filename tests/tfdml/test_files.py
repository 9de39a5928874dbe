"""Whole files and folders, and the lock: nothing in between is ever seen."""

import errno
import fcntl
import gc
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.faults import each_step
from tests.support.saved_indexes import run_python
from tfdml.files import (
    DISK_IS_FULL,
    Lock,
    locked,
    remove_unfinished,
    replace_folder,
    short_names,
    whole_folder,
    written,
)

ERRORS = pytest.mark.parametrize(
    "stop", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
OLD, NEW = "old " * 3, "new " * 50_000


def write(file):
    with written(file) as new, new.open("w") as stream:
        stream.write(NEW)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_file_appears_whole_and_replaces_another(tmp_path):
    file = tmp_path / "file"
    for _ in range(2):
        with written(file) as new:
            assert not file.exists() or file.read_text() == NEW
            new.write_text(NEW)
        assert file.read_text() == NEW
    assert names(tmp_path) == ["file"]


@ERRORS
def test_error_at_any_step_leaves_the_old_file_or_the_new(stop, tmp_path):
    file, seen = tmp_path / "file", []
    for was_stopped in each_step(
        lambda: file.write_text(OLD), lambda _: write(file), stop
    ):
        seen.append(file.read_text())
        assert names(tmp_path) == ["file"] or was_stopped
    assert set(seen) == {OLD, NEW}
    assert len(seen) >= 5
    assert seen == sorted(seen, reverse=True)  # once new, always new


def test_kill_at_any_step_leaves_the_old_file_or_the_new(tmp_path):
    result = run_python(
        """
        import sys
        from pathlib import Path
        from tests.support.faults import each_step
        from tests.tfdml.test_files import NEW, OLD, names, write
        from tfdml.files import remove_unfinished

        folder = Path(sys.argv[1])
        file = folder / "file"
        old = lambda: file.write_text(OLD)
        for killed in each_step(old, lambda _: write(file), "kill"):
            assert file.read_text() in (OLD, NEW)
            print(file.read_text() == NEW, len(names(folder)))
            remove_unfinished(folder, "file")
            assert names(folder) == ["file"]
        """,
        str(tmp_path),
    )
    assert result.returncode == 0, result.stderr
    steps = result.stdout.split("\n")
    assert steps[0] == "False 1"
    assert (
        "False 2" in steps
    )  # killed while the new one was there, and not in its place
    assert steps[-2] == "True 1"


def test_new_file_is_on_the_disk_before_the_rename_and_its_name_after(
    tmp_path, monkeypatch
):
    steps, fsync, replace = [], os.fsync, os.replace

    def synced(handle):
        steps.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(
        type(tmp_path), "replace", lambda *two: [steps.append("rename"), replace(*two)]
    )
    with written(tmp_path / "file") as new:
        new.write_text(NEW)
    assert steps == [str(new), "rename", str(tmp_path)]


def test_writers_of_one_file_at_once_mix_nothing(tmp_path):
    file, texts = tmp_path / "file", [letter * 200_000 for letter in "abcd"]

    def write_often(text):
        for _ in range(20):
            with written(file) as new:
                new.write_text(text)

    threads = [threading.Thread(target=write_often, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if file.exists():
            assert file.read_text() in texts
    for thread in threads:
        thread.join()
    assert names(tmp_path) == ["file"]


def test_only_unfinished_files_are_removed(tmp_path):
    for name in ("a.0.unfinished", "a.part", "ab.0.unfinished", "a.txt"):
        (tmp_path / name).touch()
    (tmp_path / "run.unfinished").mkdir()
    remove_unfinished(tmp_path, "a")
    assert names(tmp_path) == ["a.txt", "ab.0.unfinished", "run.unfinished"]
    remove_unfinished(tmp_path)
    assert names(tmp_path) == ["a.txt", "run.unfinished"]
    remove_unfinished(tmp_path / "nowhere")


def fill(folder, text=NEW):
    folder.mkdir()
    (folder / "below").mkdir()
    for name in ("one", "below/two"):
        (folder / name).write_text(text)


def content(folder):
    """Return what the files hold that a whole folder has; None where it is not."""
    if not folder.exists():
        return None
    texts = {(folder / name).read_text() for name in ("one", "below/two")}
    assert len(texts) == 1
    return texts.pop()


@ERRORS
def test_error_at_any_step_leaves_no_folder_or_a_whole_one(stop, tmp_path):
    folder, seen = tmp_path / "above" / "folder", []

    def write(_):
        with whole_folder(folder) as new:
            fill(new)

    steps = each_step(
        lambda: shutil.rmtree(tmp_path / "above", ignore_errors=True), write, stop
    )
    for was_stopped in steps:
        seen.append(content(folder))
        if not was_stopped:
            assert names(folder.parent) == ["folder"]
    assert set(seen) == {None, NEW}
    assert seen[-1] == NEW
    assert len(seen) > 10


def test_folder_that_exists_is_not_replaced(tmp_path):
    def write():
        with whole_folder(tmp_path / "folder") as new:
            fill(new)
            (tmp_path / "folder").mkdir()

    with pytest.raises(FileExistsError, match="must not exist"):
        write()
    assert names(tmp_path) == ["folder"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege")
def test_link_to_nowhere_is_kept_as_it_is(tmp_path):
    """Packages of fonts have links into the system that they are for."""
    with whole_folder(tmp_path / "folder") as new:
        fill(new)
        (new / "link").symlink_to("/nowhere/at/all")
    assert (tmp_path / "folder" / "link").readlink() == Path("/nowhere/at/all")


def test_leavings_of_a_killed_writer_are_no_part_of_a_folder(tmp_path):
    fill(tmp_path / "folder.unfinished", OLD)
    with whole_folder(tmp_path / "folder") as new:
        fill(new)
    assert names(tmp_path) == ["folder"]
    assert content(tmp_path / "folder") == NEW


@ERRORS
def test_error_at_any_step_of_a_replacement_leaves_one_of_the_folders(stop, tmp_path):
    new, folder, aside = (tmp_path / name for name in ("new", "folder", "aside"))
    seen = []

    def prepare():
        for path in (new, folder, aside):
            shutil.rmtree(path, ignore_errors=True)
        fill(new)
        fill(folder, OLD)

    for _ in each_step(prepare, lambda _: replace_folder(new, folder, aside), stop):
        seen.append(content(folder))
        assert seen[-1] == NEW or content(new) == NEW
    assert set(seen) == {OLD, NEW}
    assert names(tmp_path) == ["folder"]


HOLD = """
import sys
from pathlib import Path
from tfdml.files import Lock
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def held_by_another(path):
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout.readline() == "held\n"
    return other


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_lock_ends_with_its_process(kind, tmp_path):
    path = tmp_path / kind
    path.touch() if kind == "file" else path.mkdir()
    with held_by_another(path) as other:
        with pytest.raises(BlockingIOError, match=rf"{kind} is locked by another"):
            Lock(path)
        other.kill()
    Lock(path).close()
    assert names(tmp_path) == [kind]


def test_older_versions_lock_the_same_file(tmp_path):
    # Their lock is the system's on the file itself.
    path = tmp_path / "file"
    path.touch()
    with path.open("r+b") as file:
        with locked(path), pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError):
            Lock(path)


def test_lock_waits_where_asked(tmp_path):
    order = []

    def second():
        with locked(tmp_path, wait=True):
            order.append("second")

    with locked(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_lock_of_a_file_that_was_removed_meanwhile_is_not_taken_for_held(tmp_path):
    path, held = tmp_path / "file", []
    path.touch()
    first = Lock(path)

    def second():
        held.append(Lock(path, wait=True))

    thread = threading.Thread(target=second)
    thread.start()
    time.sleep(0.1)
    path.unlink()
    path.touch()
    first.close()
    thread.join()
    with pytest.raises(BlockingIOError):  # the new file is the one that is locked
        Lock(path)
    held[0].close()


def test_missing_file_is_not_locked(tmp_path):
    with pytest.raises(FileNotFoundError):
        Lock(tmp_path / "nowhere")


def test_file_is_locked_while_open_for_writing(tmp_path, monkeypatch):
    # NFS locks no other.
    flock, modes = fcntl.flock, []

    def noted(handle, operation):
        modes.append(fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE)
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", noted)
    path = tmp_path / "file"
    path.touch()
    Lock(path).close()
    assert set(modes) == {os.O_RDWR}


def test_lock_that_nobody_holds_any_more_is_released(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    lock = Lock(tmp_path)
    with pytest.raises(BlockingIOError):
        Lock(tmp_path)
    del lock
    gc.collect()
    Lock(tmp_path).close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_forked_process_neither_releases_nor_keeps_a_lock(tmp_path):
    result = run_python(
        """
        import os, sys
        from pathlib import Path
        from tfdml.files import Lock

        path = Path(sys.argv[1])
        lock = Lock(path)
        read, write = os.pipe()
        closed, close = os.pipe()
        if (child := os.fork()) == 0:
            lock.close()
            os.write(close, b".")
            os.read(read, 1)
            os._exit(0)
        os.read(closed, 1)
        try:
            Lock(path)
        except BlockingIOError:
            print("locked")
        if (other := os.fork()) == 0:
            os.read(read, 1)  # with the file open
            os._exit(0)
        lock.close()
        Lock(path).close()
        os.write(write, b"..")
        for process in (child, other):
            assert os.waitpid(process, 0)[1] == 0
        """,
        str(tmp_path),
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "locked\n"


# What is wrong


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full disk")
@pytest.mark.parametrize("is_array", [False, True])
def test_full_disk_is_told_with_the_file_that_was_written(is_array, tmp_path):
    path = tmp_path / "file.npy"

    def fill():
        with written(path) as new:
            new.symlink_to("/dev/full")
            with new.open("wb") as stream:
                if is_array:
                    np.save(stream, np.ones(10**5))
                stream.write(b"x" * 10**5)

    with pytest.raises(OSError, match="No space left") as refused:
        fill()
    assert refused.value.errno in DISK_IS_FULL
    assert str(path) in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_other_errors_name_what_they_named(tmp_path):
    def read():
        with written(tmp_path / "a"):
            (tmp_path / "nowhere").read_bytes()

    with pytest.raises(FileNotFoundError) as refused:
        read()
    assert refused.value.filename == str(tmp_path / "nowhere")


class TestShortNames:
    def test_path_that_can_be_read_stays_whole(self):
        with pytest.raises(FileNotFoundError) as raised, short_names():
            Path("x" * 200).read_bytes()
        assert raised.value.filename == "x" * 200

    def test_long_paths_of_an_error_are_cut(self):
        with (
            pytest.raises(OSError, match=r"x\.\.\.x.*y\.\.\.y") as raised,
            short_names(),
        ):
            os.rename("x" * 5000, "y" * 5000)
        assert raised.value.errno == errno.ENAMETOOLONG
        assert len(str(raised.value)) <= 500
