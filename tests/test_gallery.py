import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from serving.search.gallery import Gallery, load_gallery, read_image_list, save_gallery
from tests.search_fixtures import write_gallery_images
from tfdml.images import list_images
from tfdml.index import ScannIndex

PROJECT = Path(__file__).parent.parent


@pytest.fixture
def images(tmp_path):
    return write_gallery_images(tmp_path / "images")


# Folders of pictures


def test_pictures_are_listed_sorted_with_the_first_folder_as_class(tmp_path):
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
    gallery = Gallery(tmp_path, tuple(paths), "m", 1, "f")
    assert [gallery.class_of(row) for row in range(3)] == ["a", "b", ""]
    assert gallery.classes() == {"a", "b"}


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("", "lists no image"),
        (
            "red/clear.png\n../secret.png",
            r"line 2: '\.\./secret\.png' must be a path bel",
        ),
        ("/etc/secret.png", "line 1.*must be a path below"),
        ("red/missing.png", "line 1.*is no file"),
        ("red", "line 1.*is no file"),
        ("red/clear.png\nred/pale.png\nred//clear.png", "line 3.*also in line 1"),
    ],
)
def test_a_wrong_line_in_the_list_is_named(images, tmp_path, lines, reason):
    only = tmp_path / "only.txt"
    only.write_text(lines)
    with pytest.raises(ValueError, match=reason):
        read_image_list(only, images)


# Saving


def small_gallery(root, count):
    embeddings = np.eye(4, dtype=np.float32)[:count]
    paths = [f"{row}.png" for row in range(count)]
    index = ScannIndex.build(
        embeddings, ids=paths, metric="cosine", model_fingerprint="f" * 64
    )
    return index, Gallery(root, tuple(paths), "m", 1, "f" * 64)


def test_a_second_build_replaces_the_first_and_leaves_one_index(tmp_path):
    for count in (2, 3):
        save_gallery(tmp_path, *small_gallery(tmp_path, count))
        _, gallery = load_gallery(tmp_path)
        assert len(gallery.paths) == count
        names = sorted(path.name.split("-")[0] for path in tmp_path.iterdir())
        assert names == ["gallery.json", "index"]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["ScannIndex.save", "Path.replace"])
def test_a_build_killed_while_saving_leaves_the_old_index(tmp_path, moment):
    folder = tmp_path / "index"
    save_gallery(folder, *small_gallery(tmp_path, 2))
    program = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(PROJECT)!r})
from tests.test_gallery import ScannIndex, small_gallery, save_gallery
index, gallery = small_gallery(Path({str(tmp_path)!r}), 3)
whole = {moment}
def killed(self, target):
    if {moment!r} == "ScannIndex.save":
        whole(self, target)
        (Path(target) / "partly").touch()
        os._exit(9)
    if Path(target).name == "gallery.json":
        os._exit(9)
    return whole(self, target)
{moment} = killed
save_gallery({str(folder)!r}, index, gallery)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 9
    assert len(list(folder.glob("index-*"))) == 2
    index, gallery = load_gallery(folder)
    assert len(index.ids) == len(gallery.paths) == 2

    save_gallery(folder, *small_gallery(tmp_path, 4))
    assert len(load_gallery(folder)[1].paths) == 4
    assert len(list(folder.iterdir())) == 2


def test_a_save_that_fails_leaves_the_old_index_and_no_rest(tmp_path, monkeypatch):
    save_gallery(tmp_path, *small_gallery(tmp_path, 2))
    before = sorted(tmp_path.iterdir())

    def full(self, target):
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        save_gallery(tmp_path, *small_gallery(tmp_path, 3))
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_without_a_gallery_is_refused(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="Build it with `python -m serving index`"
    ):
        load_gallery(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "has format 2, this version reads format 1"),
        ({"paths": ["0.png"]}, "do not list the same images"),
        ({"paths": ["1.png", "0.png"]}, "do not list the same images"),
        ({"paths": ["0.png", "../1.png"]}, "a path outside its folder"),
        ({"paths": ["0.png", 1]}, "damaged"),
        ({"index": "../elsewhere"}, "a path outside its folder"),
        ({"model_version": None}, "damaged"),
    ],
)
def test_a_damaged_gallery_is_refused(tmp_path, change, reason):
    save_gallery(tmp_path, *small_gallery(tmp_path, 2))
    file = tmp_path / "gallery.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match=reason):
        load_gallery(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", '{"format": 1}', "{"])
def test_a_cut_off_gallery_is_refused(tmp_path, content):
    save_gallery(tmp_path, *small_gallery(tmp_path, 2))
    (tmp_path / "gallery.json").write_text(content)
    with pytest.raises(ValueError, match=r"gallery\.json.* is damaged.*serving index"):
        load_gallery(tmp_path)
