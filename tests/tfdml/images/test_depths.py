"""Pixels of any depth: the range comes from the file, or the image is refused."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.support.image_files import GRAY, LOSSY, UNKNOWN_RANGE, tiff
from tfdml.images import UnreadableImageError, read_image

shares = st.integers(1, 9).flatmap(
    lambda width: st.lists(
        st.lists(st.floats(0, 1), min_size=width, max_size=width),
        min_size=1,
        max_size=9,
    )
)


@pytest.mark.parametrize("kind", GRAY)
@given(shares=shares)
@settings(max_examples=12, deadline=None)
def test_share_of_white_is_kept_whatever_the_depth(kind, shares):
    encode, bits = GRAY[kind]
    if kind in LOSSY:  # neighbors would blur
        shares = [[shares[0][0]] * 8] * 8
    pixels = read_image(encode(shares))
    assert pixels.dtype == np.uint8
    assert pixels.shape == (*np.shape(shares), 3)
    lost = 1 if kind in LOSSY else 0  # levels, as colors are rounded apart from light
    assert np.ptp(pixels, axis=2).max() <= lost
    step = 255 / (2 ** min(bits, 8) - 1)  # of the file, in levels
    error = np.abs(pixels[:, :, 0] - 255 * np.asarray(shares))
    assert error.max() <= step / 2 + 0.6 + lost


@pytest.mark.parametrize("kind", UNKNOWN_RANGE)
def test_pixels_of_unknown_range_are_refused(kind, tmp_path):
    data, rule = UNKNOWN_RANGE[kind]
    (tmp_path / "x.tif").write_bytes(data)
    with pytest.raises(UnreadableImageError) as raised:
        read_image(tmp_path / "x.tif")
    message = str(raised.value)
    assert rule in message
    assert "x.tif" in message
    assert "8 or 16 bits" in message or "Pillow knows" in message
    assert len(message) <= 500


def test_black_float_image_is_black():
    """An image of one value has no range of its own to be stretched to."""
    assert read_image(tiff(np.zeros((2, 2)), 32, kind=3)).max() == 0
    assert read_image(tiff(np.full((2, 2), 0.5), 32, kind=3)).max() == 128


def test_transparent_value_of_16_bits_shows_the_background():
    image = Image.fromarray(np.array([[0, 500, 65535]], "uint16"))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", transparency=500)
    pixels = read_image(buffer.getvalue(), background=(0, 0, 255))
    assert pixels[0].tolist() == [[0, 0, 0], [0, 0, 255], [255, 255, 255]]


MODES = {
    "1": "PNG", "L": "PNG", "LA": "PNG", "P": "PNG", "PA": "TIFF", "RGB": "PNG",
    "RGBA": "PNG", "RGBX": "TIFF", "CMYK": "TIFF", "YCbCr": "TIFF", "LAB": "TIFF",
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@given(
    color=st.sampled_from([(0, 0, 0), (255, 255, 255)]),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
@settings(max_examples=6, deadline=None)
def test_mode_of_8_bits_becomes_rgb(mode, color, size):
    image = Image.new("RGB", size, color)
    image = image.convert("LA" if mode == "PA" else mode)
    buffer = io.BytesIO()
    image.convert(mode).save(buffer, MODES[mode])
    pixels = read_image(buffer.getvalue())
    assert pixels.shape == (size[1], size[0], 3)
    assert np.abs(pixels.astype(int) - color).max() <= 2
