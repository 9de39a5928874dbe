"""LSUN room layouts, from small files in the form of the release."""

import numpy as np
import pytest
from PIL import Image

from tfdml.ops import segmentation_distance
from training.__main__ import main
from training.data.data_set import DataSet
from training.data.manifest import check_manifest, read_manifest
from training.data.releases.lsun import SURFACES, read_lsun

scipy_io = pytest.importorskip("scipy.io", reason="scipy is not installed")

HEIGHT, WIDTH = 60, 80
# A room of type 0: the corners of the frontal wall with the places where the edges
# between the surfaces leave the image, in the order of the release.
BOX_ROOM = [(20, 15), (0, 0), (20, 45), (0, 59), (60, 45), (79, 59), (60, 15), (79, 0)]


def box_room():
    """Return the surface of each pixel of `BOX_ROOM`, by its side of the edges."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    surfaces = np.full((HEIGHT, WIDTH), "frontal wall", dtype=object)
    left, right, top, bottom = 20 - x, x - 60, 15 - y, y - 45
    nearest = np.stack([left / 20, right / 19, top / 15, bottom / 14])
    names = np.array(["left wall", "right wall", "ceiling", "floor"], dtype=object)
    outside = nearest.max(axis=0) > 0
    surfaces[outside] = names[nearest.argmax(axis=0)][outside]
    return surfaces


def two_parts(is_first, first, second):
    return np.where(is_first, first, second).astype(object)


def numbered(surfaces, order):
    """Return a map with the numbers 1, 2, ... in some order, as the release has it."""
    layout = np.zeros(surfaces.shape, "uint8")
    for number, name in enumerate(order, start=1):
        layout[surfaces == name] = number
    return layout


def write_release(folder, rooms):
    """Write the lists of rooms: part -> (name, scene, type, points, layout)."""
    (folder / "images").mkdir()
    (folder / "layout_seg").mkdir()
    fields = ("image", "scene", "type", "point", "resolution")
    for part in ("training", "validation"):
        array = np.empty(
            (1, len(rooms[part])), dtype=[(name, object) for name in fields]
        )
        for i, (name, scene, kind, points, layout) in enumerate(rooms[part]):
            point = np.array(points, "float64")
            array[0, i] = (name, scene, kind, point, np.array([layout.shape]))
            Image.new("RGB", layout.shape[::-1]).save(folder / f"images/{name}.jpg")
            scipy_io.savemat(folder / f"layout_seg/{name}.mat", {"layout": layout})
        scipy_io.savemat(folder / f"{part}.mat", {part: array})


def a_room(name, order):
    return (name, "bedroom", 0, BOX_ROOM, numbered(box_room(), order))


ORDERS = [
    ("frontal wall", "left wall", "right wall", "floor", "ceiling"),
    ("ceiling", "floor", "left wall", "frontal wall", "right wall"),
]


@pytest.fixture
def release(tmp_path):
    horizon = np.mgrid[:HEIGHT, :WIDTH][0] < 30
    flat = two_parts(horizon, "frontal wall", "floor")
    layout = numbered(flat, ("floor", "frontal wall"))
    write_release(
        tmp_path,
        {
            "training": [a_room("sun_a", ORDERS[0]), a_room("sun_b", ORDERS[1])],
            "validation": [("sun_c", "kitchen", 9, [(0, 30), (79, 30)], layout)],
        },
    )
    return tmp_path


def test_surfaces_are_named_whatever_their_numbers_in_the_map(release):
    data = read_lsun(release, size=20)
    assert data.is_continuous
    assert data.labels.shape == (3, 20, 20, 5)
    assert data.labels.dtype == np.uint8
    rows = ((np.arange(20) + 0.5) * HEIGHT / 20).astype(int)
    columns = ((np.arange(20) + 0.5) * WIDTH / 20).astype(int)
    expected = box_room()[np.ix_(rows, columns)]
    for label in data.labels[:2]:
        assert (np.array(SURFACES, object)[label.argmax(axis=-1)] == expected).all()
        assert (label.sum(axis=-1) == 1).all()
    flat = np.array(SURFACES, object)[data.labels[2].argmax(axis=-1)]
    assert (flat[:10] == "frontal wall").all()
    assert (flat[10:] == "floor").all()


def test_labels_are_what_the_segmentation_distance_takes(release):
    labels = read_lsun(release, size=20).labels
    distances = np.asarray(segmentation_distance(labels, labels))
    assert distances[0, 1] == 0
    assert 0.5 < distances[0, 2] < 1


def test_validation_rooms_test_and_scenes_are_categories(release):
    data = read_lsun(release)
    assert data.splits.tolist() == ["train", "train", "test"]
    assert data.categories.tolist() == ["bedroom", "bedroom", "kitchen"]
    assert data.images[2] == release / "images/sun_c.jpg"
    assert data.labels.shape == (3, 32, 32, 5)


@pytest.mark.parametrize(
    ("kind", "points", "is_first", "first", "second"),
    [
        (8, [(0, 30), (79, 30)], "above", "ceiling", "frontal wall"),
        (9, [(0, 30), (79, 30)], "above", "frontal wall", "floor"),
        (10, [(40, 0), (40, 59)], "left", "left wall", "right wall"),
    ],
)
def test_rooms_with_one_edge_have_a_surface_on_each_side(
    tmp_path, kind, points, is_first, first, second
):
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    where = y < 30 if is_first == "above" else x < 40
    surfaces = two_parts(where, first, second)
    layout = numbered(surfaces, (second, first))
    room = ("a", "office", kind, points, layout)
    write_release(tmp_path, {"training": [room], "validation": [("b", *room[1:])]})
    label = read_lsun(tmp_path, size=10).labels[0]
    received = np.array(SURFACES, object)[label.argmax(axis=-1)]
    assert received[0, 0] == first
    assert received[-1, -1] == second
    assert (label.sum(axis=-1) == 1).all()


def test_unlabeled_pixels_are_of_no_surface(tmp_path):
    name, scene, kind, points, layout = a_room("a", ORDERS[0])
    layout[:30, :4] = 0
    room = (scene, kind, points, layout)
    write_release(tmp_path, {"training": [(name, *room)], "validation": [("b", *room)]})
    sums = read_lsun(tmp_path, size=20).labels[0].sum(axis=-1)
    assert (sums[:10, 0] == 0).all()
    assert sums.sum() == 400 - 10


def test_rooms_whose_keypoints_do_not_fit_are_left_out_and_counted(tmp_path):
    name, scene, kind, points, layout = a_room("bad", ORDERS[0])
    swapped = [points[i] for i in (4, 5, 2, 3, 0, 1, 6, 7)]
    write_release(
        tmp_path,
        {
            "training": [
                a_room("good", ORDERS[1]),
                (name, scene, kind, swapped[:3], layout),
                ("worse", scene, 10, [(20, 0), (20, 59)], layout),
            ],
            "validation": [a_room("fine", ORDERS[0])],
        },
    )
    with pytest.warns(UserWarning, match=r"2 rooms are left out.*first is bad\."):
        data = read_lsun(tmp_path)
    assert [path.stem for path in data.images] == ["good", "fine"]


def test_command_writes_the_maps_beside_the_manifest(release, capsys):
    assert main(["manifest", "lsun", str(release)]) == 0
    assert "3 images" in capsys.readouterr().out
    assert check_manifest(release / "manifest.csv") == []
    data, again = read_lsun(release), read_manifest(release / "manifest.csv")
    np.testing.assert_array_equal(again.labels, data.labels)
    assert again.labels.dtype == np.uint8
    assert again.images == data.images
    test: DataSet = again.of_split("test")
    np.testing.assert_array_equal(test.labels, data.labels[2:])


def test_lists_and_maps_of_another_form_are_refused(release):
    scipy_io.savemat(release / "layout_seg/sun_b.mat", {"other": np.ones((2, 2))})
    with pytest.raises(ValueError, match=r"sun_b\.mat: there is no map 'layout'"):
        read_lsun(release)
    scipy_io.savemat(release / "training.mat", {"rooms": np.ones((2, 2))})
    with pytest.raises(ValueError, match=r"training\.mat: there is no list 'training'"):
        read_lsun(release)
    with pytest.raises(ValueError, match="Received: size=0"):
        read_lsun(release, size=0)


def test_room_with_an_empty_map_is_left_out(release):
    scipy_io.savemat(release / "layout_seg/sun_a.mat", {"layout": np.zeros((0, 0))})
    with pytest.warns(UserWarning, match="1 rooms are left out.*sun_a"):
        data = read_lsun(release)
    assert not any("sun_a" in path.name for path in data.images)


def test_list_without_a_field_is_named(release):
    array = np.empty((1, 1), dtype=[("image", object), ("scene", object)])
    array[0, 0] = ("sun_a", "bedroom")
    scipy_io.savemat(release / "training.mat", {"training": array})
    with pytest.raises(
        ValueError, match=r"training\.mat has an unexpected form.*Attribute"
    ):
        read_lsun(release)
