"""Encoded images that are damaged, or lie about their size."""

import io
import struct
import zlib

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from tests.fuzz.mutated_bytes import mutated

_SIZES = (0, 1, 2, 255, 4096, 16383, 16384, 30_000, 65_500, 65_535)
_LARGE_SIZES = (2**16, 10**6, 2**24, 2**31 - 1, 2**31, 2**32 - 1)


def _encode(mode: str, kind: str, **options) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 4), np.uint8)
    image = Image.fromarray(pixels, "RGBA" if mode == "RGBA" else None)
    image = image.convert(mode)
    if mode == "I;16":
        image = Image.fromarray(pixels[..., :2].copy().view(np.uint16)[..., 0])
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _frames(mode: str, kind: str) -> bytes:
    frames = [Image.new(mode, (10, 12), color) for color in ("red", "lime", "blue")]
    buffer = io.BytesIO()
    frames[0].save(buffer, kind, save_all=True, append_images=frames[1:])
    return buffer.getvalue()


IMAGES = {
    "jpeg": _encode("RGB", "JPEG"),
    "gray jpeg": _encode("L", "JPEG"),
    "cmyk jpeg": _encode("CMYK", "JPEG"),
    "progressive jpeg": _encode("RGB", "JPEG", progressive=True),
    "subsampled jpeg": _encode("RGB", "JPEG", subsampling=2),
    "restarted jpeg": _encode("RGB", "JPEG", restart_marker_blocks=1),
    "png": _encode("RGB", "PNG"),
    "alpha png": _encode("RGBA", "PNG"),
    "gray png": _encode("L", "PNG"),
    "gray alpha png": _encode("LA", "PNG"),
    "palette png": _encode("P", "PNG"),
    "one bit png": _encode("1", "PNG"),
    "16 bit png": _encode("I;16", "PNG"),
    "gif": _encode("P", "GIF"),
    "animated gif": _frames("RGB", "GIF"),
    "bmp": _encode("RGB", "BMP"),
    "alpha bmp": _encode("RGBA", "BMP"),
    "palette bmp": _encode("P", "BMP"),
    "webp": _encode("RGB", "WEBP"),
    "lossless webp": _encode("RGB", "WEBP", lossless=True),
    "alpha webp": _encode("RGBA", "WEBP"),
    "lossless alpha webp": _encode("RGBA", "WEBP", lossless=True),
    "animated webp": _frames("RGB", "WEBP"),
    "animated alpha webp": _frames("RGBA", "WEBP"),
}
"""Images of 10 x 12 pixels."""


def with_size(kind: str, width: int, height: int) -> bytes:
    """Write another size into the header of an image.

    Args:
        kind: A key of `IMAGES`.
        width: Pixels; cut to the bits that the format has for it.
        height: Pixels, likewise.

    Returns:
        The image, its checksums right.
    """
    data = bytearray(IMAGES[kind])
    if kind.endswith("png"):
        data[16:24] = struct.pack(">II", width % 2**32, height % 2**32)
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    elif kind.endswith("jpeg"):
        at = next(
            data.index(b"\xff" + m) for m in (b"\xc0", b"\xc2") if b"\xff" + m in data
        )
        data[at + 5 : at + 9] = struct.pack(">HH", height % 2**16, width % 2**16)
    elif kind.endswith("gif"):
        size = struct.pack("<HH", width % 2**16, height % 2**16)
        data[6:10] = size
        at = data.index(b"\x2c", 13 + 3 * 2 ** (1 + (data[10] & 7)))
        data[at + 5 : at + 9] = size
    elif kind.endswith("bmp"):
        data[18:26] = struct.pack("<II", width % 2**32, height % 2**32)
    elif data[12:16] == b"VP8X":
        width, height = (width - 1) % 2**24, (height - 1) % 2**24
        data[24:30] = width.to_bytes(3, "little") + height.to_bytes(3, "little")
    elif data[12:16] == b"VP8L":
        bits = (width - 1) % 2**14 | (height - 1) % 2**14 << 14
        data[21:25] = struct.pack("<I", bits | data[24] >> 4 << 28)
    else:
        data[26:30] = struct.pack("<HH", width % 2**14, height % 2**14)
    return bytes(data)


@st.composite
def _lying(draw):
    sizes = st.sampled_from(_SIZES + _LARGE_SIZES)
    data = with_size(draw(st.sampled_from(sorted(IMAGES))), draw(sizes), draw(sizes))
    return data[: draw(st.sampled_from([len(data), len(data) - 1, len(data) // 2, 64]))]


@st.composite
def _polyglots(draw):
    """One format with the beginning, or the chunks, of another."""
    first, second = (draw(st.sampled_from(sorted(IMAGES.values()))) for _ in "ab")
    kept = draw(st.sampled_from([2, 4, 8, 12, 16, 20, 30, len(first) // 2, len(first)]))
    dropped = draw(st.sampled_from([0, 0, 8, 12, 20, kept]))
    return first[:kept] + second[dropped:]


@st.composite
def _with_chunks_moved(draw):
    """A PNG or WebP whose chunks are doubled, left out or in another order."""
    kind = draw(
        st.sampled_from([kind for kind in IMAGES if kind[-3:] in ("png", "ebp")])
    )
    data, is_png = IMAGES[kind], kind.endswith("png")
    start, chunks = (8 if is_png else 12), []
    at = start
    while at + 8 <= len(data):
        if is_png:
            end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        else:
            size = int.from_bytes(data[at + 4 : at + 8], "little")
            end = at + 8 + size + size % 2
        chunks.append(data[at:end])
        at = end
    order = draw(st.lists(st.integers(0, len(chunks) - 1), max_size=len(chunks) + 2))
    body = bytearray(b"".join(chunks[number] for number in order))
    if not is_png and draw(st.booleans()) and len(body) > 8:
        body[8] = draw(st.integers(0, 255))  # the flags of an extended WebP
    head = bytearray(data[:start])
    if not is_png:
        head[4:8] = struct.pack("<I", len(body) + 4)
    return bytes(head + body)


def damaged_images() -> st.SearchStrategy[bytes]:
    """Bytes that are hardly ever an image."""
    damaged = mutated(tuple(IMAGES.values()))
    return st.one_of(
        damaged, damaged, damaged, _lying(), _polyglots(), _with_chunks_moved()
    )
