"""MPII poses, from a small file that is nested as the release's is."""

import numpy as np
import pytest
from PIL import Image

from tests.support.image_shapes import read_shape
from training.__main__ import main
from training.data.manifest import check_manifest, read_manifest
from training.data.releases.mpii import read_mpii

scipy_io = pytest.importorskip("scipy.io", reason="scipy is not installed")

EMPTY = np.zeros((0, 0))
FIELDS = ("x1", "y1", "x2", "y2", "annopoints", "scale", "objpos")


def struct_array(rows, shape=None):
    """Return a struct array as MATLAB keeps it: fields of any kind, two axes."""
    array = np.empty(len(rows), dtype=[(name, object) for name in rows[0]])
    for i, row in enumerate(rows):
        array[i] = tuple(row.values())
    return array.reshape(shape or (1, len(rows)))


def cells(values):
    array = np.empty((len(values), 1), dtype=object)
    for i, value in enumerate(values):
        array[i, 0] = value
    return array


def joints_of(seed):
    """Return the places of 16 joints, about (60, 50), counted from 1."""
    return np.random.default_rng(seed).integers(40, 81, (16, 2)).astype("float64")


def person(joints, *, scale=0.2, center=(60, 50), ids=None):
    ids = range(16) if ids is None else ids
    points = [
        # The head has no `is_visible`, the others have text or numbers.
        {
            "x": joints[i][0],
            "y": joints[i][1],
            "id": i,
            "is_visible": EMPTY if i in (8, 9) else "1" if i % 2 else 0,
        }
        for i in ids
    ]
    return dict(
        zip(
            FIELDS,
            (
                *(1, 2, 3, 4),
                struct_array([{"point": struct_array(points)}]) if points else EMPTY,
                scale,
                struct_array([{"x": center[0], "y": center[1]}]),
            ),
            strict=True,
        )
    )


def photo(name, people, video=None):
    return {
        "image": struct_array([{"name": name}]),
        "annorect": struct_array(people) if people else EMPTY,
        "frame_sec": 12 if video else EMPTY,
        "vididx": video or EMPTY,
    }


def write_release(folder, photos, apart, training=None, place=".", size=(120, 100)):
    training = [1] * len(photos) if training is None else training
    act = [
        {"act_name": "yoga", "cat_name": "sports" if i == 0 else EMPTY, "act_id": 1}
        for i in range(len(photos))
    ]
    release = {
        "annolist": struct_array(photos),
        "img_train": np.array([training], "uint8"),
        "version": "12",
        "single_person": cells(
            [np.array(ids, "uint8").reshape(-1, 1) for ids in apart]
        ),
        "act": struct_array(act, (len(act), 1)),
        "video_list": cells([f"video{i}" for i in range(1, 10)]).T,
    }
    path = folder / place / "mpii_human_pose_v1_u12_1.mat"
    path.parent.mkdir(exist_ok=True)
    scipy_io.savemat(path, {"RELEASE": struct_array([release])})
    (folder / "images").mkdir(exist_ok=True)
    for about in photos:
        name = about["image"][0, 0]["name"]
        Image.new("RGB", size).save(folder / "images" / name)


def few(count, start=0):
    """Return photos of one person each, every one of a video of its own."""
    return [
        photo(f"{start + i}.jpg", [person(joints_of(i))], start + i + 1)
        for i in range(count)
    ]


@pytest.mark.parametrize("place", [".", "mpii_human_pose_v1_u12_2"])
def test_label_is_the_centered_pose_in_heights_of_the_person(tmp_path, place):
    write_release(tmp_path, few(5), [[1]] * 5, place=place)
    data = read_mpii(tmp_path)
    assert data.is_continuous
    assert data.labels.shape == (5, 32)
    for i in range(5):
        joints = joints_of(i)
        expected = (joints - joints.mean(axis=0)) / (200 * 0.2)
        np.testing.assert_allclose(data.labels[i].reshape(16, 2), expected, atol=1e-12)
    assert data.images[3] == tmp_path / "images/3.jpg"
    assert data.categories.tolist() == ["sports", "", "", "", ""]


def test_joints_stand_in_the_order_of_their_ids(tmp_path):
    joints = joints_of(7)
    mixed = photo(
        "m.jpg", [person(joints, ids=np.random.default_rng(0).permutation(16))]
    )
    write_release(tmp_path, [mixed, *few(4)], [[1]] * 5)
    pose = read_mpii(tmp_path).labels[0].reshape(16, 2)
    np.testing.assert_allclose(pose[9] - pose[0], (joints[9] - joints[0]) / 40)


def test_box_is_a_square_around_the_person_cut_off_at_the_edge(tmp_path):
    # At scale 0.2 the side is 1.25 * 200 * 0.2 = 50; the middle is 15 * 0.2 = 3 below
    # `objpos`, which counts from 1.
    people = [person(joints_of(1)), person(joints_of(2), center=(111, 90))]
    write_release(
        tmp_path, [photo("two.jpg", people), *few(4)], [[1, 2], [1], [1], [1], [1]]
    )
    data = read_mpii(tmp_path)
    assert data.boxes[0].tolist() == [59 - 25, 52 - 25, 50, 50]
    assert data.boxes[1].tolist() == [110 - 25, 92 - 25, 120 - 85, 100 - 67]
    assert read_shape(data, 1) == (33, 35, 3)


