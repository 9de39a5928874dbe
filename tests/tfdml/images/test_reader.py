"""A reader of images: the right ones, the same ones again, and no broken ones."""

import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.tfdml.images.test_view import photograph, write_photographs
from tfdml.images import ImageReader, RandomView, UnreadableImageError, View, read_image

VIEW = View(20, resize=24)
CROPS = ("none", "position", "resized")


@pytest.fixture
def files(tmp_path):
    return write_photographs(tmp_path)


@pytest.mark.parametrize("crop", CROPS)
def test_central_images_are_those_of_the_view(files, crop):
    images = ImageReader(files, VIEW, crop=crop)
    order = [3, 0, 3, 5]
    expected = np.stack([VIEW.central(read_image(files[i])) for i in order])
    for _ in range(2):  # read, then kept
        received = images.central(order)
        assert received.dtype == np.uint8
        np.testing.assert_array_equal(received, expected)
    assert len(images) == 6
    np.testing.assert_array_equal(images.central(), images.central(range(6)))


@pytest.mark.parametrize("crop", ["position", "resized"])
def test_random_images_are_those_of_the_view(files, crop):
    images = ImageReader(files, VIEW, crop=crop, min_scale=0.3, seed=7)
    received = images.random([4, 1], step=9)
    random_view = RandomView(VIEW, crop, 0.3)
    for place, position in enumerate([4, 1]):
        generator = np.random.default_rng([7, 9, place])
        expected = random_view(read_image(files[position]), generator)
        np.testing.assert_array_equal(received[place], expected)


@pytest.mark.parametrize("crop", CROPS)
def test_random_images_depend_on_seed_step_and_place_alone(files, crop):
    """Not on what was read before, on who reads or on what is kept."""
    order = np.array([5, 2, 2, 2, 0])
    first = ImageReader(files, VIEW, crop=crop, seed=1)
    expected = first.random(order, 3)
    first.random([0, 1], 0)
    for cache_bytes, workers in [(0, 0), (5_000, 1), (2**30, 2)]:
        other = ImageReader(
            files,
            VIEW,
            crop=crop,
            seed=1,
            cache_bytes=cache_bytes,
            workers=workers,
        )
        other.random([1, 2, 3], 8)
        np.testing.assert_array_equal(other.random(order, 3), expected)
    np.testing.assert_array_equal(first.random(order, 3), expected)
    if crop != "none":
        assert (first.random(order, 4) != expected).any()
        # One image in three places of the batch.
        assert (expected[1:3] != expected[3]).any()
        reseeded = ImageReader(files, VIEW, crop=crop, seed=2)
        assert (reseeded.random(order, 3) != expected).any()


def count_reads(images, monkeypatch):
    """Return a list that grows with each image that is read from its file."""
    read: list[int] = []
    original = read_image

    def counted(source, **options):
        read.append(int(Path(source).stem))
        return original(source, **options)

    monkeypatch.setattr("tfdml.images._forms.read_image", counted)
    return read


@pytest.mark.parametrize("crop", CROPS)
def test_images_that_fit_are_read_once(files, crop, monkeypatch):
    images = ImageReader(files, VIEW, crop=crop)
    read = count_reads(images, monkeypatch)
    assert images.check() == []
    for step in range(3):
        images.random(range(6), step)
    images.central(range(6))
    assert sorted(read) == list(range(6))


@pytest.mark.parametrize(
    ("crop", "size"),
    # The squares; 24 x 36 of 40 x 60; the image.
    [("none", 20 * 20), ("position", 24 * 36), ("resized", 40 * 60)],
)
def test_no_more_is_kept_than_fits(files, crop, size, monkeypatch):
    images = ImageReader(files[:1] * 6, VIEW, crop=crop, cache_bytes=4 * 3 * size + 5)
    read = count_reads(images, monkeypatch)
    images.central(range(6))
    images.central(range(6))
    assert len(read) == 6 + 2


def test_nothing_is_kept_with_no_room(files, monkeypatch):
    images = ImageReader(files, VIEW, cache_bytes=0)
    read = count_reads(images, monkeypatch)
    images.central([1])
    images.central([1])
    assert read == [1, 1]


def test_several_threads_get_the_same_images(files):
    images = ImageReader(files, VIEW, crop="position", cache_bytes=9_000)
    expected = ImageReader(files, VIEW, crop="position").random(range(6), 5)
    failures = []

    def read():
        for _ in range(20):
            if (images.random(range(6), 5) != expected).any():
                failures.append("other images")

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("crop", CROPS)
def test_boxes_cut_the_images_first(files, crop):
    boxes = np.array([[5, 3, 26, 30], [0, 0, 0, 0]])
    images = ImageReader(files[:2], VIEW, crop=crop, boxes=boxes)
    first, second = (read_image(file) for file in files[:2])
    expected = [VIEW.central(p) for p in (first[3:33, 5:31], second)]
    for _ in range(2):
        np.testing.assert_array_equal(images.central([0, 1]), expected)


