"""Images of a folder, and the split of their classes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from training.data.folder import read_folder, split_classes


def write(root, *paths, color="red"):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4), color).save(root / path)


def test_class_is_the_first_folder(tmp_path):
    write(tmp_path, "cat/2.png", "cat/old/1.jpg", "Dog/1.PNG", ".git/x.png")
    (tmp_path / "cat/notes.txt").write_text("no image")
    data = read_folder(tmp_path)
    names = [path.relative_to(tmp_path).as_posix() for path in data.images]
    assert names == ["Dog/1.PNG", "cat/2.png", "cat/old/1.jpg"]
    assert data.class_names == ("Dog", "cat")
    assert data.labels.tolist() == [0, 1, 1]
    assert set(data.splits) == {"train"}


def test_splits_are_those_of_the_classes(tmp_path):
    write(tmp_path, *(f"{name}/{i}.png" for name in "abcdefgh" for i in range(2)))
    settings = {"test_fraction": 0.5, "validation_fraction": 0.25, "seed": 4}
    data = read_folder(tmp_path, **settings)
    parts = split_classes(list("abcdefgh"), **settings)
    for split, classes in parts.items():
        assert list(data.of_split(split).class_names) == classes


def test_missing_folder_is_refused(tmp_path):
    with pytest.raises(NotADirectoryError, match=r"must be a folder.*nowhere"):
        read_folder(tmp_path / "nowhere")


def test_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="There is no image in the folder"):
        read_folder(tmp_path)


def test_image_in_no_class_is_refused(tmp_path):
    write(tmp_path, "cat/1.png", "dog/1.png", "flat.png")
    with pytest.raises(ValueError, match=r"folder of its class.*flat\.png"):
        read_folder(tmp_path)


def test_folder_with_one_class_is_refused(tmp_path):
    write(tmp_path, "cat/1.png", "cat/2.png")
    with pytest.raises(ValueError, match=r"at least 2 classes.*only 'cat'"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (
            ["train/cat/1.png", "train/dog/1.png", "val/cat/1.png"],
            r"train, val, which are the names of splits.*such as .*/train, if",
        ),
        (["Train/1.png", "TEST/1.png"], "TEST, Train, which are the names of splits"),
        (["train/cat/1.png", "train/dog/1.png"], "Received: train, which"),
        (
            ["photos/cat/1.png", "photos/dog/1.png"],
            r"only 'photos'\. Name the folder of classes, such as .*/photos\.",
        ),
        (["query/1.png", "gallery/1.png"], "gallery, query, which are the names"),
    ],
)
def test_folders_of_splits_are_no_classes(paths, words, tmp_path):
    write(tmp_path, *paths)
    with pytest.raises(ValueError, match=words) as raised:
        read_folder(tmp_path)
    assert len(str(raised.value)) <= 500


def test_class_may_have_the_name_of_a_split(tmp_path):
    write(tmp_path, "cat/1.png", "test/1.png")
    assert read_folder(tmp_path).class_names == ("cat", "test")


words = st.sampled_from(["cat", "dog", "train", "Test", "val", "a b", "\u732b"])
layouts = st.lists(
    st.builds(
        lambda folders, number: "/".join([*folders, f"{number}.png"]),
        st.lists(words, max_size=3),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
    unique=True,
)


@given(paths=layouts)
@settings(max_examples=80, deadline=None)
def test_any_layout_is_read_by_its_first_folders_or_refused(paths, tmp_path_factory):
    root = tmp_path_factory.mktemp("layout")
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    first = {path.partition("/")[0] for path in paths}
    if any("/" not in path for path in paths):
        words = "must be in the folder of its class"
    elif {name.lower() for name in first} <= {"train", "test", "val"}:
        words = "which are the names of splits"
    elif len(first) < 2:
        words = "must hold at least 2 classes"
    else:
        data = read_folder(root)
        assert set(data.class_names) == first
        for image, label in zip(data.images, data.labels, strict=True):
            below = image.relative_to(root).as_posix()
            assert below.startswith(f"{data.class_names[label]}/")
        assert len(data) == len(paths)
        return
    with pytest.raises(ValueError, match=words) as raised:
        read_folder(root)
    assert len(str(raised.value)) <= 500


NAMES = [f"class {i}" for i in range(40)]


def test_split_is_disjoint_complete_and_of_the_stated_sizes():
    parts = split_classes(NAMES, test_fraction=0.5, validation_fraction=0.1, seed=3)
    assert [len(parts[p]) for p in ("train", "validation", "test")] == [16, 4, 20]
    assert sorted(n for part in parts.values() for n in part) == sorted(NAMES)


def test_split_depends_on_names_and_seed_alone():
    parts = split_classes(NAMES, test_fraction=0.5, validation_fraction=0, seed=3)
    again = split_classes(NAMES[::-1], test_fraction=0.5, validation_fraction=0, seed=3)
    other = split_classes(NAMES, test_fraction=0.5, validation_fraction=0, seed=4)
    assert parts == again
    assert parts["validation"] == []
    assert parts["test"] != other["test"]


def test_split_rule_is_the_stated_one():
    import hashlib

    first = min(NAMES, key=lambda n: hashlib.sha256(f"3/{n}".encode()).hexdigest())
    parts = split_classes(NAMES, test_fraction=0.05, validation_fraction=0, seed=3)
    assert first in parts["test"]


def test_too_few_classes_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"so 6 or more.*Received: 5 classes.*to 0"):
        split_classes(NAMES[:5], test_fraction=0.5, validation_fraction=0.1, seed=0)
    parts = split_classes(NAMES[:2], test_fraction=0, validation_fraction=0, seed=0)
    assert parts["train"] == NAMES[:2]


@pytest.mark.parametrize(
    ("count", "fractions", "sizes"),
    [
        (6, (0.5, 0.05), (2, 2, 2)),
        (7, (0.5, 0.05), (2, 2, 3)),
        (8, (0.5, 0.05), (2, 2, 4)),
        (9, (0.5, 0.05), (3, 2, 4)),
        (6, (0.1, 0.8), (2, 2, 2)),
        (4, (0.9, 0), (2, 0, 2)),
        (4, (0, 0.9), (2, 2, 0)),
    ],
)
def test_held_out_parts_leave_two_classes_to_train_on(count, fractions, sizes):
    parts = split_classes(
        NAMES[:count],
        test_fraction=fractions[0],
        validation_fraction=fractions[1],
        seed=0,
    )
    assert tuple(len(parts[p]) for p in ("train", "validation", "test")) == sizes
    assert sorted(n for part in parts.values() for n in part) == sorted(NAMES[:count])


def test_class_with_one_image_is_allowed(tmp_path):
    write(tmp_path, "cat/1.png", "dog/1.png", "dog/2.png")
    assert np.bincount(read_folder(tmp_path).labels).tolist() == [1, 2]
