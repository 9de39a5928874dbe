"""Image sizes from headers, against what TensorFlow makes of the same bytes."""

import functools
import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from serving.endpoint.image_header import check_pixels, declared_size, is_animated_webp
from serving.web.status import StatusCode, StatusError

PNG_START = b"\x89PNG\r\n\x1a\n"
UNMEASURED = (2**31 - 1, 2**31 - 1)


def decoded_size(data):
    """Return what TensorFlow decodes, or None if it refuses."""
    import tensorflow as tf

    try:
        shape = tf.io.decode_image(data, expand_animations=False).shape
    except tf.errors.InvalidArgumentError:
        return None
    return shape[1], shape[0]


@functools.cache
def encoded(kind, mode="RGB", size=(30, 20), **options):
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), "uint8")
    Image.fromarray(pixels).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def animated_webp(size=(30, 20)):
    frames = [Image.new("RGB", size, color) for color in ("red", "blue")]
    buffer = io.BytesIO()
    frames[0].save(buffer, "WEBP", save_all=True, append_images=frames[1:])
    return buffer.getvalue()


def gif_pixels(width, height):
    """Encode black pixels in codes of three bits, none of which is compressed."""
    bits = "".join(f"{code:03b}"[::-1] for code in [4, 0] * (width * height) + [5])
    data = bytes(
        int(bits[start : start + 8][::-1], 2) for start in range(0, len(bits), 8)
    )
    blocks = (data[start : start + 255] for start in range(0, len(data), 255))
    return b"\x02" + b"".join(bytes([len(block)]) + block for block in blocks) + b"\0"


def gif(screen, *frames, start=b"GIF89a", end=b";"):
    parts = [start, struct.pack("<HHBBB", *screen, 0x80, 0, 0), bytes(6)]
    for width, height in frames:
        parts += [b",", struct.pack("<HHHHB", 0, 0, width, height, 0)]
        parts.append(gif_pixels(width, height))
    return b"".join([*parts, end])


def png_chunk(name, data):
    crc = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + crc


def png_header(width, height):
    return png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))


def jpeg_with(insertion, jpeg=None):
    """Put bytes before the frame header of a JPEG."""
    jpeg = jpeg or encoded("JPEG")
    position = jpeg.index(b"\xff\xc0")
    return jpeg[:position] + insertion + jpeg[position:]


def jpeg_frame(width, height):
    """Return the frame header of a JPEG, for another size."""
    jpeg = encoded("JPEG")
    position = jpeg.index(b"\xff\xc0")
    (length,) = struct.unpack_from(">H", jpeg, position + 2)
    old = jpeg[position : position + 2 + length]
    return old[:5] + struct.pack(">HH", height, width) + old[9:]


def webp_canvas(width, height, webp, flags=0, extra=b""):
    sizes = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    chunk = b"VP8X" + struct.pack("<I", 10) + bytes([flags, 0, 0, 0]) + sizes
    body = b"WEBP" + chunk + extra + webp[12:]
    return b"RIFF" + struct.pack("<I", len(body)) + body


def bare_webp(webp):
    """Leave out the name and the length of the only chunk."""
    body = b"WEBP" + webp[20:]
    return b"RIFF" + struct.pack("<I", len(body)) + body


SIZES = st.tuples(st.integers(1, 70), st.integers(1, 70))
FORMATS = st.sampled_from(
    [
        ("JPEG", "RGB", {}),
        ("JPEG", "L", {}),
        ("JPEG", "CMYK", {}),
        ("JPEG", "RGB", {"progressive": True}),
        ("PNG", "RGB", {}),
        ("PNG", "RGBA", {}),
        ("PNG", "P", {}),
        ("PNG", "I;16", {}),
        ("GIF", "P", {}),
        ("GIF", "P", {"interlace": 1}),
        ("BMP", "RGB", {}),
        ("BMP", "RGBA", {}),
        ("WEBP", "RGB", {}),
        ("WEBP", "RGBA", {}),
        ("WEBP", "RGB", {"lossless": True}),
        ("WEBP", "RGBA", {"lossless": True}),
    ]
)


