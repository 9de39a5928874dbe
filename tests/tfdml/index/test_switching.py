"""That a folder switches between two saved indexes whole, whenever it is killed."""

from pathlib import Path

import numpy as np
import pytest

from tfdml.index import ExactIndex, IndexFileError, LockedError
from tfdml.versioned_folder import held, kept_manifest


class Killed(BaseException):
    """Stands for the end of the process."""


def save(folder, *ids):
    rows = np.eye(len(ids), 4)
    with ExactIndex.build(rows, ids=ids, model_fingerprint=ids[0]) as index:
        index.save(folder)


def used(folder):
    with ExactIndex.load(folder) as index:
        return index.ids.tolist()


def kept(folder):
    found = kept_manifest(folder)
    return None if found is None else found["model_fingerprint"]


@pytest.fixture
def folder(tmp_path):
    """An index, and another one to switch to."""
    save(tmp_path / "index", "old", "a")
    save(tmp_path / "index" / "next", "new", "a", "b")
    return tmp_path / "index"


def switch(folder):
    with held(folder) as own:
        own.switch(folder / "next")


def swap(folder):
    with held(folder) as own:
        return own.swap()["model_fingerprint"]


def test_switch_keeps_the_former_index_and_the_way_back(folder):
    with ExactIndex.load(folder) as index:
        index.add(np.eye(1, 4, 3), ["changed"])
    switch(folder)
    assert used(folder) == ["new", "a", "b"]
    assert kept(folder) == "old"
    with ExactIndex.load(folder) as index:
        index.remove(["b"])
    assert swap(folder) == "old"
    assert used(folder) == ["old", "a", "changed"]
    assert swap(folder) == "new"
    assert used(folder) == ["new", "a"]
    with held(folder) as own:
        own.forget()
    assert kept(folder) is None
    assert used(folder) == ["new", "a"]
    assert len(list(folder.glob("data-*"))) == 2  # the data, and their log
    with pytest.raises(IndexFileError, match="keeps no other index"):
        swap(folder)


def test_saves_leave_the_index_that_is_kept(folder):
    switch(folder)
    with ExactIndex.load(folder) as index:
        index.add(np.eye(1, 4, 3), ["c"])
        index.save(folder)
    assert swap(folder) == "old"
    assert used(folder) == ["old", "a"]


def test_switch_waits_for_no_writer(folder):
    with ExactIndex.load(folder) as writer:
        writer.remove([])
        with pytest.raises(LockedError):
            switch(folder)
    switch(folder)
    with ExactIndex.load(folder) as index, held(folder), pytest.raises(LockedError):
        index.remove(["a"])


def test_index_that_was_open_accepts_no_changes_after_a_switch(folder):
    with ExactIndex.load(folder) as index:
        switch(folder)
        with pytest.raises(IndexFileError, match="Load it again"):
            index.remove(["a"])


def killed_at(monkeypatch, step):
    """Kill the process in place of its renaming number `step`."""
    done = []
    for name in ("replace", "rename"):
        real = getattr(Path, name)

        def rename(path, target, real=real):
            done.append(target)
            if len(done) > step:
                raise Killed
            return real(path, target)

        monkeypatch.setattr(Path, name, rename)


@pytest.mark.parametrize("step", range(7))
def test_killed_switch_leaves_one_index_whole_and_can_be_made_again(
    folder, monkeypatch, step
):
    with monkeypatch.context() as patched:
        killed_at(patched, step)
        try:
            switch(folder)
        except Killed:
            assert step < 6
            assert used(folder) == ["old", "a"]
            assert kept(folder) is None
        else:
            assert step == 6  # three manifests, data, log, and the switch itself
    if used(folder) == ["old", "a"]:
        with ExactIndex.load(folder) as index:
            index.save(folder)  # which clears away the remains of other saves
        switch(folder)
    assert used(folder) == ["new", "a", "b"]
    assert kept(folder) == "old"


@pytest.mark.parametrize("step", range(4))
def test_killed_way_back_leaves_one_index_whole_and_can_be_made_again(
    folder, monkeypatch, step
):
    switch(folder)
    with monkeypatch.context() as patched:
        killed_at(patched, step)
        try:
            swap(folder)
        except Killed:
            assert step < 3
            assert used(folder) == ["new", "a", "b"]
            assert kept(folder) == "old"
    if used(folder) != ["old", "a"]:
        with ExactIndex.load(folder) as index:
            index.add(np.eye(1, 4, 3), ["c"])
            index.save(folder)
        assert swap(folder) == "old"
        assert swap(folder) == "new"
        assert used(folder) == ["new", "a", "b", "c"]
        swap(folder)
    assert used(folder) == ["old", "a"]
    assert kept(folder) == "new"


def test_damaged_index_is_not_switched_to(folder):
    (file,) = (folder / "next").glob("data-*/embeddings.npy")
    file.write_bytes(b"damaged")
    with pytest.raises(IndexFileError, match="damaged"):
        switch(folder)
    assert used(folder) == ["old", "a"]
