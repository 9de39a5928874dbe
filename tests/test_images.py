"""Reading pictures: orientation, transparency, odd modes, broken files."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tfdml.images import (
    UnreadableImageError,
    encode_png,
    list_images,
    read_image,
    resize_image,
)

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def two_halves():
    """Return a picture 4 wide and 2 high: left half red, right half blue."""
    image = Image.new("RGB", (4, 2), RED)
    image.paste(BLUE, (2, 0, 4, 2))
    return image


@pytest.mark.parametrize(
    ("orientation", "shape", "top_left", "bottom_right"),
    [
        (1, (2, 4, 3), RED, BLUE),
        (3, (2, 4, 3), BLUE, RED),  # turned by 180 degrees
        (6, (4, 2, 3), RED, BLUE),  # the camera was turned: 90 degrees clockwise
        (8, (4, 2, 3), BLUE, RED),
    ],
)
def test_exif_orientation_is_applied(orientation, shape, top_left, bottom_right):
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = read_image(encoded(two_halves(), exif=exif))
    assert picture.shape == shape
    assert tuple(picture[0, 0]) == top_left
    assert tuple(picture[-1, -1]) == bottom_right


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF"])
def test_transparency_is_composited_on_white(kind):
    image = Image.new("RGBA", (2, 2), (255, 0, 0, 255))
    image.putpixel((1, 1), (0, 0, 0, 0))  # hidden black
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    picture = read_image(encoded(image, kind, **options))
    assert tuple(picture[0, 0]) == RED
    assert tuple(picture[1, 1]) == WHITE


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
    picture = read_image(encoded(image, kind))
    assert picture.dtype == np.uint8
    assert picture.tolist() == [[[255] * 3] * 2] * 2


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
    ],
    ids=["html", "empty", "half a JPEG", "half a PNG"],
)
def test_broken_file_is_named_with_the_reason(data, reason, tmp_path):
    path = tmp_path / "broken.jpg"
    path.write_bytes(data)
    with pytest.raises(UnreadableImageError, match=rf"broken\.jpg.*({reason})"):
        read_image(path)


def test_huge_picture_is_refused_before_it_is_decoded():
    data = encoded(Image.new("1", (4000, 3000)))
    with pytest.raises(UnreadableImageError, match=r"at most 1000 pixels.*4000 x 3000"):
        read_image(data, max_pixels=1000)


def test_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.png"):
        read_image(tmp_path / "none.png")


def test_png_keeps_every_pixel():
    picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype("uint8")
    np.testing.assert_array_equal(read_image(encode_png(picture)), picture)


def test_resizing_averages_what_it_drops():
    picture = np.zeros((4, 8, 3), dtype="uint8")
    picture[:, 1::2] = 200
    small = resize_image(picture, 2)
    assert small.shape == (2, 2, 3)
    np.testing.assert_allclose(small, 100, atol=15)
    assert resize_image(small, 2) is small


def test_linked_folders_are_followed_but_not_in_circles(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "one.png").touch()
    images = tmp_path / "images"
    images.mkdir()
    (images / "linked").symlink_to(tmp_path / "store")
    (tmp_path / "store" / "back").symlink_to(images)
    assert list_images(images) == ["linked/one.png"]


def test_a_folder_without_pictures_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match="no image in the folder"):
        list_images(tmp_path)
    with pytest.raises(NotADirectoryError, match="`images_folder` must be a folder"):
        list_images(tmp_path / "missing")


def test_folder_that_cannot_be_read_is_told(tmp_path, monkeypatch):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").touch()
    scandir = os.scandir

    def guarded(folder):
        if str(folder).endswith("dog"):  # root may read what it likes
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(PermissionError, match="dog"):
        list_images(tmp_path)


def test_a_file_name_that_is_no_text_is_refused(tmp_path):
    Path(f"{tmp_path}/bad\udcff.png").touch()
    with pytest.raises(ValueError, match="not valid UTF-8"):
        list_images(tmp_path)
