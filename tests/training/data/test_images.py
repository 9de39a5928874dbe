"""Images of a data set: the right ones, the same ones again, and no broken ones."""

import dataclasses
import json
import threading

import numpy as np
import pytest
from PIL import Image

from benchmarks import reading
from tests.support.image_files import MAX_PIXELS, UNREADABLE
from tests.tfdml.images.test_view import photograph
from tfdml.images import RandomView, UnreadableImageError, View, read_image
from training.data.data_set import DataSet
from training.data.images import Images, find_readable

VIEW = View(20, resize=24)
CROPS = ("none", "position", "resized")


def data_set(images, **columns):
    count = len(images)
    labels, splits = np.zeros(count, "int64"), np.full(count, "train")
    return DataSet(images, labels, splits, ("all",), **columns)


@pytest.fixture
def files(tmp_path):
    """Six images of different sizes, each brighter than the one before."""
    paths = []
    for i in range(6):
        image = photograph(40 + 5 * i, 60 - 4 * i) // 2 + 20 * i
        paths.append(tmp_path / f"{i}.{'png' if i % 2 else 'jpg'}")
        Image.fromarray(image).save(paths[-1])
    return tuple(paths)


@pytest.mark.parametrize("crop", CROPS)
def test_central_images_are_those_of_the_view(files, crop):
    images = Images(data_set(files), VIEW, crop=crop)
    order = [3, 0, 3, 5]
    expected = np.stack([VIEW.central(read_image(files[i])) for i in order])
    for _ in range(2):  # read, then kept
        received = images.central(order)
        assert received.dtype == np.uint8
        np.testing.assert_array_equal(received, expected)
    assert len(images) == 6


@pytest.mark.parametrize("crop", ["position", "resized"])
def test_random_images_are_those_of_the_view(files, crop):
    images = Images(data_set(files), VIEW, crop=crop, min_scale=0.3, seed=7)
    received = images.random([4, 1], step=9)
    random_view = RandomView(VIEW, crop, 0.3)
    for place, position in enumerate([4, 1]):
        generator = np.random.default_rng([7, 9, place])
        expected = random_view(read_image(files[position]), generator)
        np.testing.assert_array_equal(received[place], expected)


@pytest.mark.parametrize("crop", CROPS)
def test_random_images_depend_on_seed_step_and_place_alone(files, crop):
    """Not on what was read before, on threads or on what is kept."""
    order = np.array([5, 2, 2, 2, 0])
    first = Images(data_set(files), VIEW, crop=crop, seed=1)
    expected = first.random(order, 3)
    first.random([0, 1], 0)
    for cache_bytes, threads in [(0, 1), (5_000, 3), (2**30, 2)]:
        other = Images(
            data_set(files),
            VIEW,
            crop=crop,
            seed=1,
            cache_bytes=cache_bytes,
            threads=threads,
        )
        other.random([1, 2, 3], 8)
        np.testing.assert_array_equal(other.random(order, 3), expected)
    np.testing.assert_array_equal(first.random(order, 3), expected)
    if crop != "none":
        assert (first.random(order, 4) != expected).any()
        # One image in three places of the batch.
        assert (expected[1:3] != expected[3]).any()
        reseeded = Images(data_set(files), VIEW, crop=crop, seed=2)
        assert (reseeded.random(order, 3) != expected).any()


def count_reads(images, monkeypatch):
    """Return a list that grows with each image that is read from its file."""
    read: list[int] = []
    original = DataSet.read

    def counted(self, index, **options):
        read.append(index)
        return original(self, index, **options)

    monkeypatch.setattr(DataSet, "read", counted)
    return read


@pytest.mark.parametrize("crop", CROPS)
def test_images_that_fit_are_read_once(files, crop, monkeypatch):
    images = Images(data_set(files), VIEW, crop=crop)
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
    images = Images(
        data_set(files[:1] * 6), VIEW, crop=crop, cache_bytes=4 * 3 * size + 5
    )
    read = count_reads(images, monkeypatch)
    images.central(range(6))
    images.central(range(6))
    assert len(read) == 6 + 2


def test_nothing_is_kept_with_no_room(files, monkeypatch):
    images = Images(data_set(files), VIEW, cache_bytes=0)
    read = count_reads(images, monkeypatch)
    images.central([1])
    images.central([1])
    assert read == [1, 1]


def test_several_threads_get_the_same_images(files):
    images = Images(data_set(files), VIEW, crop="position", cache_bytes=9_000)
    expected = Images(data_set(files), VIEW, crop="position").random(range(6), 5)
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
    images = Images(data_set(files[:2], boxes=boxes), VIEW, crop=crop)
    first, second = (read_image(file) for file in files[:2])
    expected = [VIEW.central(p) for p in (first[3:33, 5:31], second)]
    for _ in range(2):
        np.testing.assert_array_equal(images.central([0, 1]), expected)


