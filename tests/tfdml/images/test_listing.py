"""Listing the images of a folder: what is taken, what is left out and said."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.support.image_files import HOSTILE_NAMES, LEFT_OUT, TAKEN_NAMES
from tfdml.images import (
    _formats,
    find_images,
    is_image_name,
    list_images,
    read_image,
)

JPEG = b"\xff\xd8\xff\xe0 the beginning of one"


def write(root, *paths, content=b""):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)


@pytest.mark.parametrize("name", ["a.jpg", "deep/er/B.PNG", "x.y.webp", "c.tiff"])
def test_names_of_images_are_known(name):
    assert is_image_name(name)


@pytest.mark.parametrize("name", ["", "jpg", "a.txt", "a.jpg/b", "a.svg", "a.jpg_"])
def test_other_names_are_known(name):
    assert not is_image_name(name)


def test_linked_folders_are_followed_but_not_in_circles(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "one.png").touch()
    images = tmp_path / "images"
    images.mkdir()
    (images / "linked").symlink_to(tmp_path / "store")
    (tmp_path / "store" / "back").symlink_to(images)
    found = find_images(images)
    assert found.paths == found.outside == ("linked/one.png",)
    assert found.left_out == {
        "linked/back": "the link leads to a folder that is listed already"
    }


def test_a_folder_without_images_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match="no image in the folder"):
        list_images(tmp_path)
    with pytest.raises(NotADirectoryError, match="`images_folder` must be a folder"):
        list_images(tmp_path / "missing")


def test_folder_that_cannot_be_read_is_reported(tmp_path, monkeypatch):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").touch()
    scandir = os.scandir

    def guarded(folder):
        if str(folder).endswith("dog"):  # root may read what it likes
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(PermissionError, match="dog"):
        list_images(tmp_path)


def test_a_file_name_that_is_no_text_is_refused(tmp_path):
    Path(f"{tmp_path}/bad\udcff.png").touch()
    with pytest.raises(ValueError, match="not valid UTF-8"):
        list_images(tmp_path)
    write(tmp_path, "good.png")
    found = find_images(tmp_path, skip_unreadable=True)
    assert found.paths == ("good.png",)
    assert found.left_out == {"bad\udcff.png": "the name is not UTF-8"}
    assert r"'bad\udcff.png'" in found.notes()[0]


@pytest.mark.parametrize("name", TAKEN_NAMES)
def test_file_with_the_name_of_an_image_is_taken(name, tmp_path):
    write(tmp_path, f"cat/{name}")
    found = find_images(tmp_path)
    assert found.paths == (f"cat/{name}",)
    assert not found.left_out
    assert not found.notes()


@pytest.mark.parametrize(("name", "content", "reason"), LEFT_OUT)
def test_what_looks_like_an_image_is_named(name, content, reason, tmp_path):
    write(tmp_path, "cat/1.png")
    write(tmp_path, f"cat/{name}", f"dog/{name}", content=content)
    found = find_images(tmp_path)
    assert found.paths == ("cat/1.png",)
    if reason is None:
        assert not found.left_out
        return
    assert list(found.left_out) == [f"cat/{name}", f"dog/{name}"]
    (note,) = found.notes()
    assert "2 files" in note
    assert reason in note
    assert name in note


def test_folder_of_nothing_but_other_images_says_so(tmp_path):
    write(tmp_path, "cat/IMG_0001.CR3")
    with pytest.raises(ValueError, match=r"no image.*not read: 1 file.*IMG_0001\.CR3"):
        list_images(tmp_path)


def test_photographs_of_telephones_are_read_or_named(tmp_path, monkeypatch):
    pillow_heif = pytest.importorskip("pillow_heif")
    file = tmp_path / "IMG_0001.HEIC"
    pixels = np.full((32, 48, 3), (200, 30, 60), "uint8")
    pillow_heif.from_pillow(Image.fromarray(pixels)).save(file, quality=100)
    write(tmp_path, "1.png")
    assert find_images(tmp_path).paths == ("1.png", "IMG_0001.HEIC")
    assert np.abs(read_image(file).astype(int) - pixels).max() <= 8
    # Without pillow-heif:
    monkeypatch.setattr(_formats, "IMAGE_SUFFIXES", {".png"})
    found = find_images(tmp_path)
    assert found.paths == ("1.png",)
    (note,) = found.notes()
    assert 'HEIC needs pillow-heif (pip install "tfdml[heic]"): 1 file,' in note
    assert "IMG_0001.HEIC" in note


def test_pipe_is_left_out(tmp_path):
    write(tmp_path, "1.png")
    os.mkfifo(tmp_path / "2.png")
    os.mkfifo(tmp_path / "3")
    (tmp_path / "4.png").symlink_to("2.png")
    found = find_images(tmp_path)
    assert found.paths == ("1.png",)
    assert list(found.left_out) == ["2.png", "4.png"]
    assert "it is not a regular file: 2 files" in found.notes()[0]


def test_links_to_nothing_are_images_to_read_or_left_out(tmp_path):
    write(tmp_path, "cat/1.png")
    (tmp_path / "cat/2.png").symlink_to("/nowhere/2.png")
    (tmp_path / "dog").symlink_to("/nowhere/dog")
    found = find_images(tmp_path)
    assert found.paths == ("cat/1.png", "cat/2.png")
    assert found.left_out == {"dog": "the link leads nowhere"}


def test_folder_is_listed_once_under_its_own_name(tmp_path):
    write(tmp_path, "cat/1.png", "dog/1.png")
    (tmp_path / "all").symlink_to("cat")
    found = find_images(tmp_path)
    assert found.paths == ("cat/1.png", "dog/1.png")
    assert list(found.left_out) == ["all"]
    assert not found.outside


def test_links_to_the_outside_are_followed_told_and_can_be_left_out(tmp_path):
    write(tmp_path, "store/cat/1.png", "store/2.png", "images/dog/1.png")
    images = tmp_path / "images"
    (images / "cat").symlink_to("../store/cat")
    (images / "dog/2.png").symlink_to("../../store/2.png")
    (images / "dog/3.png").symlink_to("1.png")
    inside, linked = ("dog/1.png", "dog/3.png"), ("cat/1.png", "dog/2.png")
    found = find_images(images)
    assert found.paths == tuple(sorted(inside + linked))
    assert found.outside == linked
    assert found.notes() == [
        "Images outside the folder, behind links: 2 of 4, such as 'cat/1.png'."
    ]
    found = find_images(images, outside=False)
    assert found.paths == inside
    assert tuple(found.left_out) == linked


def test_link_to_the_folder_itself_is_no_link_to_the_outside(tmp_path):
    write(tmp_path, "store/cat/1.png")
    (tmp_path / "images").symlink_to("store")
    assert find_images(tmp_path / "images") == find_images(tmp_path / "store")


names = st.one_of(
    st.sampled_from(HOSTILE_NAMES),
    st.text(
        st.characters(exclude_characters="/\0", exclude_categories=["Cs"]),
        min_size=1,
        max_size=20,
    ),
).filter(lambda name: name not in (".", ".."))


@given(
    folders=st.lists(names, max_size=2),
    stem=names,
    suffix=st.sampled_from([".png", ".JPG", ".webp"]),
)
@settings(max_examples=60, deadline=None)
def test_any_name_of_a_file_is_taken_as_it_is(folders, stem, suffix, tmp_path_factory):
    root = tmp_path_factory.mktemp("names")
    path = "/".join([*folders, f"{stem}{suffix}"])
    write(root, path, "known.png")
    is_hidden = any(name.startswith(".") for name in path.split("/"))
    expected = {"known.png"} | ({path} - {path if is_hidden else ""})
    found = find_images(root)
    assert set(found.paths) == expected
    assert all((root / image).is_file() for image in found.paths)
    assert all(note.isprintable() and len(note) < 500 for note in found.notes())
