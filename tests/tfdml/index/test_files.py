"""The folder of a saved index: places, replacements, and files that do not fit."""

import json
import os
import shutil
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.support.saved_indexes import (
    clustered,
    data_of,
    log_file,
    rewrite_array,
    rewrite_manifest,
    run_python,
    snapshot,
)
from tests.support.threads import before_next, together
from tfdml.index import ExactIndex, IndexFileError, load_index
from tfdml.versioned_folder import _versions as files


def entries(folder):
    return len(list(folder.iterdir()))


def rich_index():
    """An index with a base, added and removed rows, and attributes of all kinds."""
    gallery = clustered(60)
    index = ExactIndex.build(
        gallery[:50],
        ids=[f"item-{i}" for i in range(50)],
        attributes={"class": ["shoe", None] * 25, "price": [1.5] * 50},
        model_fingerprint="m1",
    )
    index.add(
        gallery[50:],
        ids=[f"é-{i}" for i in range(10)],
        attributes={"stock": list(range(10)), "new": [True, False] * 5},
    )
    index.remove(["item-3", "é-4"])
    return index


# Loading


def test_notes_come_back_as_json_keeps_them(tmp_path):
    # Keys that are numbers are sorted otherwise than the strings they become.
    index = ExactIndex.build(np.eye(2))
    index.notes = {10: "ten", 9: (1, 2.5, None), "a": "\ud83d", "b": "\ud83d\ude00"}
    index.save(tmp_path)
    assert load_index(tmp_path).notes == {
        "10": "ten", "9": [1, 2.5, None], "a": "\ud83d", "b": "\ud83d\ude00",
    }  # fmt: skip


OWN, DEEP = {}, []
OWN["own"] = OWN
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        *((notes, "JSON") for notes in (None, [1], "text", {"a": {1}}, {(1, 2): 3})),
        ({"a": float("nan")}, "JSON"),
        (OWN, "hold JSON"),
        ({"deep": DEEP}, "not be nested"),
    ],
    ids=range(8),
)
def test_notes_that_are_not_json_are_refused_and_spare_the_old_index(
    notes, message, tmp_path
):
    index = ExactIndex.build(np.eye(2))
    index.save(tmp_path)
    before = snapshot(tmp_path)
    index.notes = notes
    with (
        index,
        pytest.raises((TypeError, ValueError), match=f"`notes` must.*{message}"),
    ):
        index.save(tmp_path)
    assert snapshot(tmp_path) == before


# Places


def test_folders_above_are_made_and_a_link_to_one_is_followed(tmp_path):
    index = ExactIndex.build(np.eye(2))
    index.save(tmp_path / "a" / "b" / "index")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b" / "index")
    with load_index(tmp_path / "link") as loaded:
        loaded.add([[1, 1]], [7])
        # Its own lock is no obstacle, whatever the folder is called.
        loaded.save(tmp_path / "a" / "b" / ".." / "b" / "index")
    assert (tmp_path / "link").is_symlink()
    assert load_index(tmp_path / "link").ids.tolist() == [0, 1, 7]


def test_relative_folder_is_meant_from_where_it_was_opened(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    ExactIndex.build(np.eye(2)).save("index")
    with load_index("index") as index:
        monkeypatch.chdir(tmp_path / "elsewhere")
        index.add([[1, 1]], [7])
    assert load_index(tmp_path / "index").ids.tolist() == [0, 1, 7]


# Replacing


def test_folder_of_something_else_is_refused_and_unharmed(tmp_path):
    def is_refused(folder=tmp_path, message="must be empty or hold an index"):
        with pytest.raises(IndexFileError, match=message):
            ExactIndex.build(np.eye(2)).save(folder)

    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "data-0123456789abcdef").mkdir()
    is_refused()
    assert (tmp_path / "data-0123456789abcdef").is_dir()
    for content in ('{"name": "a web page"}', "[" * 100_000, '["format"]'):
        (tmp_path / "manifest.json").write_text(content)
        is_refused()
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "manifest.json").mkdir()
    is_refused()
    is_refused(tmp_path / "thesis.txt", "must be a folder")


def test_files_beside_an_index_stay(tmp_path):
    ExactIndex.build(np.eye(2)).save(tmp_path)
    (tmp_path / "classes.json").write_text("{}")
    (tmp_path / "pictures").mkdir()
    ExactIndex.build(np.eye(3)).save(tmp_path)
    assert (tmp_path / "classes.json").read_text() == "{}"
    assert (tmp_path / "pictures").is_dir()
    assert len(load_index(tmp_path)) == 3


