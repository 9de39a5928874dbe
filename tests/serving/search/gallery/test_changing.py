"""Folders of images are added to an index, and images removed, by name."""

import numpy as np
import pytest

from serving.search.gallery.changing import add_images, remove_images
from serving.search.gallery.editing import Addition, ExistsError, GalleryEditor
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.indexing import index_images
from serving.search.gallery.model_check import MismatchError
from serving.search.gallery.opening import open_search
from serving.search.gallery.stored_images import StoredImages
from tests.support.search_fixtures import (
    DIMENSION,
    copy_search,
    quarter_colors,
    serve_model,
    write_color_model,
    write_image,
)
from tfdml.images import UnreadableImageError
from tfdml.index import LocalIndex, LockedError
from tfdml.index.local import Limits, MemoryIndex
from tfdml.index.storage import ChangeLog


@pytest.fixture
def model(colors):
    return colors / "models" / "colors"


@pytest.fixture
def folder(colors, tmp_path):
    return copy_search(colors, tmp_path)


def ids_of(folder):
    return load_gallery(folder / "index")[0].ids.tolist()


# Adding


@pytest.mark.parametrize("by", ["model", "endpoint"])
def test_added_images_are_found_by_their_embeddings(folder, model, colors_url, by):
    write_image(folder / "more" / "mixed" / "yellow.png", (200, 200, 0))
    write_image(folder / "more" / "cyan.png", (0, 200, 200))
    chosen = {"model": model} if by == "model" else {"endpoint": colors_url}
    report = add_images(folder / "index", folder / "more", **chosen, batch_size=1)
    assert (report.added, report.stored, report.images) == (2, 2, 11)
    assert "2 images added; the index now has 11." in str(report)
    index, _ = load_gallery(folder / "index")
    yellow = quarter_colors(np.full((2, 2, 3), (200, 200, 0), np.uint8))
    found = index.search(yellow[None].astype(np.float32), 1)
    assert found.ids.tolist() == [["mixed/yellow.png"]]
    np.testing.assert_allclose(found.scores, 1, atol=1e-5)
    classes = [own.get("class") for own in index.get(ids_of(folder)[-2:]).attributes]
    assert classes == [None, "mixed"]
    # The copy is searched and shown, whatever becomes of the folder.
    for file in (folder / "more").rglob("*.png"):
        file.unlink()
    with open_search(folder / "index", colors_url) as search:
        files = [search.file(search.item(id_)) for id_ in ids_of(folder)]
        assert all(file.is_file() for file in files)


def test_images_below_the_indexed_folder_are_not_copied(folder, model):
    write_image(folder / "images" / "red" / "new.png", (250, 9, 9))
    write_image(folder / "images" / "gray" / "a.png", (90, 90, 90))
    report = add_images(folder / "index", folder / "images" / "gray", model=model)
    assert (report.added, report.stored) == (1, 0)
    report = add_images(
        folder / "index", folder / "images", model=model, skip_existing=True
    )
    assert (report.added, report.stored, report.existing) == (1, 0, 10)
    assert "10 images were already in the index." in str(report)
    assert ids_of(folder)[-2:] == ["gray/a.png", "red/new.png"]
    assert not (folder / "index" / "pictures").exists()
    index_images(folder / "images", folder / "whole", model)
    whole, _ = load_gallery(folder / "whole")
    index, _ = load_gallery(folder / "index")
    ids = sorted(index.ids.tolist())
    assert ids == whole.ids.tolist()
    mine, its = index.get(ids), whole.get(ids)
    # TensorFlow rounds by the size of the batch.
    np.testing.assert_allclose(mine.embeddings, its.embeddings, atol=1e-6)
    assert mine.attributes == its.attributes


def test_an_id_that_the_index_has_ends_it_before_anything_is_added(folder, model):
    write_image(folder / "more" / "a" / "new.png", (1, 2, 3))
    write_image(folder / "more" / "red" / "clear.png", (1, 2, 3))
    with pytest.raises(
        ExistsError, match=r"1 of the 2 images.*'red/clear\.png'.*--skip-existing"
    ):
        add_images(folder / "index", folder / "more", model=model)
    assert len(ids_of(folder)) == 9


def test_only_the_listed_images_are_added_in_their_order(folder, model):
    for name in "abc":
        write_image(folder / "more" / f"{name}.png", (ord(name), 2, 3))
    (folder / "list").write_text("c.png\na.png\n")
    add_images(folder / "index", folder / "more", model=model, only=folder / "list")
    assert ids_of(folder)[-2:] == ["c.png", "a.png"]


