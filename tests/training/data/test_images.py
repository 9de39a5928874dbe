"""Images of a data set: what cannot be read is named, and what is in it twice."""

import dataclasses

import numpy as np
import pytest

from tests.support.image_files import MAX_PIXELS, UNREADABLE
from tests.tfdml.images.test_view import write_photographs
from tfdml.images import UnreadableImageError, View
from training.data.data_set import DataSet
from training.data.images import Images, find_readable

VIEW = View(20, resize=24)


def data_set(images, **columns):
    count = len(images)
    labels, splits = np.zeros(count, "int64"), np.full(count, "train")
    return DataSet(images, labels, splits, ("all",), **columns)


@pytest.fixture
def files(tmp_path):
    return write_photographs(tmp_path)


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
