import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from serving.search.gallery.gallery import (
    CLASS,
    Gallery,
    class_attributes,
    class_of,
    load_gallery,
    save_gallery,
)
from serving.search.gallery.stored_images import StoredImages
from tests.support.search_fixtures import calibration_at, write_gallery_images
from tfdml.images import list_images
from tfdml.index import IndexFileError, LocalIndex, LockedError

PROJECT = Path(__file__).parents[4]


@pytest.fixture
def images(tmp_path):
    return write_gallery_images(tmp_path / "images")


# Folders of images


def test_images_are_listed_sorted_with_the_first_folder_as_class(tmp_path):
    for path in (
        "b/deep/er/one.PNG",
        "a/two.jpg",
        "flat.webp",
        "b/notes.txt",
        ".c/x.png",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "a" / "._two.jpg").touch()
    paths = list_images(tmp_path)
    assert paths == ["a/two.jpg", "b/deep/er/one.PNG", "flat.webp"]
    assert [class_of(path) for path in paths] == ["a", "b", ""]
    assert class_attributes(paths) == {CLASS: ["a", "b", None]}


# Saving


def small_gallery(root, count, calibration=None):
    embeddings = np.eye(4, dtype=np.float32)[:count]
    paths = [f"a/{row}.png" for row in range(count)]
    index = LocalIndex.build(
        embeddings, paths, class_attributes(paths), model_fingerprint="f" * 64
    )
    return index, Gallery(root, "m", 1, calibration)


@pytest.mark.parametrize("calibration", [None, calibration_at(0.75)])
def test_a_loaded_gallery_is_the_saved_one(tmp_path, calibration):
    index, gallery = small_gallery(tmp_path / "images", 3, calibration)
    save_gallery(tmp_path / "index", index, gallery)
    (tmp_path / "index").rename(tmp_path / "moved")
    found, known = load_gallery(tmp_path / "moved", model_fingerprint="f" * 64)
    assert known == gallery
    assert found.ids.tolist() == ["a/0.png", "a/1.png", "a/2.png"]
    assert found.get(["a/1.png"]).attributes == [{CLASS: "a"}]
    assert found.model_fingerprint == "f" * 64


def test_a_flat_folder_has_no_attribute_for_the_class(tmp_path):
    paths = ["0.png", "1.png"]
    attributes = class_attributes(paths)
    index = LocalIndex.build(np.eye(2, dtype=np.float32), paths, attributes)
    save_gallery(tmp_path / "index", index, Gallery(tmp_path, "m", 1))
    found, _ = load_gallery(tmp_path / "index")
    assert found.stats().attributes == {}


def test_changes_since_the_build_are_loaded_with_it(tmp_path):
    save_gallery(tmp_path / "index", *small_gallery(tmp_path, 2))
    with load_gallery(tmp_path / "index")[0] as index:
        index.add([[0, 0, 1, 0]], ["b/2.png"], {CLASS: ["b"]})
        index.remove(["a/0.png"])
    found, _ = load_gallery(tmp_path / "index")
    assert found.ids.tolist() == ["a/1.png", "b/2.png"]


def test_a_second_build_replaces_the_first_and_leaves_one_index(tmp_path):
    for count in (2, 3):
        save_gallery(tmp_path, *small_gallery(tmp_path, count))
        index, _ = load_gallery(tmp_path)
        assert len(index) == count
        assert len(list(tmp_path.glob("data-*/"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [
        "os.fsync",
        pytest.param("np.save", marks=pytest.mark.full),
        pytest.param("Path.replace", marks=pytest.mark.full),
    ],
)
def test_a_build_killed_while_saving_leaves_the_old_gallery(tmp_path, moment):
    folder = tmp_path / "index"
    save_gallery(folder, *small_gallery(tmp_path, 2))
    program = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(PROJECT)!r})
