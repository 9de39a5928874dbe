import contextlib
import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from serving.endpoint.models.saved_model import model_fingerprint
from serving.search.gallery.editing import GalleryEditor
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.indexing import index_images, merge_shards
from serving.search.gallery.stored_images import StoredImages
from tests.support.image_files import MAX_PIXELS, NO_FILES, UNREADABLE
from tests.support.search_fixtures import (
    DIMENSION,
    PURE,
    SHADES,
    quarter_colors,
    write_gallery_images,
    write_image,
)
from tfdml.images import UnreadableImageError
from tfdml.index import LockedError


@pytest.fixture
def model(colors):
    return colors / "models" / "colors"


@pytest.fixture
def images(tmp_path):
    return write_gallery_images(tmp_path / "images")


def test_an_indexed_folder_finds_each_image_by_its_embedding(images, model, tmp_path):
    report = index_images(images, tmp_path / "index", model, batch_size=4)
    index, gallery = load_gallery(tmp_path / "index")
    expected = sorted(f"{name}/{shade}.png" for name in PURE for shade in SHADES)
    assert index.ids.tolist() == expected
    classes = [own["class"] for own in index.get(expected).attributes]
    assert classes == [path.split("/")[0] for path in expected]
    assert gallery.root == images.resolve()
    assert report.gallery == gallery
    assert (report.images, report.classes, report.skipped) == (9, 3, ())

    blue = quarter_colors(np.full((2, 2, 3), PURE["blue"], np.uint8))
    found = index.search(blue[np.newaxis].astype(np.float32), 3)
    assert list(found.ids[0]) == ["blue/clear.png", "blue/pale.png", "blue/paler.png"]
    whites = np.array(list(SHADES.values()))
    cosines = 255 / np.sqrt(255**2 + 2 * whites**2)
    np.testing.assert_allclose(found.scores[0], cosines, atol=1e-6)


def test_the_report_is_a_summary_of_what_was_done(images, model, tmp_path):
    report = index_images(images, tmp_path / "index", model)
    assert "9 images of 3 classes indexed" in str(report)
    assert f"dimension {DIMENSION}" in str(report)
    assert "model colors version 1" in str(report)


def test_the_model_is_recorded_with_its_fingerprint(images, model, tmp_path):
    index_images(images, tmp_path / "index", model)
    index, gallery = load_gallery(tmp_path / "index")
    assert (gallery.model_name, gallery.model_version) == ("colors", 1)
    assert index.model_fingerprint == model_fingerprint(model / "1")


def test_only_the_listed_images_are_indexed_in_their_order(images, model, tmp_path):
    only = tmp_path / "only.txt"
    only.write_text("red/pale.png\n\nblue/clear.png\n")
    index_images(images, tmp_path / "index", model, only=only)
    index, _ = load_gallery(tmp_path / "index")
    assert index.ids.tolist() == ["red/pale.png", "blue/clear.png"]


def test_a_broken_image_ends_the_build_and_is_named(images, model, tmp_path):
    (images / "green" / "broken.jpg").write_text("no image")
    with pytest.raises(
        UnreadableImageError, match=r"green/broken\.jpg: .*no image format.*--skip-"
    ):
        index_images(images, tmp_path / "index", model)
    assert not (tmp_path / "index").exists()


def test_a_path_too_long_for_an_id_is_refused_before_anything_is_embedded(
    images, model, tmp_path, monkeypatch
):
    deep = images.joinpath(*(6 * ["d" * 200]))
    deep.mkdir(parents=True)
    (images / "blue" / "clear.png").rename(deep / "clear.png")
    monkeypatch.setattr("serving.search.gallery.indexing.SavedEmbedder", None)
    with pytest.raises(ValueError, match="`paths` must have at most 1,024 characters"):
        index_images(images, tmp_path / "index", model)