@pytest.mark.parametrize("by", ["model", "endpoint"])
def test_broken_images_are_named_or_left_out(folder, model, colors_url, by):
    for name in "abde":
        write_image(folder / "more" / f"{name}.png", (ord(name), 2, 3))
    (folder / "more" / "c.png").write_text("no image")
    (folder / "more" / "f.png").touch()
    chosen = {"model": model} if by == "model" else {"endpoint": colors_url}
    with pytest.raises(UnreadableImageError, match=r"c\.png: .*--skip-unreadable"):
        add_images(folder / "index", folder / "more", **chosen)
    assert ids_of(folder)[9:] == ["a.png", "b.png"]  # what came before it
    report = add_images(
        folder / "index",
        folder / "more",
        **chosen,
        skip_unreadable=True,
        skip_existing=True,
    )
    assert (report.added, report.existing, len(report.skipped)) == (2, 2, 2)
    assert "2 unreadable images skipped" in str(report)
    assert ids_of(folder)[9:] == ["a.png", "b.png", "d.png", "e.png"]


def test_another_model_is_refused(folder, tmp_path):
    write_color_model(tmp_path / "other" / "colors" / "1", tint=(-1, 1, 3))
    write_image(folder / "more" / "a.png", (1, 2, 3))
    other = tmp_path / "other" / "colors"
    with pytest.raises(ValueError, match="was built with another model"):
        add_images(folder / "index", folder / "more", model=other)
    with serve_model(other) as url, pytest.raises(MismatchError):
        add_images(folder / "index", folder / "more", endpoint=url)
    assert len(ids_of(folder)) == 9


@pytest.mark.parametrize("chosen", [{}, {"model": "m", "endpoint": "e"}])
def test_model_or_endpoint_must_be_given(folder, chosen):
    with pytest.raises(ValueError, match="Give either `model` or `endpoint`, not both"):
        add_images(folder / "index", folder / "images", **chosen)


# Removing


def test_removed_images_are_gone_and_the_files_of_the_folder_stay(folder, model):
    write_image(folder / "more" / "a.png", (1, 2, 3))
    add_images(folder / "index", folder / "more", model=model)
    report = remove_images(folder / "index", ["a.png", "red/clear.png"])
    assert (report.removed, report.images) == (2, 8)
    assert str(report) == "2 images removed; the index now has 8."
    assert not {"a.png", "red/clear.png"} & set(ids_of(folder))
    assert (folder / "images" / "red" / "clear.png").exists()
    assert StoredImages(folder / "index").names() == []


def test_nothing_is_removed_where_one_id_is_unknown(folder):
    with pytest.raises(KeyError, match="nowhere"):
        remove_images(folder / "index", ["red/clear.png", "nowhere"])
    assert len(ids_of(folder)) == 9


# The editor


def addition(id_, content=None, suffix="png", **attributes):
    row = np.zeros(DIMENSION, np.float32)
    row[len(id_) % DIMENSION] = 1
    return Addition(id_, row, attributes, content, suffix)


def test_one_editor_at_a_time_changes_a_gallery(folder, model):
    index, _ = load_gallery(folder / "index")
    with index, GalleryEditor(index):
        for change in (
            lambda: remove_images(folder / "index", ["red/clear.png"]),
            lambda: add_images(folder / "index", folder / "images", model=model),
        ):
            with pytest.raises(LockedError, match="is being changed"):
                change()
    assert remove_images(folder / "index", ["red/clear.png"]).removed == 1


def test_an_addition_that_fails_leaves_no_image(folder):
    index, _ = load_gallery(folder / "index")
    with index, GalleryEditor(index) as editor:
        for wrong in (
            [addition("a", b"one"), addition("a", b"two")],
            [addition("b", b"one"), addition("red/pale.png", b"two")],
            [addition("c", b"one", size=1.5), addition("d", b"two", size="x")],
        ):
            with pytest.raises(ValueError):  # noqa: PT011 (of several kinds)
                editor.add(wrong)
            assert StoredImages(folder / "index").names() == []
        assert index.count() == 9
        editor.add([])
        assert index.count() == 9


def test_a_disk_that_is_full_leaves_the_gallery_as_it_was(folder, monkeypatch):
    index, _ = load_gallery(folder / "index")

    def full(handle):
        raise OSError(28, "No space left on device")

    with index, GalleryEditor(index) as editor:
        editor.add([addition("a", b"one")])
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", full)
            with pytest.raises(OSError, match="No space left"):
                editor.add([addition("b", b"two")])
        names = StoredImages(folder / "index").names()
        assert [index.get(["a"]).attributes[0]["picture"]] == names
        assert "b" not in index
        assert len(list((folder / "index" / "pictures").iterdir())) == 1


def test_images_that_no_id_has_are_removed_by_the_next_editor(folder, monkeypatch):
    stored = StoredImages(folder / "index")
    index, _ = load_gallery(folder / "index")
    with index, GalleryEditor(index) as editor:
        editor.add([addition("a", b"one"), addition("b", b"one")])
    stored.put(b"two", "png")
    unfinished = stored.folder / f"{'0' * 64}.png.{'0' * 16}.new"
    unfinished.touch()
    (stored.folder / "notes.txt").touch()  # not ours
    index, _ = load_gallery(folder / "index")
    where, asked = index.ids_where, []
    monkeypatch.setattr(index, "ids_where", lambda w: asked.append(w) or where(w))
    with index, GalleryEditor(index):
        assert len(asked) == 1  # of all at once, which takes as long as of one
        assert len(stored.names()) == 1
        assert not unfinished.exists()
        assert (stored.folder / "notes.txt").exists()