@settings(deadline=None, max_examples=150)
@given(FORMATS, SIZES)
def test_size_is_what_tensorflow_decodes(form, size):
    kind, mode, options = form
    source = "L" if mode == "I;16" else mode
    image = Image.new(source, size).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    data = buffer.getvalue()
    assert decoded_size(data) == size
    assert declared_size(data) == size


IMAGES = {
    "jpeg": encoded("JPEG"),
    "jpeg progressive": encoded("JPEG", progressive=True),
    "png": encoded("PNG"),
    "gif": encoded("GIF", "P"),
    "bmp": encoded("BMP"),
    "webp lossy": encoded("WEBP"),
    "webp lossless": encoded("WEBP", lossless=True),
    "webp with alpha": encoded("WEBP", "RGBA"),
}


@pytest.mark.parametrize("name", IMAGES)
@settings(deadline=None, max_examples=120)
@given(
    changes=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4),
    cut=st.none() | st.integers(0, 700),
)
def test_no_damaged_image_decodes_to_more_than_its_size(name, changes, cut):
    damaged = bytearray(IMAGES[name][:cut])
    for position, value in changes:
        if position < len(damaged):
            damaged[position] = value
    data = bytes(damaged)
    size = declared_size(data)
    if is_animated_webp(data) or not data or (size and size[0] * size[1] > 10**6):
        return  # TensorFlow would crash, or take a gigabyte
    decoded = decoded_size(data)
    if decoded is not None:
        assert size is not None
        assert size[0] >= decoded[0]
        assert size[1] >= decoded[1]


