"""COCO captions, from small lists in the form of the release."""

import json

import numpy as np
import pytest
from PIL import Image

from tfdml.ops import caption_distance
from training.__main__ import main
from training.data.manifest import check_manifest, read_manifest
from training.data.releases.coco import list_captions, read_coco

PARTS = {"train2017": {9: "a dog", 4: "two cats"}, "val2017": {7: "a red bus"}}
OLDER = {"train2014": {8: "a tree"}, "val2014": {3: "a boat"}}


@pytest.fixture
def release(tmp_path):
    write_release(tmp_path, PARTS)
    return tmp_path


def write_release(tmp_path, parts):
    (tmp_path / "annotations").mkdir(exist_ok=True)
    number = 0
    for part, subjects in parts.items():
        (tmp_path / part).mkdir()
        images, annotations = [], []
        for image, subject in subjects.items():
            name = f"{image:012}.jpg"
            if part.endswith("2014"):  # as the release names them
                name = f"COCO_{part}_{name}"
            Image.new("RGB", (8, 6)).save(tmp_path / part / name)
            images.append(
                {
                    "license": 4,
                    "file_name": name,
                    "coco_url": f"http://images.cocodataset.org/{part}/{name}",
                    "height": 6,
                    "width": 8,
                    "id": image,
                }
            )
            for i in range(6):  # some images of the release have more than 5
                number += 1
                annotations.append(
                    {"image_id": image, "id": number, "caption": f"{subject} {i}"}
                )
        # The release lists annotations in no order.
        annotations = annotations[::-1]
        content = {"info": {}, "licenses": [], "images": images}
        (tmp_path / f"annotations/captions_{part}.json").write_text(
            json.dumps({**content, "annotations": annotations})
        )


def embed(texts):
    """Return counts of letters: equal for equal sentences."""
    return np.array(
        [[text.count(letter) for letter in "abcdeos012345"] for text in texts],
        "float64",
    )


def test_captions_stand_by_image_and_then_by_their_ids(release):
    expected = [
        f"{subject} {i}"
        for subject in ("two cats", "a dog", "a red bus")
        for i in range(5)
    ]
    assert list_captions(release) == expected
    assert list_captions(release, captions=1) == expected[::5]


def test_labels_are_the_embeddings_of_the_captions_of_each_image(release):
    data = read_coco(release, embed)
    assert data.is_continuous
    assert data.labels.shape == (3, 5, 13)
    assert data.labels.dtype == np.float32
    np.testing.assert_array_equal(
        data.labels[1], embed([f"a dog {i}" for i in range(5)]).astype("float32")
    )
    assert data.images == (
        release / "train2017/000000000004.jpg",
        release / "train2017/000000000009.jpg",
        release / "val2017/000000000007.jpg",
    )
    assert data.splits.tolist() == ["train", "train", "test"]


def test_labels_are_what_the_caption_distance_takes(release):
    labels = read_coco(release, embed, captions=2).labels
    received = np.asarray(caption_distance(labels, labels))
    unit = labels / np.linalg.norm(labels, axis=-1, keepdims=True)
    between = 1 - unit[0] @ unit[1].T
    expected = between.min(axis=0).sum() + between.min(axis=1).sum()
    np.testing.assert_allclose(received[0, 1], expected, rtol=1e-5)
    assert received[0, 0] == 0


def test_embeddings_come_from_a_file_too(release, tmp_path):
    file = tmp_path / "rows.npy"
    np.save(file, embed(list_captions(release)))
    expected = read_coco(release, embed).labels
    np.testing.assert_array_equal(read_coco(release, file).labels, expected)


def test_command_writes_the_embeddings_beside_the_manifest(release, capsys):
    file = release / "rows.npy"
    np.save(file, embed(list_captions(release)).astype("float32"))
    assert main(["manifest", "coco", str(release), "--embeddings", str(file)]) == 0
    assert "3 images" in capsys.readouterr().out
    assert check_manifest(release / "manifest.csv") == []
    again = read_manifest(release / "manifest.csv")
    np.testing.assert_array_equal(again.labels, read_coco(release, file).labels)