def joined(editor):
    """Wait for an editor that saves."""
    if (saving := editor._saving) is not None:
        saving.join()


def test_a_long_log_is_brought_into_the_index(folder):
    index, gallery = load_gallery(folder / "index")
    with index:
        with GalleryEditor(index) as editor:
            for number in range(20):
                editor.add([addition(f"{number}", b"one")])
        before = index.stats().details["log_bytes"]
        with GalleryEditor(index, log_bytes=before) as editor:
            editor.add([addition("a", b"one")])  # while it goes on
            joined(editor)
            assert index.stats().details["log_bytes"] < before / 10
            for name in "bcd":
                editor.add([addition(name, b"one")])
        with GalleryEditor(index, log_bytes=100):  # and at its end
            assert index.stats().details["log_bytes"] > 500
    found, known = load_gallery(folder / "index")
    assert found.stats().details["log_bytes"] < 100
    assert found.count() == 33
    assert known == gallery


def test_an_index_that_is_built_again_is_saved(folder, model, monkeypatch):
    # `index add` would else throw away what it has built.
    monkeypatch.setattr(MemoryIndex, "limits", Limits(tail_least=3))
    for number in range(4):
        write_image(folder / "more" / "new" / f"{number}.png", (9, 9, number * 50))
    add_images(folder / "index", folder / "more", model=model)
    found = load_gallery(folder / "index")[0].stats()
    assert (found.count, found.details["added"]) == (13, 0)
    assert not found.details["save_is_due"]
    # Images that are removed are no less.
    monkeypatch.setattr(MemoryIndex, "limits", Limits(tail_least=1))
    remove_images(folder / "index", [f"new/{number}.png" for number in range(4)])
    found = load_gallery(folder / "index")[0].stats()
    assert (found.count, found.details["removed"]) == (9, 0)


def test_a_save_that_fails_is_tried_again_at_the_end(folder, monkeypatch, caplog):
    index, _ = load_gallery(folder / "index")
    save, tries = index.save, []

    def fail(folder):
        tries.append(folder)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index, "save", fail)
    with index, GalleryEditor(index, log_bytes=100) as editor:
        for name in "abc":
            editor.add([addition(name, b"one")])
            joined(editor)
        assert len(tries) == 1
        assert "could not be saved" in caplog.text
        monkeypatch.setattr(index, "save", save)
    found = load_gallery(folder / "index")[0]
    assert (found.count(), found.stats().details["added"]) == (12, 3)
    assert found.stats().details["log_bytes"] < 100


def test_an_image_stays_where_nobody_knows_whether_it_was_added(folder, monkeypatch):
    index, _ = load_gallery(folder / "index")
    with index, GalleryEditor(index) as editor:
        editor.add([addition("a", b"one")])
        with monkeypatch.context() as patch:
            # The change reaches the disk, which then fails, also to take it back.
            patch.setattr(ChangeLog, "cut", failing)
            patch.setattr(index._guarded, "_apply", failing)
            patch.setattr(index, "remove", failing)
            with pytest.raises(OSError, match="Input/output"):
                editor.add([addition("b", b"two")])
        assert "b" not in index
        assert len(StoredImages(folder / "index").names()) == 2
        index.remove([])
        assert "b" in index  # it was added


def failing(*arguments):
    raise OSError(5, "Input/output error")


def test_an_image_whose_addition_reached_the_disk_stays(folder, monkeypatch):
    index, _ = load_gallery(folder / "index")
    with index, GalleryEditor(index) as editor:
        with monkeypatch.context() as patch:
            cut, tries = ChangeLog.cut, []

            def fail_once(self, end):
                tries.append(end)
                if len(tries) == 1:
                    failing()
                cut(self, end)

            patch.setattr(ChangeLog, "cut", fail_once)
            patch.setattr(index._guarded, "_apply", failing)
            with pytest.raises(OSError, match="Input/output"):
                editor.add([addition("b", b"two")])
        (name,) = StoredImages(folder / "index").names()
        assert index.get(["b"]).attributes[0]["picture"] == name


def test_an_index_that_was_not_saved_is_not_edited():
    index = LocalIndex.build(np.eye(3, dtype=np.float32), ["a", "b", "c"])
    with pytest.raises(ValueError, match="`index` must be saved before"):
        GalleryEditor(index)


@pytest.mark.parametrize("name", ["../x.png", "x.png", "0" * 64, f"{'0' * 64}.P", ""])
def test_a_stored_image_has_no_other_name_than_its_content(tmp_path, name):
    with pytest.raises(ValueError, match="must be the SHA-256"):
        StoredImages(tmp_path).path(name)