EXIF_WITH_THUMBNAIL = (
    b"\xff\xe1"
    + struct.pack(">H", 2 + 6 + len(encoded("JPEG", size=(7, 5))))
    + b"Exif\0\0"
    + encoded("JPEG", size=(7, 5))
)
HIDDEN_FRAME = b"\xff\xfe" + struct.pack(">H", 2 + 19) + jpeg_frame(3, 3)
HUFFMAN_START = encoded("JPEG").index(b"\xff\xc4")
HUFFMAN_END = encoded("JPEG").index(b"\xff\xda")
ACCEPTED = {
    "jpeg, tables before the frame": jpeg_with(
        encoded("JPEG")[HUFFMAN_START:HUFFMAN_END]
    ),
    "jpeg, thumbnail in EXIF": jpeg_with(EXIF_WITH_THUMBNAIL),
    "jpeg, frame header inside a comment": jpeg_with(HIDDEN_FRAME),
    "jpeg, bytes between the segments": jpeg_with(b"abc\xff\x00def\xff\x00"),
    "jpeg, fill bytes": jpeg_with(b"\xff" * 50),
    "jpeg, markers without length": jpeg_with(b"\xff\xd0\xff\x01"),
    "jpeg, segment of length 0": jpeg_with(b"\xff\xe5\0\0"),
    "jpeg, comment of length 1": jpeg_with(b"\xff\xfe\0\1"),
    "jpeg, something follows": encoded("JPEG") + encoded("JPEG", size=(90, 90)),
    "png, unknown chunk before the header": (
        PNG_START + png_chunk(b"abCd", b"1234") + encoded("PNG")[8:]
    ),
    "png, something follows": encoded("PNG") + b"tail",
    "gif, screen larger than the frame": gif((500, 400), (30, 20)),
    "gif, screen smaller than the frame": gif((5, 4), (30, 20)),
    "gif, second frame larger": gif((5, 4), (5, 4), (30, 20)),
    "gif, second frame smaller": gif((5, 4), (30, 20), (5, 4)),
    "gif, second frame wider": gif((5, 4), (30, 4), (5, 20)),
    "gif, cut short after a frame": gif((30, 20), (30, 20), end=b""),
    "gif, something follows": gif((30, 20), (30, 20)) + b"tail",
    "gif, wrong record after a frame": gif((30, 20), (30, 20), end=b"\0tail"),
    "gif, unknown version": gif((30, 20), (30, 20), start=b"GIF8xx"),
    "gif, extension": (
        gif((1, 1), end=b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0")
        + gif((30, 20), (30, 20))[19:]
    ),
    "bmp, negative height": (
        encoded("BMP")[:22] + struct.pack("<i", -20) + encoded("BMP")[26:]
    ),
    "webp, canvas": webp_canvas(30, 20, encoded("WEBP")),
    "webp, chunk between canvas and frame": (
        webp_canvas(30, 20, encoded("WEBP"), extra=b"EXIF\x04\0\0\0abcd")
    ),
    "webp, bare frame": bare_webp(encoded("WEBP")),
    "webp, bare lossless frame": bare_webp(encoded("WEBP", lossless=True)),
    "webp, something follows": encoded("WEBP") + b"tail",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_size_of_an_odd_image_is_what_tensorflow_decodes(name):
    assert decoded_size(ACCEPTED[name]) == (30, 20)
    assert declared_size(ACCEPTED[name]) == (30, 20)


REFUSED = {
    "jpeg, large frame after a small one": jpeg_with(jpeg_frame(9000, 9000)),
    "jpeg, second image header": jpeg_with(b"\xff\xd8"),
    "jpeg, end before the frame": jpeg_with(b"\xff\xd9"),
    "jpeg, segment beyond the end": jpeg_with(b"\xff\xfe\xff\xff"),
    "png, text before the header": (
        PNG_START + png_chunk(b"tEXt", b"a\0b") + encoded("PNG")[8:]
    ),
    "png, bytes before the header": PNG_START + b"ab" + encoded("PNG")[8:],
    "png, second header": PNG_START + png_header(3, 2) + encoded("PNG")[8:],
    "gif, no frame": gif((30, 20)),
    "bmp, something follows": encoded("BMP") + b"t",
    "webp, canvas larger than the frame": webp_canvas(300, 200, encoded("WEBP")),
    "webp, canvas smaller than the frame": webp_canvas(3, 2, encoded("WEBP")),
    "empty file": b"GIF89a",
    "no image": b"a tensor of strings",
}


@pytest.mark.parametrize("name", REFUSED)
def test_tensorflow_refuses_what_has_two_sizes_or_none(name):
    assert decoded_size(REFUSED[name]) is None
    declared_size(REFUSED[name])


@pytest.mark.parametrize("name", IMAGES)
def test_header_that_is_cut_short_has_no_size_or_the_whole_one(name):
    data = IMAGES[name]
    sizes = {declared_size(data[:length]) for length in range(len(data))}
    assert sizes == {None, (30, 20)}


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (jpeg_with(b"").replace(jpeg_frame(30, 20), jpeg_frame(65000, 9)), (65000, 9)),
        (PNG_START + png_header(50_000, 40_000), (50_000, 40_000)),
        (gif((1, 1), end=b",\0\0\0\0\xff\xff\xfe\xff\0"), (65535, 65534)),
        (webp_canvas(2**24, 2**20 + 5, encoded("WEBP")), (2**24, 2**20 + 5)),
    ],
)
def test_size_is_the_declared_one_whatever_follows(data, size):
    assert declared_size(data) == size


@given(st.binary(max_size=200), st.sampled_from(sorted(IMAGES)))
@example(b"", "png")
def test_no_bytes_raise(data, name):
    for start in (b"", IMAGES[name][:12], IMAGES[name][:40]):
        size = declared_size(start + data)
        assert size is None or min(size) >= 1


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xd8" + b"\xff\xfe\0\2" * 100_000,
        PNG_START + png_chunk(b"abCd", b"") * 100_000,
        gif((1, 1), end=b"!\xfe" + b"\1a" * 100_000),
        gif((1, 1), end=b"!\xfe\0" * 100_000),
    ],
)
def test_header_made_of_tiny_parts_counts_as_too_large(data):
    assert declared_size(data) == UNMEASURED
    with pytest.raises(StatusError, match="row 0: the header of the image has too"):
        check_pixels(np.array([data], object), 10**9, "image_bytes")


@pytest.mark.parametrize("filler", [b"\xff", b"\xff\x00", b"\x00", b"a"])
def test_filler_of_a_jpeg_is_skipped_to_the_frame(filler):
    assert declared_size(jpeg_with(filler * 2_000_000)) == (30, 20)
    assert declared_size(b"\xff\xd8\xff\xe0" + filler * 2_000_000) is None