def test_command_without_embeddings_is_told_what_they_are(release, capsys):
    assert main(["manifest", "coco", str(release)]) == 1
    assert "list_captions" in capsys.readouterr().err
    assert main(["manifest", "lsun", str(release), "--embeddings", "a.npy"]) == 1
    assert "`--embeddings` is for coco" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.ones((14, 3)), r"floats \[15, dimension\].*Received: float64 \[14, 3\]"),
        (np.ones((15, 3), int), r"Received: int64"),
        (np.ones(15), r"Received: float64 \[15\]"),
        (np.diag(np.r_[np.ones(6), 0, np.ones(8)]), r"Row 6 is of .*'a dog 1'"),
        (np.diag(np.r_[np.ones(14), np.nan]), r"Row 14 is of .*'a red bus 4'"),
    ],
)
def test_embeddings_that_are_no_labels_are_refused(release, rows, words):
    with pytest.raises(ValueError, match=words):
        read_coco(release, lambda texts: rows)


def test_image_with_too_few_captions_is_named(release):
    with pytest.raises(ValueError, match=r"image 4 must have 7 captions.*Received: 6"):
        list_captions(release, captions=7)
    with pytest.raises(ValueError, match="at least 1"):
        list_captions(release, captions=0)


def test_list_of_another_kind_is_refused(release):
    (release / "annotations/captions_val2017.json").write_text('{"images": []}')
    with pytest.raises(ValueError, match="must have 'images' and 'annotations'"):
        list_captions(release)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be a .npy file of floats"),
        (b"text", "must be a .npy file of floats"),
    ],
)
def test_broken_file_of_embeddings_is_named(release, tmp_path, content, message):
    (tmp_path / "rows.npy").write_bytes(content)
    with pytest.raises(ValueError, match=rf"rows\.npy {message}"):
        read_coco(release, tmp_path / "rows.npy")


def test_archive_of_embeddings_is_refused(release, tmp_path):
    np.savez(tmp_path / "rows.npz", rows=np.eye(3))
    with pytest.raises(
        ValueError, match=r"must be one \.npy array, not an \.npz archive"
    ):
        read_coco(release, tmp_path / "rows.npz")


def test_list_of_something_else_is_named(release):
    path = release / "annotations/captions_val2017.json"
    content = json.loads(path.read_text())
    for about in content["annotations"]:
        del about["caption"]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"2017\.json has an unexpected form"):
        list_captions(release)


def test_release_of_2014_is_read_where_it_is_there(tmp_path):
    write_release(tmp_path, OLDER)
    assert list_captions(tmp_path, captions=1) == ["a tree 0", "a boat 0"]
    data = read_coco(tmp_path, embed)
    assert data.images == (
        tmp_path / "train2014/COCO_train2014_000000000008.jpg",
        tmp_path / "val2014/COCO_val2014_000000000003.jpg",
    )
    assert data.splits.tolist() == ["train", "test"]


def test_of_two_releases_each_has_its_manifest(release, capsys):
    write_release(release, OLDER)
    assert len(read_coco(release, embed)) == 3
    assert len(read_coco(release, embed, year=2014)) == 2
    file = release / "rows.npy"
    command = ["manifest", "coco", str(release), "--embeddings", str(file)]
    for year, count in ((2014, 2), (2017, 3)):
        np.save(file, embed(list_captions(release, year=year)))
        assert main([*command, "--year", str(year)]) == 0
        assert f"{count} images" in capsys.readouterr().out
    assert len(read_manifest(release / "manifest_2014.csv")) == 2
    assert len(read_manifest(release / "manifest.csv")) == 3


def test_missing_release_is_told_by_its_year(release, capsys):
    assert main(["manifest", "coco", str(release), "--year", "2014"]) == 1
    error = capsys.readouterr().err
    assert "must hold both lists of COCO 2014" in error
    assert "captions_train2017.json, captions_val2017.json" in error
    (release / "annotations/captions_val2017.json").unlink()
    with pytest.raises(FileNotFoundError, match="both lists of COCO 2017 or 2014"):
        read_coco(release, embed)
    with pytest.raises(
        ValueError, match=r"`year` must be 2014 or 2017\. Received: 2015"
    ):
        list_captions(release, year=2015)
    assert main(["manifest", "cub", str(release), "--year", "2014"]) == 1
    assert "`--year` is for coco" in capsys.readouterr().err