def test_all_is_on_the_disk_before_the_rename_and_the_rename_after(
    tmp_path, monkeypatch
):
    folder = tmp_path / "new" / "index"
    steps = []
    fsync, replace = os.fsync, os.rename

    def synced(handle):
        steps.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    def replaced(self, target):
        steps.append("rename")
        replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(type(folder), "replace", replaced)
    ExactIndex.build(np.eye(2)).save(folder)
    before, after = steps[: steps.index("rename")], steps[steps.index("rename") :]
    data = data_of(folder)
    needed = [*data.iterdir(), data, log_file(folder), folder / "manifest.json.new"]
    for path in [*needed, folder, folder.parent, tmp_path]:
        assert str(path) in before
    # The entries of the folder are the last: the data's and the log's are in it.
    assert before[-1] == str(folder)
    assert after == ["rename", str(folder)]


def test_threads_that_save_to_one_folder_take_turns(tmp_path):
    indexes = [ExactIndex.build(np.eye(n)) for n in range(1, 9)]
    together(*(partial(index.save, tmp_path) for index in indexes))
    assert 1 <= len(load_index(tmp_path)) <= 8
    assert entries(tmp_path) == 3


def test_folder_that_another_saves_to_first_is_not_taken_for_foreign(
    tmp_path, monkeypatch
):
    index = ExactIndex.build(np.eye(2))
    before_next(monkeypatch, Path, "iterdir", lambda: index.save(tmp_path))
    files.check_destination(tmp_path)
    assert len(load_index(tmp_path)) == 2


def test_load_during_a_save_gets_the_new_index(tmp_path, monkeypatch):
    index, later = ExactIndex.build(np.eye(2)), ExactIndex.build(np.eye(3))
    index.save(tmp_path)
    before_next(monkeypatch, files, "check_file", lambda: later.save(tmp_path))
    assert len(load_index(tmp_path)) == 3


def test_load_whose_log_is_replaced_gets_the_new_index(tmp_path, monkeypatch):
    ExactIndex.build(np.eye(2)).save(tmp_path)
    restore = ExactIndex._restore.__func__

    def replaced_meanwhile(cls, manifest, data, *options):
        monkeypatch.setattr(ExactIndex, "_restore", classmethod(restore))
        log_file(tmp_path).unlink()
        try:
            return restore(cls, manifest, data, *options)
        finally:
            ExactIndex.build(np.eye(3)).save(tmp_path)

    monkeypatch.setattr(ExactIndex, "_restore", classmethod(replaced_meanwhile))
    assert len(load_index(tmp_path)) == 3


# What is refused


def test_missing_index_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "manifest.json").mkdir(parents=True)
    for name in ("nowhere", "file", "folder"):
        with pytest.raises(IndexFileError, match=r"holds no index.*manifest\.json"):
            load_index(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"[", b"[" * 100_000, b"\xff", b"null", b"7"])
def test_manifest_of_something_else_is_refused(content, tmp_path):
    ExactIndex.build(np.eye(2)).save(tmp_path)
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(IndexFileError, match=r"manifest\.json"):
        load_index(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class": "OtherIndex"}, "must hold one of.*a OtherIndex"),
        *(
            ({"format_version": version}, rf"version {version!r}.*versions 2 to 3")
            for version in (1, 4, "2", None)
        ),
        *(
            (changes, "names files that an index does not")
            for changes in (
                {"data": "../elsewhere"},
                {"data": "data-0123456789abcdef/../.."},
                {"files": {"../ids.npy": {}}},
                {"files": {"scann_docids.pkl": {}}},
            )
        ),
    ],
    ids=str,
)
def test_manifest_of_what_is_not_such_an_index_is_refused(changes, message, tmp_path):
    ExactIndex.build(np.eye(2)).save(tmp_path)
    rewrite_manifest(tmp_path, **changes)
    with pytest.raises(IndexFileError, match=message):
        load_index(tmp_path)
    if "format_version" in changes:
        ExactIndex.build(np.eye(3)).save(tmp_path)  # it may be replaced
        assert len(load_index(tmp_path)) == 3


# Each key of a manifest, missing or of another type, `...` for missing.
WRONG = [..., None, 7, -1, "x", [], {}, [[]], [["class", "color"]], [[7, "string"]]]


@pytest.mark.parametrize("value", WRONG)
def test_manifest_with_a_wrong_value_is_an_index_file_error(value, tmp_path):
    rich_index().save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    for key in (
        "class", "count", "dimension", "metric", "model_fingerprint", "attributes",
        "data", "files", "notes",
    ):  # fmt: skip
        if (key, value) in (
            ("model_fingerprint", "x"), ("attributes", []), ("notes", {}),
        ):  # fmt: skip
            continue  # nothing is wrong with these
        rewrite_manifest(tmp_path, **{key: value})
        with pytest.raises(IndexFileError):
            load_index(tmp_path)
        rewrite_manifest(tmp_path, **manifest)
    assert len(load_index(tmp_path)) == 58