def test_image_above_the_limit_is_named_by_input_row_and_size():
    huge = PNG_START + png_header(50_000, 50_000)
    images = np.array([encoded("PNG"), b"no image", huge], object)
    with pytest.raises(StatusError) as caught:
        check_pixels(images, 100_000_000, "image_bytes")
    assert caught.value.code == StatusCode.INVALID_ARGUMENT
    assert caught.value.message == (
        'Input "image_bytes", row 2: the image has 50000 x 50000 pixels; at most '
        "100000000 are decoded."
    )


def test_limit_itself_is_allowed_and_one_pixel_more_is_not():
    images = np.array([[encoded("PNG")], [encoded("JPEG")]], object)
    check_pixels(images, 600, "image_bytes")
    with pytest.raises(StatusError, match="row 0: the image has 30 x 20 pixels"):
        check_pixels(images, 599, "image_bytes")


def test_row_counts_along_the_first_axis():
    images = np.array([[b"", b""], [b"", encoded("PNG")]], object)
    with pytest.raises(StatusError, match="row 1: the image has"):
        check_pixels(images, 1, "image_bytes")


def test_all_frames_of_a_gif_count():
    animation = np.array(gif((5, 4), (5, 4), (10, 10), (1, 1)), object)
    check_pixels(animation, 300, "image")
    with pytest.raises(
        StatusError, match="row 0: the image has 3 or more frames of 10 x 10 pixel"
    ):
        check_pixels(animation, 299, "image")


def test_frames_are_counted_no_further_than_to_the_limit():
    # Behind the third frame the header would count as endless.
    frames = gif((1, 1), *[(10, 10)] * 3, end=b"!\xfe\0" * 100_000)
    animation = np.array(frames, object)
    with pytest.raises(StatusError, match="3 or more frames of 10 x 10 pixels"):
        check_pixels(animation, 299, "image")
    with pytest.raises(StatusError, match="too many parts"):
        check_pixels(animation, 300, "image")


def test_animated_webp_is_refused_before_it_ends_the_process():
    assert is_animated_webp(animated_webp())
    assert declared_size(animated_webp()) == (30, 20)
    with pytest.raises(StatusError, match="row 1: An animated WebP is not decoded"):
        check_pixels(
            np.array([encoded("WEBP"), animated_webp()], object), 10**9, "image"
        )


@pytest.mark.parametrize(
    ("mode", "kind", "each"),
    [
        ("RGB", "JPEG", 16),
        ("L", "PNG", 16),
        ("RGB", "PNG", 16),
        ("I;16", "PNG", 16),
        ("P", "PNG", 39),
        ("LA", "PNG", 39),
        ("RGBA", "PNG", 39),
        ("RGB", "BMP", 20),
        ("P", "GIF", 16),
        ("RGB", "WEBP", 16),
        ("RGBA", "WEBP", 39),
    ],
)
def test_memory_to_decode_follows_the_channels_that_the_header_declares(
    mode, kind, each
):
    buffer = io.BytesIO()
    Image.new(mode, (30, 20)).save(buffer, kind)
    pixels, costs = check_pixels(np.array([buffer.getvalue()], object), 600, "image")
    encoded = 4 * len(buffer.getvalue())
    assert (pixels, costs.tolist()) == (600, [600 * each + encoded])


def test_further_frames_of_a_gif_are_kept_as_they_are_decoded():
    animation = gif((1, 1), (10, 10), (10, 10), (9, 9))
    decoded = 100 * (16 + 2 * 3)
    assert check_pixels(np.array(animation, object), 300, "image")[1].tolist() == [
        decoded + 4 * len(animation)
    ]


def test_inputs_without_images_pass():
    check_pixels(np.array([b"text", b""], object), 1, "text")
    check_pixels(np.empty((0,), object), 1, "text")
    check_pixels(np.empty((3, 0), object), 1, "text")
    with pytest.raises(
        ValueError, match=r"`most` must be at least 1\. Received: most=0\."
    ):
        check_pixels(np.array([b""], object), 0, "text")
