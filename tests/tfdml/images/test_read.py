"""Reading images: orientation, transparency, odd modes, broken files."""

import errno
import io
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from tests.support.encoded_images import encoded
from tests.tfdml.images.test_view import photograph as photograph_of
from tfdml.images import (
    UnreadableImageError,
    _resize,
    encode_png,
    read_image,
    resize_image,
)
from tfdml.images._resize import resample
from tfdml.messages import cut

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def two_halves():
    """Return an image 4 wide and 2 high: left half red, right half blue."""
    image = Image.new("RGB", (4, 2), RED)
    image.paste(BLUE, (2, 0, 4, 2))
    return image


# What each orientation tells to do to the pixels that are stored (EXIF 2.3, table 5).
UPRIGHT = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.swapaxes(0, 1),
    6: lambda stored: np.rot90(stored, -1),  # clockwise
    7: lambda stored: stored.swapaxes(0, 1)[::-1, ::-1],
    8: lambda stored: np.rot90(stored, 1),
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_applied(orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(photograph(), kind, exif=exif, **options)
    stored = np.asarray(Image.open(io.BytesIO(encoded(photograph(), kind, **options))))
    np.testing.assert_array_equal(read_image(data), UPRIGHT[orientation](stored))


def test_orientation_of_xmp_counts_too():
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf tiff:Orientation="3"/></x:xmpmeta>'
    turned = read_image(encoded(photograph(), "JPEG", xmp=xmp))
    stored = read_image(encoded(photograph(), "JPEG"))
    np.testing.assert_array_equal(turned, stored[::-1, ::-1])


def photograph():
    """Return an image that no turn or reflection leaves as it is."""
    y, x = np.mgrid[:24, :40]
    return Image.fromarray(np.stack([x * 6, y * 10, x + y], axis=2).astype("uint8"))


def by_pillow(data):
    """Read as the documentation says, by Pillow alone."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


JPEGS = {
    "baseline": {},
    "progressive": {"progressive": True},
    "fine": {"quality": 98, "subsampling": 0},
    "coarse": {"quality": 20},
    "4:2:2": {"subsampling": 1},
    "restart markers": {"restart_marker_rows": 1},
    "RGB": {"keep_rgb": True},
    "comment": {"comment": b"Exif"},
}


@pytest.mark.parametrize(
    ("name", "mode"),
    [(n, m) for n in JPEGS for m in ("RGB", "L", "CMYK") if n != "RGB" or m == "RGB"],
)
@pytest.mark.parametrize("size", [(321, 243), (17, 9), (1, 1)])
def test_jpeg_has_the_pixels_of_pillow(name, mode, size):
    noise = np.random.default_rng(0).integers(0, 40, (size[1], size[0], 3))
    image = np.asarray(photograph().resize(size)) // 2 + noise.astype("uint8")
    data = encoded(Image.fromarray(image).convert(mode), "JPEG", **JPEGS[name])
    np.testing.assert_array_equal(read_image(data), by_pillow(data))


def test_jpeg_with_flipped_bits_has_the_pixels_of_pillow():
    """Only a checksum would tell; libjpeg repairs what it can."""
    data = bytearray(encoded(photograph().resize((320, 240)), "JPEG"))
    generator = np.random.default_rng(0)
    differing = 0
    for _ in range(40):
        flipped = bytearray(data)
        flipped[int(generator.integers(700, len(data) - 2))] ^= 1 << 4
        try:
            expected = by_pillow(bytes(flipped))
        except (OSError, SyntaxError):
            with pytest.raises(UnreadableImageError):
                read_image(bytes(flipped))
            continue
        np.testing.assert_array_equal(read_image(bytes(flipped)), expected)
        differing += (expected != by_pillow(bytes(data))).any()
    assert differing


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "GIF", "WEBP"])
def test_lossless_formats_keep_the_pixels(kind):
    image = photograph().quantize(32).convert("RGB")
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(image, kind, **options)
    np.testing.assert_array_equal(read_image(data), np.asarray(image))


@pytest.mark.parametrize(("mode", "kind"), [("P", "BMP"), ("1", "BMP"), ("P", "TIFF")])
def test_palette_is_looked_up(mode, kind):
    image = photograph().convert("1" if mode == "1" else "RGB")
    image = image.quantize(16) if mode == "P" else image
    received = read_image(encoded(image, kind))
    np.testing.assert_array_equal(received, np.asarray(image.convert("RGB")))


def test_palette_with_a_transparent_color_is_composited_on_white():
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.putpixel((1, 0), 1)
    for kind in ("PNG", "GIF"):
        pixels = read_image(encoded(image, kind, transparency=1))
        assert pixels.tolist() == [[list(RED), list(WHITE)]]


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_gray_of_16_bits_is_scaled_to_8(kind):
    values = np.array([[0, 257, 32896, 65535]], dtype="uint16")  # 257 x 0, 1, 128, 255
    image = read_image(encoded(Image.fromarray(values), kind))
    assert image[0, :, 0].tolist() == [0, 1, 128, 255]
    assert (image == image[:, :, :1]).all()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF"])
def test_transparency_is_composited_on_white(kind):
    image = Image.new("RGBA", (2, 2), (255, 0, 0, 255))
    image.putpixel((1, 1), (0, 0, 0, 0))  # hidden black
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    pixels = read_image(encoded(image, kind, **options))
    assert tuple(pixels[0, 0]) == RED
    assert tuple(pixels[1, 1]) == WHITE


def test_background_can_be_chosen():
    image = Image.new("RGBA", (1, 1), (255, 0, 0, 0))
    assert tuple(read_image(encoded(image), background=BLUE)[0, 0]) == BLUE


def test_half_transparent_pixel_is_mixed():
    image = Image.new("RGBA", (1, 1), (0, 0, 0, 128))
    np.testing.assert_allclose(read_image(encoded(image))[0, 0], 127, atol=1)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_every_mode_becomes_rgb(mode):
    image = Image.new("L", (2, 2), 255)
    if mode == "I;16":
        image = Image.fromarray(np.full((2, 2), 65535, dtype="uint16"))
    else:
        image = image.convert("RGB").convert(mode)
    kind = "JPEG" if mode == "CMYK" else "PNG"
    pixels = read_image(encoded(image, kind))
    assert pixels.dtype == np.uint8
    assert pixels.tolist() == [[[255] * 3] * 2] * 2


def test_first_frame_of_an_animation_is_taken():
    frames = [Image.new("RGB", (2, 2), color) for color in (RED, BLUE)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert tuple(read_image(data)[0, 0]) == RED


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<html>not found</html>", "no image format"),
        (b"", "no image format"),
        (encoded(Image.new("RGB", (64, 64), RED), "JPEG")[:300], "Truncated|truncated"),
        (encoded(two_halves())[:-30], "OSError|SyntaxError|truncated"),
        (encoded(two_halves(), "TIFF")[:40], "Error|no image format"),
        (encoded(two_halves(), "WEBP")[:40], "Error|no image format"),
        (encoded(two_halves(), "BMP")[:60], "Error|truncated"),
        (encoded(Image.effect_noise((64, 64), 9), "GIF")[:400], "Error|truncated"),
        (
            encoded(Image.new("RGB", (640, 480), RED), "JPEG", progressive=True)[:800],
            "Truncated|truncated",
        ),
        (b"\xff\xd8\xff", "no image format|Error"),
    ],
    ids=[
        "html",
        "empty",
        "half a JPEG",
        "half a PNG",
        "half a TIFF",
        "half a WebP",
        "half a BMP",
        "half a GIF",
        "half a progressive JPEG",
        "three bytes of a JPEG",
    ],
)
def test_broken_file_is_named_with_the_reason(data, reason, tmp_path):
    path = tmp_path / "broken.jpg"
    path.write_bytes(data)
    with pytest.raises(UnreadableImageError, match=rf"broken\.jpg.*({reason})"):
        read_image(path)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_huge_image_is_refused_before_it_is_decoded(kind):
    data = encoded(Image.new("1", (4000, 3000)), kind)
    with pytest.raises(UnreadableImageError, match=r"at most 1000 pixels.*4000 x 3000"):
        read_image(data, max_pixels=1000)


def test_pixel_limit_is_that_of_the_reader_not_of_pillow():
    """Pillow warns above 89 million pixels and refuses above 179 million."""
    data = encoded(Image.new("1", (10_000, 9_500)))
    assert read_image(data).shape == (9_500, 10_000, 3)
    with pytest.raises(UnreadableImageError, match="at most 90000000 pixels"):
        read_image(data, max_pixels=90_000_000)
    large = encoded(Image.new("1", (20_000, 9_500)))
    with pytest.raises(UnreadableImageError, match=r"max_pixels.*190000000 pixels\."):
        read_image(large)
    before = Image.MAX_IMAGE_PIXELS
    assert read_image(large, max_pixels=None)[::999, ::999].max() == 0
    assert read_image(large, max_pixels=190_000_000).shape == (9_500, 20_000, 3)
    assert before == Image.MAX_IMAGE_PIXELS


def test_reading_in_threads_leaves_the_warnings_of_the_process_as_they_are():
    """`warnings.catch_warnings` puts back what another thread has silenced."""
    data = encoded(photograph())
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read_image, [data] * 2000))
    assert list(warnings.filters) == before


def test_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.png"):
        read_image(tmp_path / "none.png")


def test_png_keeps_every_pixel():
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype("uint8")
    np.testing.assert_array_equal(read_image(encode_png(image)), image)


@pytest.fixture(params=["cykooz-resizer", "Pillow"])
def resizer(request, monkeypatch):
    if request.param == "Pillow":
        monkeypatch.setattr(_resize, "fast", None)
    elif _resize.fast is None:
        pytest.skip("cykooz-resizer has no wheel for this machine")


@pytest.mark.usefixtures("resizer")
def test_resizing_averages_what_it_drops():
    image = np.zeros((4, 8, 3), dtype="uint8")
    image[:, 1::2] = 200
    small = resize_image(image, 2)
    assert small.shape == (2, 2, 3)
    np.testing.assert_allclose(small, 100, atol=15)
    assert resize_image(small, 2) is small


@pytest.mark.usefixtures("resizer")
@pytest.mark.parametrize("size", [(30, 40), (240, 320), (700, 11), (1, 1)])
def test_resampling_is_that_of_pillow_within_a_level(size):
    image = np.asarray(photograph().resize((301, 203)))
    expected = Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR)
    levels = resample(image, *size).astype(int) - np.asarray(expected)
    assert np.abs(levels).max() <= 1


@pytest.mark.usefixtures("resizer")
def test_part_is_resampled_as_if_the_whole_image_had_been():
    image = np.asarray(photograph().resize((301, 203)))
    whole = resample(image, 77, 90)
    across, down = 301 / 90, 203 / 77
    for left, top, width, height in [(0, 0, 90, 77), (13, 40, 77, 37), (89, 76, 1, 1)]:
        box = (left * across, top * down, width * across, height * down)
        part = resample(image, height, width, box)
        expected = whole[top : top + height, left : left + width]
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize(
    "broken", ["gone.png", "link.png", "loop.png", "a.png/b.png", "x" * 999, "a\0b"]
)
def test_file_that_is_not_there_is_missing_and_unreadable(broken, tmp_path):
    """Whoever skips what is unreadable skips it, too."""
    (tmp_path / "link.png").symlink_to("/nowhere/at/all.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "a.png").touch()
    for kind in (FileNotFoundError, UnreadableImageError):
        with pytest.raises(kind, match=r"there is no such file") as raised:
            read_image(tmp_path / broken)
        assert cut(tmp_path / broken, 250) in str(raised.value)


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path / "pipe.png", tmp_path, "/dev/zero"):
        with pytest.raises(UnreadableImageError, match="not a regular file"):
            read_image(path)


MACHINE = [errno.EMFILE, errno.ENFILE, errno.EIO, errno.EACCES, errno.ESTALE]


@pytest.mark.parametrize("number", MACHINE, ids=errno.errorcode.get)
@pytest.mark.parametrize("place", ["opening", "reading", "decoding"])
def test_errors_of_the_machine_are_not_those_of_the_image(
    number, place, tmp_path, monkeypatch
):
    path = tmp_path / "good.png"
    path.write_bytes(encoded(photograph()))

    def fail(*arguments, **options):
        named = [str(path)] if place == "opening" else []
        raise OSError(number, os.strerror(number), *named)

    if place == "decoding":
        monkeypatch.setattr(Image, "open", fail)
    else:
        monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError, match=r"good\.png") as raised:
        read_image(path)
    assert raised.value.errno == number
    assert not isinstance(raised.value, UnreadableImageError)


def test_no_memory_is_not_blamed_on_the_image(tmp_path, monkeypatch):
    path = tmp_path / "good.png"
    path.write_bytes(encoded(photograph()))

    def fail(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(PngImageFile, "load", fail)
    with pytest.raises(MemoryError, match=r"good\.png: there is not enough memory"):
        read_image(path)


def test_error_of_a_decoder_is_short(monkeypatch):
    def fail(*arguments, **options):
        raise SyntaxError("x" * 10_000)

    monkeypatch.setattr(PngImageFile, "load", fail)
    with pytest.raises(UnreadableImageError) as raised:
        read_image(encoded(photograph()))
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("size", "least", "factor"),
    [
        ((800, 1200), 100, 8),
        ((800, 1200), 101, 4),
        ((800, 1200), 400, 2),
        ((800, 1200), 401, 1),
        ((801, 1203), 100, 8),
        ((90, 1200), 100, 1),
    ],
)
def test_scaled_pixels_are_averages_of_squares(size, least, factor):
    image = photograph_of(*size)
    data = io.BytesIO()
    Image.fromarray(image).save(data, "JPEG", quality=98, subsampling=0)
    whole = read_image(data.getvalue()).astype(float)
    scaled = read_image(data.getvalue(), least_side=least)
    height, width = (side // factor for side in size)
    assert scaled.shape == (*(-(-side // factor) for side in size), 3)
    squares = whole[: height * factor, : width * factor]
    squares = squares.reshape(height, factor, width, factor, 3).mean(axis=(1, 3))
    assert np.abs(squares - scaled[:height, :width]).max() <= 6
    assert np.abs(squares - scaled[:height, :width]).mean() <= 0.6


def test_what_is_no_plain_jpeg_is_read_whole(tmp_path):
    image = photograph_of(400, 600)
    Image.fromarray(image).save(tmp_path / "a.png")
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(image).save(tmp_path / "b.jpg", exif=turned)
    assert read_image(tmp_path / "a.png", least_side=50).shape == (400, 600, 3)
    assert read_image(tmp_path / "b.jpg", least_side=50).shape == (600, 400, 3)