def test_broken_images_are_skipped_when_asked_and_listed(images, model, tmp_path):
    content = (images / "red" / "clear.png").read_bytes()
    (images / "green" / "broken.png").write_bytes(content[: len(content) // 2])
    (images / "red" / "empty.png").touch()
    report = index_images(
        images, tmp_path / "index", model, skip_unreadable=True, batch_size=2
    )
    assert report.images == 9
    index, _ = load_gallery(tmp_path / "index")
    assert not {"green/broken.png", "red/empty.png"} & set(index.ids.tolist())
    text = str(report)
    assert "2 unreadable images skipped" in text
    assert "broken.png: cannot be read" in text
    assert "empty.png: cannot be read" in text


def test_whatever_cannot_be_read_is_skipped_when_asked(images, model, tmp_path):
    """And what the machine cannot do is not."""
    for number, (make, _) in enumerate(UNREADABLE.values()):
        make(images / "green" / f"{number}.png")
    for name, make in NO_FILES.items():
        make(images / "red" / f"{name}.png")
    settings = {"max_pixels": MAX_PIXELS}
    with pytest.raises(UnreadableImageError, match=r"green/0\.png.*--skip-unreadable"):
        index_images(images, tmp_path / "index", model, **settings)
    report = index_images(
        images, tmp_path / "index", model, skip_unreadable=True, **settings
    )
    assert report.images == 9
    assert len(report.skipped) == len(UNREADABLE)
    for number, (_, why) in enumerate(UNREADABLE.values()):
        assert f"green/{number}.png" in report.skipped[number]
        assert why in report.skipped[number]
        assert len(report.skipped[number]) <= 500
    (note,) = report.notes
    assert "not a regular file: 2 files" in note


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_a_fault_of_the_machine_leaves_no_image_out(
    number, images, model, tmp_path, monkeypatch
):
    read_bytes = Path.read_bytes

    def fail(path):
        if path.name == "pale.png":
            raise OSError(number, os.strerror(number))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError, match=r"pale\.png") as raised:
        index_images(images, tmp_path / "index", model, skip_unreadable=True)
    assert raised.value.errno == number
    assert not (tmp_path / "index").exists()


def test_a_disk_that_is_taken_away_is_no_gallery_of_broken_images(
    images, model, tmp_path, monkeypatch
):
    read_bytes = Path.read_bytes

    def take_away(path):
        if not path.is_relative_to(images):
            return read_bytes(path)
        shutil.rmtree(images, ignore_errors=True)
        raise FileNotFoundError(errno.ENOENT, "No such file", str(path))

    monkeypatch.setattr(Path, "read_bytes", take_away)
    with pytest.raises(NotADirectoryError, match="is gone"):
        index_images(images, tmp_path / "index", model, skip_unreadable=True)


def test_a_folder_of_broken_images_only_is_refused(model, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "broken.png").touch()
    with pytest.raises(ValueError, match=r"None of the 1 images.*broken\.png"):
        index_images(
            tmp_path / "images", tmp_path / "index", model, skip_unreadable=True
        )


def test_an_image_without_a_direction_is_named(images, model, tmp_path):
    write_image(images / "red" / "black.png", (0, 0, 0))
    with pytest.raises(ValueError, match=r"length 0 for the image 'red/black\.png'"):
        index_images(images, tmp_path / "index", model)


def test_a_batch_size_below_one_is_refused(images, model, tmp_path):
    with pytest.raises(ValueError, match="`batch_size` must be at least 1"):
        index_images(images, tmp_path / "index", model, batch_size=0)


@pytest.mark.parametrize("what", ["files", "file", "pictures", "old", "locked"])
def test_a_folder_that_must_not_be_replaced_is_reported_before_anything_is_embedded(
    images, model, tmp_path, monkeypatch, what
):
    folder = tmp_path / "index"
    if what == "file":
        folder.write_text("mine")
    else:
        index_images(images, folder, model) if what in ("pictures", "locked") else None
        folder.mkdir(exist_ok=True)
    if what == "files":
        (folder / "notes.txt").write_text("mine")
    if what == "old":
        (folder / "gallery.json").write_text("{}")
    if what == "pictures":
        StoredImages(folder).put(b"picture", "png")
    monkeypatch.setattr("serving.search.gallery.indexing._embed", None)  # is not called
    with contextlib.ExitStack() as stack:
        if what == "locked":
            index, _ = load_gallery(folder)
            stack.enter_context(GalleryEditor(index))
            stack.callback(index.close)
        with pytest.raises((ValueError, LockedError)):
            index_images(images, folder, model)
        with pytest.raises((ValueError, LockedError)):
            merge_shards(folder, [])