WRONG_ARRAYS = {
    "embeddings": [np.zeros((50, 7), np.float32), np.zeros((50, 8)), np.zeros(50)],
    "added_embeddings": [np.zeros((9, 8), np.float32), np.zeros((10, 8), "U1")],
    "ids": [
        *(np.arange(50), np.array(["a"] * 49), np.ones((50, 1), "U1"), np.array(50)),
        *(np.zeros(49, np.uint8), np.array([255, 0], np.uint8), np.full(9, 65, "u1")),
    ],
    "added_ids": [np.arange(10), np.zeros(11, np.uint8), np.arange(10.0)],
    "live": [np.ones(60, np.uint8), np.ones(59, bool), np.ones(60, bool)],
    "attribute_0": [np.full(60, 7, np.int32), np.full(60, -1, np.int32), np.zeros(60)],
    "attribute_0_known": [np.ones(59, bool), np.ones(60, np.int32)],
    "attribute_0_words": [np.zeros(0, np.uint8), np.array([255, 0], np.uint8)],
    "attribute_1": [np.zeros(60, np.int64), np.array([None] * 60)],
}


@pytest.mark.parametrize("name", WRONG_ARRAYS)
def test_file_that_does_not_fit_the_others_is_an_index_file_error(name, tmp_path):
    rich_index().save(tmp_path)
    whole = np.load(data_of(tmp_path) / f"{name}.npy")
    for array in WRONG_ARRAYS[name]:
        rewrite_array(tmp_path, name, array)
        with pytest.raises(IndexFileError, match="The index is damaged"):
            load_index(tmp_path)
    rewrite_array(tmp_path, name, whole)
    assert len(load_index(tmp_path)) == 58


def test_file_in_the_place_of_a_folder_is_refused(tmp_path):
    ExactIndex.build(np.eye(2)).save(tmp_path)
    file = data_of(tmp_path) / "ids.npy"
    file.unlink()
    file.mkdir()
    with pytest.raises(IndexFileError, match=r"ids\.npy is missing"):
        load_index(tmp_path)
    shutil.rmtree(data_of(tmp_path))
    data_of(tmp_path).write_text("")
    with pytest.raises(IndexFileError, match="is missing"):
        load_index(tmp_path)


# Failing and foreign disks


def test_folder_that_cannot_be_written_to_is_searched():
    place = Path(tempfile.mkdtemp())  # pytest's own is closed to other users
    folder = place / "index"
    result = run_python(
        """
        import os, sys
        import numpy as np
        from tfdml.index import ExactIndex, load_index, verify_index
        folder = sys.argv[1]
        ExactIndex.build(np.eye(2)).save(folder)
        for path, _, names in os.walk(folder):
            for name in names:
                os.chmod(os.path.join(path, name), 0o444)
            os.chmod(path, 0o555)
        if os.getuid() == 0:  # who may write everywhere
            os.chmod(os.path.dirname(folder), 0o755)
            os.setuid(65534)
        index = load_index(folder)
        assert index.search(np.eye(2), k=1).ids.tolist() == [[0], [1]]
        assert verify_index(folder).ok
        for change in (lambda: index.remove([0]), lambda: index.save(folder)):
            try:
                change()
            except PermissionError as error:
                print(error.filename)
            assert index.ids.tolist() == [0, 1]
        assert load_index(folder).ids.tolist() == [0, 1]
        """,
        str(folder),
    )
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(place)
    assert result.returncode == 0, result.stderr
    log, data = result.stdout.split()
    assert log.endswith(".log")
    assert "data-" in data


def test_no_file_stays_open(tmp_path):
    index = ExactIndex.build(np.eye(2))
    before = len(os.listdir("/proc/self/fd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(5):
            index.save(tmp_path)
            index.add([[1, 1]], [10 + number])
            with (
                load_index(tmp_path) as loaded,
                pytest.raises(OSError, match="changed"),
            ):
                loaded.remove([0])
        index.close()
        with pytest.raises(IndexFileError):
            load_index(tmp_path / "nowhere")
    assert len(os.listdir("/proc/self/fd")) == before


def test_full_disk_leaves_no_empty_folder_and_is_named(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    index = ExactIndex.build(np.eye(3))
    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(OSError, match=f"No space left.*{tmp_path / 'index'}"):
            index.save(tmp_path / "index")
    assert not (tmp_path / "index").exists()
    index.save(tmp_path / "index")