def test_box_beyond_the_image_is_refused_when_read():
    images = np.zeros((1, 4, 4, 3), "uint8")
    reader = ImageReader(images, View(2), boxes=np.array([[2, 0, 3, 1]]))
    with pytest.raises(ValueError, match=r"image 0: its box must lie inside.*in 4 x 4"):
        reader.central([0])


@pytest.mark.parametrize("crop", CROPS)
def test_images_in_memory_are_taken_as_they_are(crop):
    arrays = np.stack([photograph(30, 40), 255 - photograph(30, 40)])
    images = ImageReader(arrays, VIEW, crop=crop)
    expected = [VIEW.central(image) for image in arrays]
    np.testing.assert_array_equal(images.central([0, 1]), expected)


def test_changing_a_returned_image_does_not_change_the_next():
    arrays = np.stack([photograph(20, 20)])
    images = ImageReader(arrays, View(20))
    first = images.central([0])
    first[:] = 0
    np.testing.assert_array_equal(images.central([0])[0], photograph(20, 20))
    np.testing.assert_array_equal(arrays[0], photograph(20, 20))


def test_no_positions_give_no_images(files):
    images = ImageReader(files, VIEW, crop="position")
    assert images.central([]).shape == (0, 20, 20, 3)
    assert images.random([], 0).shape == (0, 20, 20, 3)


def test_broken_file_is_found_before_training_and_named(files, capsys):
    files[2].write_bytes(files[2].read_bytes()[:300])
    images = ImageReader(files, VIEW)
    with pytest.raises(UnreadableImageError, match=r"2\.jpg: cannot be read"):
        images.check(description="read train")
    assert capsys.readouterr().err == ""  # a file or a pipe gets no bar


def test_broken_files_are_listed_when_asked(files):
    for i in (1, 4):
        files[i].write_bytes(b"no image")
    found = ImageReader(files, VIEW).check(skip_unreadable=True)
    assert [position for position, _ in found] == [1, 4]
    assert "1.png: cannot be read" in found[0][1]


def test_large_images_are_read_where_they_are_allowed(files):
    with pytest.raises(UnreadableImageError, match="at most 9 pixels, as `max_pixels`"):
        ImageReader(files, VIEW, max_pixels=9).check()
    assert not ImageReader(files, VIEW).check()


def test_file_that_vanished_is_named(files):
    images = ImageReader(files, VIEW, cache_bytes=0)
    images.check()
    files[3].unlink()
    with pytest.raises(FileNotFoundError, match=r"3\.png"):
        images.check()
    ((position, reason),) = images.check(skip_unreadable=True)
    assert position == 3
    assert "3.png: there is no such file" in reason
    with pytest.raises(FileNotFoundError, match=r"3\.png"):
        images.random(range(6), 0)
    assert images.random([0, 1], 0).shape == (2, 20, 20, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": "middle"}, "`crop` must be one of"),
        (
            {"seed": -1},
            "`seed` must be a whole number of at least 0",
        ),
        ({"cache_bytes": -1}, "`cache_bytes` must be a whole number of at least 0"),
        ({"workers": -1}, "`workers` must be a whole number of at least 0"),
    ],
)
def test_option_out_of_range_is_refused(options, message, files):
    with pytest.raises(ValueError, match=message):
        ImageReader(files, VIEW, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_scaled_decoding_reads_what_the_views_need(tmp_path, workers):
    file = tmp_path / "large.jpg"
    Image.fromarray(photograph(800, 600)).save(file)
    boxes = np.array([[0, 0, 0, 0], [10, 20, 300, 400]])
    options = {"crop": "resized", "min_scale": 0.3, "workers": workers}
    scaled = ImageReader([file] * 2, VIEW, boxes=boxes, scaled_decoding=True, **options)
    # 20 pixels of the smallest part are 43 of the shorter side: 600 / 8 are enough.
    expected = VIEW.central(read_image(file, least_side=43))
    assert read_image(file, least_side=43).shape == (100, 75, 3)
    np.testing.assert_array_equal(scaled.central([0])[0], expected)
    whole = ImageReader([file] * 2, VIEW, boxes=boxes, **options)
    np.testing.assert_array_equal(scaled.central([1]), whole.central([1]))
    difference = scaled.random([0] * 8, 3).astype(int) - whole.random([0] * 8, 3)
    assert 0 < np.abs(difference).mean() < 12
    scaled.close()
    whole.close()


def test_least_side_enlarges_no_view():
    assert RandomView(View(20), "none").least_side == 20
    assert RandomView(View(20, resize=24), "position").least_side == 24
    random_view = RandomView(View(20), "resized", 0.25)
    assert random_view.least_side == 47  # 20 / sqrt(0.25 * 3 / 4) = 46.2