@pytest.mark.parametrize("crop", CROPS)
def test_images_in_memory_are_taken_as_they_are(crop):
    arrays = np.stack([photograph(30, 40), 255 - photograph(30, 40)])
    images = Images(data_set(arrays), VIEW, crop=crop)
    expected = [VIEW.central(image) for image in arrays]
    np.testing.assert_array_equal(images.central([0, 1]), expected)


def test_images_of_the_right_size_are_not_copied_into_the_cache():
    arrays = np.stack([photograph(20, 20)] * 3)
    images = Images(data_set(arrays), View(20), cache_bytes=10**6)
    images.check()
    assert images.kept_bytes == 0


def test_changing_a_returned_image_does_not_change_the_next():
    arrays = np.stack([photograph(20, 20)])
    images = Images(data_set(arrays), View(20))
    first = images.central([0])
    first[:] = 0
    np.testing.assert_array_equal(images.central([0])[0], photograph(20, 20))
    np.testing.assert_array_equal(arrays[0], photograph(20, 20))


def test_no_positions_give_no_images(files):
    images = Images(data_set(files), VIEW, crop="position")
    assert images.central([]).shape == (0, 20, 20, 3)
    assert images.random([], 0).shape == (0, 20, 20, 3)


def test_broken_file_is_found_before_training_and_named(files, capsys):
    files[2].write_bytes(files[2].read_bytes()[:300])
    images = Images(data_set(files), VIEW)
    with pytest.raises(UnreadableImageError, match=r"2\.jpg: cannot be read"):
        images.check(description="read train")
    assert capsys.readouterr().err == ""  # a file or a pipe gets no bar


def test_broken_files_are_listed_when_asked(files):
    for i in (1, 4):
        files[i].write_bytes(b"no image")
    found = Images(data_set(files), VIEW).check(skip_unreadable=True)
    assert [position for position, _ in found] == [1, 4]
    assert "1.png: cannot be read" in found[0][1]


def test_same_image_in_two_classes_is_reported(files, capsys):
    files[4].write_bytes(files[1].read_bytes())
    names = tuple("abcdef")
    splits = np.full(6, "train")
    data = DataSet(files, np.arange(6), splits, names)
    for crop in ("none", "resized"):
        images = Images(data, VIEW, crop=crop)
        find_readable(images, skip_unreadable=False)
        said = capsys.readouterr().out
        assert "1 image is in more than one class, pixel by pixel" in said
        assert "1.png" in said
        assert "4.jpg" in said
        contents = images.contents
        assert [p for p in contents if contents[p] == contents[1]] == [1, 4]
    same = dataclasses.replace(data, labels=np.zeros(6, int))
    find_readable(Images(same, VIEW), skip_unreadable=False)
    assert not capsys.readouterr().out


def test_large_images_are_read_where_they_are_allowed(files):
    with pytest.raises(UnreadableImageError, match="at most 9 pixels, as `max_pixels`"):
        Images(data_set(files), VIEW, max_pixels=9).check()
    assert not Images(data_set(files), VIEW).check()


@pytest.mark.parametrize("kind", UNREADABLE)
def test_whatever_cannot_be_read_is_named_or_skipped(kind, files, capsys):
    make, why = UNREADABLE[kind]
    files[3].unlink()
    make(files[3])
    images = Images(data_set(files), VIEW, max_pixels=MAX_PIXELS)
    with pytest.raises(UnreadableImageError, match=r"3\.png"):
        images.check()
    readable, (reason,) = find_readable(images, skip_unreadable=True)
    assert readable.tolist() == [0, 1, 2, 4, 5]
    assert "3.png" in reason
    assert why in reason
    assert reason in capsys.readouterr().out


def test_file_that_vanished_is_named(files):
    images = Images(data_set(files), VIEW, cache_bytes=0)
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
        ({"seed": -1}, "`seed` must be at least 0. Received: seed=-1"),
        ({"cache_bytes": -1}, "`cache_bytes` must be at least 0"),
        ({"threads": 0}, "`threads` must be at least 1. Received: threads=0"),
    ],
)
def test_option_out_of_range_is_refused(options, message, files):
    with pytest.raises(ValueError, match=message):
        Images(data_set(files), VIEW, **options)


def test_benchmark_reports_every_way_to_read(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)
    out = tmp_path / "reading.jsonl"
    options = ["--files", "8", "--seconds", "0", "--no-peers", "--out", str(out)]
    reading.main(options)
    rates = [json.loads(line) for line in out.read_text().splitlines()]
    names = [record["name"] for record in rates]
    assert names[:2] == ["decode alone", "decode and resize"]
    assert {"tfdml, position", "tfdml, resized", "tfdml, central"} < set(names)
    assert all(record["rate"] > 0 for record in rates)
    assert "| tfdml, central |" in capsys.readouterr().out