import numpy as np
from tests.serving.search.gallery.test_gallery import small_gallery, save_gallery
index, gallery = small_gallery(Path({str(tmp_path)!r}), 3)
def killed(*arguments, **options):
    os._exit(9)
{moment} = killed
save_gallery({str(folder)!r}, index, gallery)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 9
    index, _ = load_gallery(folder)
    assert len(index) == 2

    save_gallery(folder, *small_gallery(tmp_path, 4))
    assert len(load_gallery(folder)[0]) == 4
    assert len(list(folder.glob("data-*/"))) == 1


def test_a_build_does_not_lose_images_that_were_added(tmp_path):
    save_gallery(tmp_path / "index", *small_gallery(tmp_path, 2))
    StoredImages(tmp_path / "index").put(b"picture", "png")
    with pytest.raises(ValueError, match="holds 1 images that were added"):
        save_gallery(tmp_path / "index", *small_gallery(tmp_path, 3))
    assert len(load_gallery(tmp_path / "index")[0]) == 2


def test_a_build_waits_for_nobody_who_changes_the_gallery(tmp_path):
    save_gallery(tmp_path / "index", *small_gallery(tmp_path, 2))
    with load_gallery(tmp_path / "index")[0] as index:
        index.remove(["a/0.png"])
        with pytest.raises(LockedError, match="is being changed"):
            save_gallery(tmp_path / "index", *small_gallery(tmp_path, 3))


# What is refused


def test_a_folder_without_a_gallery_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="Build it with `tfdml index build`"):
        load_gallery(tmp_path)


def test_an_index_without_a_gallery_is_refused(tmp_path):
    LocalIndex.build(np.eye(3, dtype=np.float32), ["a", "b", "c"]).save(tmp_path / "i")
    with pytest.raises(FileNotFoundError, match="only an index, which does not tell"):
        load_gallery(tmp_path / "i")


def test_a_gallery_of_format_1_says_to_build_again(tmp_path):
    (tmp_path / "index-0123abcd").mkdir()
    (tmp_path / "gallery.json").write_text(json.dumps({"format": 1}))
    with pytest.raises(
        ValueError, match=r"format 1, this version reads format 2.*index build"
    ):
        load_gallery(tmp_path)
    with pytest.raises(ValueError, match="holds a gallery of format 1"):
        save_gallery(tmp_path, *small_gallery(tmp_path, 2))
    assert (tmp_path / "gallery.json").exists()


def test_a_gallery_of_another_model_is_refused(tmp_path):
    save_gallery(tmp_path, *small_gallery(tmp_path, 2))
    with pytest.raises(IndexFileError, match="`model_fingerprint` must be that"):
        load_gallery(tmp_path, model_fingerprint="0" * 64)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 3}, "has format 3, this version reads format 2"),
        ({"root": 1}, "`root` must be a string"),
        ({"model_version": None}, "TypeError"),
        ({"calibration": {"threshold": 0.5}}, "calibration"),
        (
            {"calibration": calibration_at(0.5).to_json() | {"threshold": None}},
            "`threshold`",
        ),
    ],
)
def test_a_damaged_gallery_is_refused(tmp_path, change, reason):
    save_gallery(tmp_path, *small_gallery(tmp_path, 2))
    index, _ = load_gallery(tmp_path)
    index.notes["gallery"] |= change
    index.save(tmp_path)
    with pytest.raises(ValueError, match=f"is damaged.*{reason}.*index build"):
        load_gallery(tmp_path)


@pytest.mark.parametrize("notes", [[], {}, {"format": 2}, None])
def test_a_gallery_with_other_notes_is_refused(tmp_path, notes):
    save_gallery(tmp_path, *small_gallery(tmp_path, 2))
    index, _ = load_gallery(tmp_path)
    index.notes["gallery"] = notes
    index.save(tmp_path)
    with pytest.raises(ValueError, match=r"is damaged.*index build"):
        load_gallery(tmp_path)


def test_a_folder_of_other_files_is_not_written_to(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(IndexFileError, match="must be empty or hold an index"):
        save_gallery(tmp_path, *small_gallery(tmp_path, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
