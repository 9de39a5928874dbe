"""Manifests: read, written, and every problem found at once."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import ENCODINGS, LINE_ENDS
from tests.support.image_shapes import read_shape
from tfdml.messages import LONGEST
from training.__main__ import main
from training.data.data_set import DataSet, halve_classes
from training.data.manifest import (
    ManifestError,
    check_manifest,
    read_manifest,
    states_splits,
    write_manifest,
)


@pytest.fixture
def root(tmp_path):
    for i, name in enumerate(("a.png", "b.png", "c.jpg", "deep/d.png")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (10, 6), (40 * i, 0, 0)).save(tmp_path / name)
    return tmp_path


def write(root, text, encoding="utf-8"):
    path = root / "manifest.csv"
    path.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
    return path


def problems(root, text):
    return [(p.line, p.text) for p in check_manifest(write(root, text))]


def test_all_columns_are_read(root):
    path = write(
        root,
        "\ufeffpath,label,split,role,category,sequence,x,y,width,height,note\r\n"
        'deep/d.png,"cat, old",test,query,animal,clip 1,2,1,3,4,hello\r\n'
        "\r\n"
        "a.png,Äpfel,train,,,,,,,,\r\n"
        'b.png,"cat, old",test,gallery,animal,,,,,,\r\n',
    )
    assert check_manifest(path) == []
    data = read_manifest(path)
    assert data.images == (root / "deep/d.png", root / "a.png", root / "b.png")
    assert data.class_names == ("cat, old", "Äpfel")
    assert data.labels.tolist() == [0, 1, 0]
    assert data.splits.tolist() == ["test", "train", "test"]
    assert data.is_query().tolist() == [True, True, False]
    assert data.is_gallery().tolist() == [False, True, True]
    assert data.categories.tolist() == ["animal", "", "animal"]
    assert data.sequences.tolist() == ["clip 1", "", ""]
    assert data.boxes.tolist() == [[2, 1, 3, 4], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert read_shape(data, 0) == (4, 3, 3)
    assert read_shape(data, 1) == (6, 10, 3)


def test_continuous_labels_are_read_in_the_order_of_their_numbers(root):
    columns = ",".join(f"label_{i}" for i in reversed(range(11)))
    values = ",".join(f"{i}.5" for i in reversed(range(11)))
    path = write(root, f"path,{columns},split\na.png,{values},train\n")
    data = read_manifest(path)
    assert data.is_continuous
    assert data.labels.tolist() == [[i + 0.5 for i in range(11)]]
    assert data.class_names == ()


def test_every_problem_is_listed_at_once_with_its_line(root):
    (root / "broken.png").write_bytes(b"no image")
    text = """\
path,label,split,role,x,y,width,height
a.png,cat,train,,,,,
a.png,cat,train,,,,,
nowhere.png,cat,test,,,,,
broken.png,dog,val,,,,,
b.png,,test,asker,,,,
../x.png,owl,test,,,,,
/etc/x.png,owl,test,,,,,
c.jpg,owl,test,,5,0,6,6
a.png,fox,test
b.png,fox,test,,1,1,0,2
c.jpg,fox,test,,1,1.5,2,2
c.jpg,fox,test,,-1,0,2,2
 deep/d.png,fox,test,,,,,
