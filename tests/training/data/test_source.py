"""What a recipe's `[data]` names, as a data set."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from training.data.folder import hash_order, split_classes
from training.data.source import read_source
from training.recipe.recipe import Data, RecipeError


@pytest.fixture
def root(tmp_path):
    for name in ("a", "b", "c", "d", "e", "f"):
        for number in range(2):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.new("RGB", (4, 4)).save(tmp_path / name / f"{number}.png")
    return tmp_path


def manifest(root, split_of):
    rows = [
        f"{name}/{number}.png,{name},{split}"
        for name, split in split_of.items()
        for number in range(2)
    ]
    path = root / "set.csv"
    path.write_text("path,label,split\n" + "\n".join(rows) + "\n")
    return str(path)


def splits(data):
    return {s: data.of_split(s).class_names for s in ("train", "validation", "test")}


def test_folder_is_split_as_the_recipe_says(root):
    settings = Data(str(root), test_fraction=0.4, validation_fraction=0.3, split_seed=2)
    source = read_source(settings)
    parts = split_classes(
        list("abcdef"), test_fraction=0.4, validation_fraction=0.3, seed=2
    )
    assert splits(source.data) == {name: tuple(c) for name, c in parts.items()}
    assert source.names(source.data)[:2] == ["a/0.png", "a/1.png"]


def test_what_a_folder_leaves_out_is_noted(root):
    (root / "a" / "IMG_0001.CR2").touch()
    (root / "b" / "c").mkdir()
    (root / "b" / "0.png").rename(root / "b" / "c" / "0.png")
    (root / "g").symlink_to("/nowhere")
    notes = read_source(Data(str(root))).notes
    assert [note.partition(", such")[0] for note in notes] == [
        "Left out, as this format is not read: 1 file (1 .cr2)",
        "Left out, as the link leads nowhere: 1 file",
        "Images in folders inside others: 1 of 12",
    ]
    assert "'b/c/0.png'" in notes[-1]
    path = manifest(root, dict.fromkeys("cdef", "train"))
    assert not read_source(Data(path)).notes


def test_images_of_a_manifest_may_be_elsewhere(root, tmp_path_factory):
    path = tmp_path_factory.mktemp("lists") / "set.csv"
    path.write_text("path,label,split\na/0.png,a,train\nb/1.png,b,test\n")
    source = read_source(Data(str(path), validation_fraction=0.0, root=str(root)))
    assert source.data.images == (root / "a/0.png", root / "b/1.png")
    assert source.names(source.data) == ["a/0.png", "b/1.png"]
    with pytest.raises(RecipeError, match="`root` must be left out with a folder"):
        Data(str(root), root=str(root))


@pytest.mark.parametrize("name", ["nowhere", "set.tsv"])
def test_neither_folder_nor_manifest_is_refused(root, name):
    (root / "set.tsv").touch()
    with pytest.raises(NotADirectoryError, match=r"`images` must be a folder of .*csv"):
        read_source(Data(str(root / name)))


def test_name_that_is_no_text_is_left_out_where_that_is_asked_for(root):
    Path(f"{root}/a/bad\udcff.png").touch()
    with pytest.raises(ValueError, match="not valid UTF-8"):
        read_source(Data(str(root)))
    source = read_source(Data(str(root), skip_unreadable=True))
    assert len(source.data) == 12
    assert "not UTF-8" in source.notes[0]


def test_manifest_says_its_own_splits(root):
    split_of = dict.fromkeys("ab", "train") | {"c": "validation"} | {"d": "test"}
    path = manifest(root, split_of)
    data = read_source(Data(path, test_fraction=0.9, validation_fraction=0.05)).data
    expected = {"train": ("a", "b"), "validation": ("c",), "test": ("d",)}
    assert splits(data) == expected


def test_manifest_without_splits_is_split_as_a_folder(root):
    path = root / "set.csv"
    rows = [f"{name}/{i}.png;{name}" for name in "abcdef" for i in range(2)]
    path.write_text("path;label\n" + "\n".join(rows) + "\n")
    settings = {"test_fraction": 0.4, "validation_fraction": 0.3, "split_seed": 2}
    found = read_source(Data(str(path), **settings)).data
    expected = read_source(Data(str(root), **settings)).data
    assert splits(found) == splits(expected)
    everything = Data(str(path), test_fraction=0.0, validation_fraction=0.0)
    assert set(read_source(everything).data.splits) == {"train"}


def test_sequences_of_a_manifest_without_splits_stay_together(root):
    path = root / "set.csv"
    rows = [f"{name}/{i}.png,{i},{name}" for name in "abcdef" for i in range(2)]
    path.write_text("path,label_0,sequence\n" + "\n".join(rows) + "\n")
    data = read_source(
        Data(str(path), test_fraction=0.34, validation_fraction=0.2)
    ).data
    of = dict(zip(data.sequences, data.splits, strict=True))
    assert all(
        of[name] == split
        for name, split in zip(data.sequences, data.splits, strict=True)
    )
    ordered = hash_order(list("abcdef"), 0)
    assert [of[name] for name in ordered] == [
        *["test"] * 2,
        "validation",
        *["train"] * 3,
    ]
    with pytest.raises(ValueError, match="`test_fraction` must leave a sequence"):
        read_source(Data(str(path), test_fraction=0.94, validation_fraction=0.05))


def test_validation_comes_from_the_training_classes_alone(root):
    split_of = dict.fromkeys("abcde", "train") | {"f": "test"}
    settings = Data(manifest(root, split_of), validation_fraction=0.4)
    received = splits(read_source(settings).data)
    parts = split_classes(
        list("abcde"), test_fraction=0, validation_fraction=0.4, seed=0
    )
    assert received["validation"] == tuple(parts["validation"])
    assert received["train"] == tuple(parts["train"])
    assert received["test"] == ("f",)


def test_no_validation_is_taken_where_the_fraction_is_0(root):
    split_of = dict.fromkeys("abcde", "train") | {"f": "test"}
    data = read_source(Data(manifest(root, split_of), validation_fraction=0)).data
    assert set(data.splits) == {"train", "test"}


def test_manifest_of_test_images_alone_stays_as_it_is(root):
    data = read_source(Data(manifest(root, dict.fromkeys("abc", "test")))).data
    assert set(data.splits) == {"test"}


def test_images_that_are_left_out_leave_names_and_labels_right(root):
    source = read_source(Data(str(root), test_fraction=0, validation_fraction=0))
    left = source.data.select(np.delete(np.arange(12), [0, 1, 5]))
    assert source.names(left)[:2] == ["b/0.png", "b/1.png"]
    assert [left.class_names[label] for label in left.labels] == [
        path.parent.name for path in left.images
    ]


def poses(root, sequences=()):
    columns = "path,label_0,split" + (",sequence" if sequences else "")
    rows = []
    for number, name in enumerate("abcdef"):
        row = f"{name}/0.png,{number}.5,{'test' if name == 'f' else 'train'}"
        rows.append(row + (f",{sequences[number]}" if sequences else ""))
    path = root / "poses.csv"
    path.write_text("\n".join([columns, *rows]) + "\n")
    return str(path)


def test_validation_of_continuous_labels_takes_whole_sequences(root):
    path = poses(root, ["one", "one", "two", "two", "three", "four"])
    data = read_source(Data(path, validation_fraction=0.34)).data
    expected = hash_order(["one", "two", "three"], 0)[0]
    held_out = set(data.sequences[data.splits == "validation"])
    assert held_out == {expected}
    assert expected not in set(data.sequences[data.splits == "train"])
    with pytest.raises(ValueError, match="must leave a sequence to train on, of 3"):
        read_source(Data(path, test_fraction=0, validation_fraction=0.9))


def test_validation_of_continuous_labels_takes_images_without_sequences(root):
    data = read_source(Data(poses(root), validation_fraction=0.4)).data
    names = [f"{name}/0.png" for name in "abcde"]
    expected = set(hash_order(names, 0)[:2])
    held_out = np.flatnonzero(data.splits == "validation")
    assert {data.images[i].relative_to(root).as_posix() for i in held_out} == expected


def test_image_of_no_sequence_is_one_by_itself(root):
    path = poses(root, ["", "", "two", "two", "", ""])
    source = read_source(Data(path, validation_fraction=0.3))
    assert source.data.sequences.tolist() == [
        *("a/0.png", "b/0.png", "two", "two", "e/0.png", "f/0.png")
    ]


def test_roles_beside_continuous_labels_are_refused(root):
    path = root / "roles.csv"
    path.write_text(
        "path,label_0,split,role\na/0.png,1.5,train,\nb/0.png,2.5,test,query\n"
    )
    with pytest.raises(ValueError, match="`role` goes with classes"):
        read_source(Data(str(path)))