def test_only_whole_people_apart_from_others_in_training_photos_are_taken(tmp_path):
    lacking = person(joints_of(1), ids=range(15))
    crowd = person(joints_of(2))
    photos = [
        photo("apart.jpg", [crowd, person(joints_of(3)), lacking]),
        photo("nobody.jpg", []),
        photo("test.jpg", [person(joints_of(4))]),
        photo("bare.jpg", [person(joints_of(5), ids=())]),
        *few(4),
    ]
    apart = [[2, 3], [], [1], [1], [1], [1], [1], [1]]
    write_release(tmp_path, photos, apart, training=[1, 1, 0, 1, 1, 1, 1, 1])
    data = read_mpii(tmp_path)
    names = [path.name for path in data.images]
    assert names == ["apart.jpg", "0.jpg", "1.jpg", "2.jpg", "3.jpg"]
    expected = joints_of(3) - joints_of(3).mean(axis=0)
    np.testing.assert_allclose(data.labels[0], expected.reshape(-1) / 40, atol=1e-12)


def test_people_who_share_a_box_are_left_out(tmp_path):
    pair = photo("pair.jpg", [person(joints_of(1)), person(joints_of(2))])
    write_release(tmp_path, [pair, *few(4)], [[1, 2], [1], [1], [1], [1]])
    with pytest.warns(UserWarning, match="2 people are left out: they share"):
        data = read_mpii(tmp_path)
    assert [path.name for path in data.images] == [f"{i}.jpg" for i in range(4)]


@pytest.mark.parametrize("number", [0, 3])
def test_person_that_is_not_there_is_named(tmp_path, number):
    pair = photo("pair.jpg", [person(joints_of(1)), person(joints_of(2))])
    write_release(tmp_path, [pair, *few(4)], [[number], [1], [1], [1], [1]])
    with pytest.raises(ValueError, match=r"single_person of pair\.jpg must be 1 to 2"):
        read_mpii(tmp_path)


def test_photos_of_a_video_are_in_one_split(tmp_path):
    photos = [
        photo(f"{i}.jpg", [person(joints_of(i))], 1 + i % 5 if i < 40 else None)
        for i in range(45)
    ]
    write_release(tmp_path, photos, [[1]] * 45)
    data = read_mpii(tmp_path)
    sides = {}
    for sequence, split in zip(data.sequences, data.splits, strict=True):
        sides.setdefault(sequence, set()).add(split)
    assert set(sides) == {f"video{i}" for i in range(1, 6)} | {
        f"{i}.jpg" for i in range(40, 45)
    }
    assert all(len(splits) == 1 for splits in sides.values())
    tested = sum(splits == {"test"} for splits in sides.values())
    assert tested == 4  # 0.4 of 10 videos


def test_command_writes_a_manifest_that_reads_back_the_same(tmp_path, capsys):
    write_release(tmp_path, few(6), [[1]] * 6)
    assert main(["manifest", "mpii", str(tmp_path)]) == 0
    assert "6 images" in capsys.readouterr().out
    assert check_manifest(tmp_path / "manifest.csv") == []
    data, again = read_mpii(tmp_path), read_manifest(tmp_path / "manifest.csv")
    for name in ("labels", "boxes", "splits", "sequences", "categories"):
        np.testing.assert_array_equal(getattr(again, name), getattr(data, name))


def test_person_outside_of_the_photo_is_refused(tmp_path):
    photos = [photo("far.jpg", [person(joints_of(1), center=(900, 50))]), *few(4)]
    write_release(tmp_path, photos, [[1]] * 5)
    with pytest.raises(ValueError, match=r"far\.jpg: .*120 x 100.*\[899\.0, 49\.0\]"):
        read_mpii(tmp_path)


def test_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "mpii_human_pose_v1_u12_1.mat"
    path.write_text("no MATLAB file, and far longer than its header would be" * 9)
    with pytest.raises(ValueError, match=r"u12_1\.mat is damaged or not a MATLAB file"):
        read_mpii(tmp_path)
    scipy_io.savemat(path, {"annot": np.ones(3)})
    with pytest.raises(ValueError, match="no variable RELEASE"):
        read_mpii(tmp_path)
    write_release(tmp_path, few(3), [[1]] * 2)
    with pytest.raises(ValueError, match=r"same length\. Received: 3, 3 and 2"):
        read_mpii(tmp_path)


def test_missing_release_is_reported(tmp_path, capsys):
    assert main(["manifest", "mpii", str(tmp_path)]) == 1
    assert "mpii_human_pose_v1_u12_1.mat" in capsys.readouterr().err
