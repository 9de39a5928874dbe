"""Images that strangers send, checked before they are decoded; regions of images."""

import numpy as np
import pytest

from serving.search.gallery.uploads import Crop, check_upload
from tests.support.search_fixtures import encoded
from tfdml.images import UnreadableImageError


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("PNG", "png"), ("JPEG", "jpg"), ("GIF", "gif"), ("BMP", "bmp"), ("WEBP", "webp")],
)
def test_an_image_is_named_after_its_content_and_not_its_name(kind, suffix):
    assert check_upload(encoded((1, 2, 3), kind)) == suffix


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"P6 1 1 255\n",
    ],
)
def test_other_files_are_refused(content):
    with pytest.raises(UnreadableImageError, match="not an image that can be"):
        check_upload(content)


def test_an_image_of_too_many_pixels_is_refused_by_its_header():
    cut_off = encoded((1, 2, 3), size=(101, 100))[:60]  # cannot be decoded
    with pytest.raises(UnreadableImageError, match="too many pixels"):
        check_upload(cut_off, max_pixels=10_099)
    assert check_upload(cut_off, 10_100) == "png"


@pytest.mark.parametrize("size", [(1, 1), (7, 3), (40, 25)])
@pytest.mark.parametrize(
    "crop",
    [(0, 0, 1, 1), (0.2, 0.4, 0.5, 0.25), (0.99, 0.99, 0.01, 0.01), (1, 1, 1e-7, 1e-7)],
)
def test_a_crop_is_every_pixel_that_it_touches(size, crop):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (size[1], size[0], 3), np.uint8)

    def touched(start, length, count):
        found = [
            pixel
            for pixel in range(count)
            if pixel + 1 > start * count + 1e-5
            and pixel < (start + length) * count - 1e-5
        ]
        return found or [min(int(start * count), count - 1)]

    x, y, width, height = crop
    rows, columns = touched(y, height, size[1]), touched(x, width, size[0])
    found = Crop(*crop).cut(pixels)
    np.testing.assert_array_equal(found, pixels[np.ix_(rows, columns)])


@pytest.mark.parametrize(
    "numbers",
    [
        (-0.1, 0, 1, 1),
        (0, 0, 0, 1),
        (0, 0, 1, -1),
        (0.5, 0, 0.6, 1),
        (0, 0.5, 1, 0.6),
        (float("nan"), 0, 1, 1),
        (0, 0, float("inf"), 1),
    ],
)
def test_a_crop_outside_the_image_is_refused(numbers):
    with pytest.raises(ValueError, match="`crop` must be x, y, width and height in"):
        Crop.of(numbers)


def test_a_crop_has_four_numbers():
    with pytest.raises(ValueError, match="four numbers: x, y, width and height"):
        Crop.of([0, 0, 1])