,fox,test,,,,,
sub\\e.png,fox,test,,,,,
"""
    found = problems(root, text)
    expected = [
        (3, "image 'a.png' is already in line 2"),
        (4, "more than one split: train (line 2), test (line 4)"),
        (4, "there is no file"),
        (5, "broken.png: cannot be read as an image"),
        (5, "split must be one of train, validation, test. Received: 'val'"),
        (6, "role must be one of empty, query, gallery. Received: 'asker'"),
        (6, "the label is empty"),
        (7, "'../x.png' must be below the folder"),
        (8, "'/etc/x.png' must be below the folder"),
        (9, "reaches beyond the image of 10 x 6 pixels"),
        (10, "3 cells in 8 columns"),
        (11, "at least 1 pixel wide"),
        (12, "4 whole numbers"),
        (13, "must begin inside"),
        (14, "begins or ends with a space"),
        (15, "the path is empty"),
        (16, "separated by /"),
    ]
    assert len(found) == len(expected)
    for line, words in expected:
        assert any(at == line and words in text for at, text in found), (line, words)


def test_numbers_that_are_none_are_listed(root):
    text = (
        "path,label_0,label_1,split\n"
        "a.png,1,x,train\nb.png,nan,2,train\nc.jpg,1,,test\n"
    )
    assert problems(root, text) == [
        (2, "label_1 must be a finite number. Received: 'x'"),
        (3, "label_0 must be a finite number. Received: 'nan'"),
        (4, "label_1 must be a finite number. Received: ''"),
    ]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("label,split", "column 'path' is missing; there are 'label', 'split'"),
        ("image_id,class", "(or 'label_0', 'label_1', ..., or 'label_row') is missing"),
        (
            "path,split",
            "column 'label' (or 'label_0', 'label_1', ..., or 'label_row') is missing",
        ),
        ("path,label,label_0,split", "keep one kind"),
        ("path,label_0,label_2,split", "without a gap"),
        ("path,label,split,x,y", "a box needs the columns x, y, width, height"),
        ("path,label,split,split", "column 'split' occurs 2 times"),
        (
            "path,label,split,catgory",
            "column 'catgory': did you mean 'category'?",
        ),
    ],
)
def test_wrong_columns_are_reported(root, columns, words):
    cells = ",".join(
        {"path": "a.png", "split": "train"}.get(c, "1") for c in columns.split(",")
    )
    found = problems(root, f"{columns}\n{cells}\n")
    assert any(line == 1 and words in text for line, text in found), found


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("end", LINE_ENDS)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_manifest_is_read_as_editors_write_it(root, encoding, end, delimiter):
    rows = (
        ("path", "label", "note"),
        ("deep/d.png", "Äpfel", ""),
        ("a.png", "cat", "x"),
    )
    text = "".join(delimiter.join(row) + end for row in rows)
    path = write(root, ENCODINGS[encoding](text))
    assert check_manifest(path) == []
    data = read_manifest(path)
    assert data.images == (root / "deep/d.png", root / "a.png")
    assert data.class_names == ("cat", "Äpfel")
    assert not states_splits(path)
    assert set(data.splits) == {"train"}


def test_long_list_of_columns_is_cut(root):
    found = problems(root, ",".join(f"column {i}" for i in range(500)) + "\n")
    assert max(len(text) for _, text in found) < 500


def test_other_encoding_is_reported_by_line(root):
    data = "path,label,split\na.png,cat,train\nb.png,Äpfel,train\n".encode("latin-1")
    assert problems(root, data) == [
        (3, "not UTF-8 from byte 7 of the line (0xc4); save the file as UTF-8")
    ]


@pytest.mark.parametrize("text", ["", "path,label,split\n"])
def test_manifest_without_images_is_reported(root, text):
    assert "there is no image" in [text for _, text in problems(root, text)]


def test_open_quote_is_reported_by_the_line_it_begins_in(root):
    text = 'path,label,split\na.png,cat,train\nb.png,"dog,train\nc.jpg,dog,train\n'
    found = problems(root, text)
    assert [line for line, _ in found] == [3]
    assert "no CSV from here on" in found[0][1]


def test_lines_are_counted_through_quoted_line_breaks(root):
    text = 'path,label,split,note\na.png,cat,train,"two\nlines"\nz.png,cat,train,\n'
    assert [line for line, _ in problems(root, text)] == [4]


def test_two_boxes_of_one_image_are_two_images(root):
    path = write(
        root,
        "path,label,split,x,y,width,height\n"
        "a.png,cat,train,0,0,10,6\na.png,dog,train,8,1,2,5\n",
    )
    assert check_manifest(path) == []
    assert len(read_manifest(path)) == 2


@pytest.mark.parametrize("box", ["8,1,3,5", "8,2,2,5"])
def test_box_that_is_one_pixel_too_large_is_reported(root, box):
    found = problems(root, f"path,label,split,x,y,width,height\na.png,cat,test,{box}\n")
    assert len(found) == 1
    assert "beyond the image of 10 x 6 pixels" in found[0][1]


def test_reading_a_manifest_with_problems_names_them(root):
    rows = "".join(f"gone{i}.png,cat,train\n" for i in range(14))
    path = write(root, "path,label,split\n" + rows)
    with pytest.raises(ManifestError, match=r"csv:2: there is no file") as caught:
        read_manifest(path)
    assert len(caught.value.problems) == 14
    message = str(caught.value)
    told = message.count("there is no file")
    assert told >= 1
    assert f"and {14 - told} more; `tfdml check" in message
    assert len(message) <= LONGEST


def test_command_prints_all_problems_and_fails(root, capsys):
    path = write(root, "path,label,split\ngone.png,cat,train\na.png,,train\n")
    assert main(["check", str(path)]) == 1
    output = capsys.readouterr()
    assert output.out.splitlines() == [
        f"{path}:2: there is no file '{root / 'gone.png'}'",
        f"{path}:3: the label is empty",
    ]
    assert "2 problems" in output.err


def test_command_sums_a_good_manifest_up(root, capsys):
    path = write(root, "path,label,split\na.png,cat,train\nb.png,dog,test\n")
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "train: 1 images, 1 classes",
        "test: 1 images, 1 classes",
    ]


def test_command_takes_another_folder_of_images(root, tmp_path_factory, capsys):
    elsewhere = tmp_path_factory.mktemp("lists")
    path = write(elsewhere, "path,label,split\na.png,cat,train\n")
    assert main(["check", str(path)]) == 1
    assert main(["check", str(path), "--root", str(root)]) == 0


def test_written_manifest_reads_back_the_same(root):
    data = DataSet(
        images=(root / "a.png", root / "b.png", root / "c.jpg"),
        labels=np.array([1, 0, 1]),
        splits=np.array(["test", "train", "test"]),
        class_names=("a, b", 'c"d'),
        roles=np.array(["query", "", "gallery"]),
        categories=np.array(["x", "y", "x"]),
        sequences=np.array(["s", "s", ""]),
        boxes=np.array([[1, 2, 3, 4], [0, 0, 0, 0], [0, 0, 1, 1]]),
    )
    write_manifest(data, root / "manifest.csv")
    assert check_manifest(root / "manifest.csv") == []
    again = read_manifest(root / "manifest.csv")
    assert again.images == data.images
    assert again.class_names == data.class_names
    for name in ("labels", "splits", "roles", "categories", "sequences", "boxes"):
        assert getattr(again, name).tolist() == getattr(data, name).tolist()


def test_written_numbers_read_back_bit_by_bit(root):
    labels = np.random.default_rng(0).normal(size=(2, 3))
    images, splits = (root / "a.png", root / "b.png"), np.array(["train", "test"])
    write_manifest(DataSet(images, labels, splits), root / "m.csv")
    np.testing.assert_array_equal(read_manifest(root / "m.csv").labels, labels)


def test_selection_numbers_the_classes_anew():
    images = np.zeros((4, 2, 2, 3), dtype="uint8")
    splits = np.array(["train", "test", "train", "test"])
    data = DataSet(images, np.array([0, 1, 2, 3]), splits, ("a", "b", "c", "d"))
    test = data.of_split("test")
    assert (test.class_names, test.labels.tolist()) == (("b", "d"), [0, 1])
    assert test.is_query().all()
    assert test.is_gallery().all()
    assert data.select([3, 0]).class_names == ("a", "d")
    assert data.select([3, 0]).labels.tolist() == [1, 0]
    assert len(data.of_split("validation")) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"splits": np.array(["train", "test", "x"])}, "`splits` must be one of"),
        ({"roles": np.array(["", "", "both"])}, "`roles` must be one of"),
        ({"labels": np.array([0, 1])}, "2 entries for 3 images"),
        ({"labels": np.array([0, 1, 2])}, "positions in `class_names`"),
        ({"labels": np.array([0.0, 1.0, 1.0])}, "integers"),
        (
            {"labels": np.array([[0.0], [np.inf], [1]]), "class_names": ()},
            "must be finite",
        ),
        ({"splits": np.array(["train", "test", "train"])}, "such as 'dog'"),
        ({"boxes": np.zeros((3, 2), dtype=int)}, r"shape \[N, 4\]"),
    ],
)
def test_data_set_that_cannot_be_is_refused(change, words):
    values = {
        "images": np.zeros((3, 2, 2, 3), dtype="uint8"),
        "labels": np.array([0, 1, 1]),
        "splits": np.array(["train", "test", "test"]),
        "class_names": ("cat", "dog"),
    }
    DataSet(**values)
    with pytest.raises(ValueError, match=words):
        DataSet(**{**values, **change})


def test_middle_class_of_an_odd_number_tests():
    assert halve_classes(np.array([0, 1, 2, 4]), 5).tolist() == [
        "train",
        "train",
        "test",
        "test",
    ]


@pytest.mark.parametrize(
    "labels",
    [
        np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32"),
        np.random.default_rng(0).integers(0, 2, (2, 4, 4, 5)).astype("uint8"),
        np.array([[1, 2], [3, 4]], "int64"),
    ],
)
def test_labels_that_no_cell_can_hold_read_back_the_same(root, labels):
    images, splits = (root / "a.png", root / "b.png"), np.array(["train", "test"])
    data = DataSet(images, labels, splits)
    assert data.is_continuous
    write_manifest(data, root / "m.csv")
    assert check_manifest(root / "m.csv") == []
    again = read_manifest(root / "m.csv")
    np.testing.assert_array_equal(again.labels, labels)
    assert again.labels.dtype == labels.dtype
    np.testing.assert_array_equal(again.of_split("test").labels, labels[1:])
    assert sorted(path.name for path in root.glob("m.*")) == ["m.csv", "m.labels.npy"]


def test_rows_of_labels_may_stand_in_any_order(root):
    np.save(root / "manifest.labels.npy", np.arange(12.0).reshape(3, 2, 2))
    path = write(root, "path,label_row,split\na.png,2,train\nb.png,0,test\n")
    expected = [[[8, 9], [10, 11]], [[0, 1], [2, 3]]]
    assert read_manifest(path).labels.tolist() == expected


def test_wrong_rows_of_labels_are_listed(root):
    np.save(root / "manifest.labels.npy", np.zeros((2, 2, 2)))
    path = write(
        root, "path,label_row,split\na.png,2,train\nb.png,-1,test\nc.jpg,,test\n"
    )
    assert [(p.line, p.text.rpartition(". ")[2]) for p in check_manifest(path)] == [
        (2, "Received: '2'"),
        (3, "Received: '-1'"),
        (4, "Received: ''"),
    ]


def test_labels_that_are_missing_or_no_numbers_are_reported(root):
    path = write(root, "path,label_row,split\na.png,0,train\n")
    with pytest.raises(ManifestError, match=r"needs the labels in .*labels\.npy"):
        read_manifest(path)
    for content, words in (
        (np.array([["a"]]), "must hold numbers"),
        (np.zeros(2), "must be an array of labels"),
    ):
        np.save(root / "manifest.labels.npy", content)
        with pytest.raises(ManifestError, match=words):
            read_manifest(path)
    (root / "manifest.labels.npy").write_bytes(b"cut off")
    with pytest.raises(ManifestError, match="needs the labels in"):
        read_manifest(path)


def test_manifest_never_stands_beside_labels_of_another(root, monkeypatch):
    images, splits = (root / "a.png", root / "b.png"), np.array(["train", "test"])
    write_manifest(DataSet(images, np.zeros((2, 2, 2)), splits), root / "m.csv")
    replace = Path.replace

    def replace_labels_and_stop(path, target):
        replace(path, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace_labels_and_stop)
        with pytest.raises(KeyboardInterrupt):
            write_manifest(DataSet(images, np.ones((2, 2, 2)), splits), root / "m.csv")
    assert not (root / "m.csv").exists()


def test_a_row_of_labels_beside_a_class_is_one_kind_too_many(root):
    np.save(root / "manifest.labels.npy", np.zeros((2, 2, 2)))
    path = write(root, "path,label,label_row,split\na.png,cat,0,train\n")
    (problem,) = check_manifest(path)
    assert "'label' (classes) beside 'label_row'" in problem.text


def test_label_that_is_not_finite_is_a_problem_of_its_line(root):
    labels = np.zeros((2, 2, 2))
    labels[1, 0, 1] = np.nan
    np.save(root / "manifest.labels.npy", labels)
    path = write(root, "path,label_row,split\na.png,0,train\nb.png,1,test\n")
    (problem,) = check_manifest(path)
    assert (problem.line, problem.text) == (
        3,
        "row 1 of manifest.labels.npy must be finite numbers",
    )


def test_class_ids_of_two_axes_are_refused():
    images = np.zeros((2, 4, 4, 3), "uint8")
    with pytest.raises(ValueError, match=r"must be integers \[N\].*int64 \[2, 1\]"):
        DataSet(images, np.array([[0], [1]]), np.array(["train"] * 2), ("a", "b"))


def test_full_disk_leaves_no_half_written_files(root, monkeypatch):
    images = (root / "a.png", root / "b.png")
    data = DataSet(images, np.zeros((2, 3, 3)), np.array(["train", "test"]))

    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_manifest(data, root / "m.csv")
    assert not list(root.glob("m.*"))


def test_queries_with_something_to_find_are_those_with_a_positive_in_the_gallery():
    labels = np.array([0, 0, 1, 1, 2])
    roles = np.array(["", "query", "gallery", "gallery", ""])
    images = np.zeros((5, 4, 4, 3), "uint8")
    data = DataSet(images, labels, np.array(["test"] * 5), ("a", "b", "c"), roles)
    assert data.has_positive().tolist() == [False, True, False, False, False]
