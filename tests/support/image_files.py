"""What each door that reads images takes: the table that tests are checked against.

Names of files, kinds of pixels, and files of them that other programs write.
"""

import io
import os
import struct
import zlib

import numpy as np
from PIL import Image

# Names, lower case or not, of files that are taken for images.
TAKEN_NAMES = (
    "1.png", "1.JPG", "a b.jpeg", "x.jfif", "x.webp", "x.tif", "x.TIFF", "x.bmp",
    "x.gif", "x.jp2", "x.pgm", "x.pfm", "x.ico", "x.tga", "x.psd", "x.avif",
)  # fmt: skip

_FORMAT = "this format is not read"
_NAME = "without the suffix of one"
_JPEG = b"\xff\xd8\xff\xe0"

# Name, first bytes, and what is said of them; None for what is no image at all.
LEFT_OUT = (
    ("IMG_0001.CR2", b"", _FORMAT),
    ("x.nef", b"", _FORMAT),
    ("x.dng", b"", _FORMAT),
    ("x.svg", b"<svg/>", _FORMAT),
    ("x.jxl", b"", _FORMAT),
    ("x.exr", b"", _FORMAT),
    ("x.dcm", b"", _FORMAT),
    ("0a1b2c", _JPEG, _NAME),
    ("x.jpg_large", _JPEG, _NAME),
    ("x.orig", b"\x89PNG\r\n", _NAME),
    ("x", b"RIFF\0\0\0\0WEBP", _NAME),
    ("notes.txt", _JPEG, None),
    ("labels.csv", b"path", None),
    ("weights.h5", b"\x89HDF", None),
    ("README", b"Images", None),
    ("empty", b"", None),
    ("Thumbs.db", b"\xd0\xcf\x11\xe0", None),
)

HOSTILE_NAMES = (
    "a b", " leading", "trailing ", "it's", 'say "cheese"', "100%", "#1", "-rf",
    "$HOME",
    "caf\u00e9", "cafe\u0301", "\u732b", "\U0001f408", "\u05d0\u05d1",
    "\u202egnp.exe", "\u2066x\u2069", "\u200b", "\ufeffbom", "line\u2028end",
    "tab\there", "new\nline", "return\rhere", "\x1b[31mred", "back\\slash", "a,b;c",
    "*", "?", "con", "x" * 200,
)  # fmt: skip


def levels(shares, bits):
    """Return shares of white, 0 to 1, as whole numbers of a depth."""
    return np.rint(np.asarray(shares) * (2**bits - 1)).astype("uint64")


def _packed(values, bits):
    """Pack rows of numbers of 1 to 12 bits, each row from a byte on."""
    rows = []
    for row in values:
        text = "".join(f"{int(value):0{bits}b}" for value in row)
        text += "0" * (-len(text) % 8)
        rows.append(int(text, 2).to_bytes(len(text) // 8, "big"))
    return rows


def png(shares, bits):
    """Encode gray shares of white as a PNG of 1, 2, 4, 8 or 16 bits."""
    values = levels(shares, bits)
    rows = (
        [row.astype(">u2").tobytes() for row in values]
        if bits == 16
        else _packed(values, bits)
    )

    def chunk(name, data):
        check = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + check

    height, width = values.shape
    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", data),
            chunk(b"IEND", b""),
        ]
    )


UNSIGNED, SIGNED, FLOAT = 1, 2, 3


def tiff(values, bits, *, kind=UNSIGNED, order="<", white_is_zero=False):
    """Encode gray values as a TIFF, without compression.

    Args:
        values: Numbers `[height, width]` as they are to stand in the file.
        bits: Bits of a pixel.
        kind: `UNSIGNED`, `SIGNED` or `FLOAT`.
        order: Of bytes, as `struct` writes it.
        white_is_zero: Whether 0 means white.
    """
    values = np.asarray(values)
    if bits in (1, 2, 4, 12):
        data = b"".join(_packed(values, bits))
    else:
        letter = {UNSIGNED: "u", SIGNED: "i", FLOAT: "f"}[kind]
        data = values.astype(f"{order}{letter}{bits // 8}").tobytes()
    height, width = values.shape
    tags = [
        (256, 3, width), (257, 3, height), (258, 3, bits), (259, 3, 1),
        (262, 3, 0 if white_is_zero else 1), (273, 4, 8), (277, 3, 1),
        (278, 3, height), (279, 4, len(data)), (339, 3, kind),
    ]  # fmt: skip
    data += b"\0" * (len(data) % 2)
    parts = [b"II*\0" if order == "<" else b"MM\0*"]
    parts += [struct.pack(f"{order}I", 8 + len(data)), data]
    parts += [struct.pack(f"{order}H", len(tags))]
    for tag, size, value in tags:
        form = "HHIHH" if size == 3 else "HHII"
        rest = (value, 0) if size == 3 else (value,)
        parts.append(struct.pack(order + form, tag, size, 1, *rest))
    return b"".join([*parts, struct.pack(f"{order}I", 0)])


def saved(shares, kind, bits):
    """Encode gray shares of white by Pillow, with 8 or 16 bits, or as floats."""
    if bits == "float":
        image = Image.fromarray(np.asarray(shares, "float32"))
    else:
        image = Image.fromarray(levels(shares, bits).astype(f"uint{bits}"))
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def pgm(shares, most):
    """Encode gray shares of white as a plain PGM with a largest value of its own."""
    values = np.rint(np.asarray(shares) * most).astype(int)
    height, width = values.shape
    rows = "\n".join(" ".join(map(str, row)) for row in values)
    return f"P2 {width} {height} {most}\n{rows}\n".encode()


def _tiffs():
    """Yield the gray TIFFs that Pillow reads: name, encoder, bits."""
    for order in "<>":
        for white_is_zero in (False, True):
            name = f"{order}{', white is 0' if white_is_zero else ''}"
            settings = {"order": order, "white_is_zero": white_is_zero}
            depths = [1, 2, 4, 8]
            if order == "<" or not white_is_zero:
                depths.append(16)
            if order == "<" and not white_is_zero:
                depths.append(12)
            for bits in depths:
                yield f"TIFF of {bits} bits {name}", _whole_tiff(bits, settings), bits
            yield f"float TIFF {name}", _float_tiff(settings), 32


def _whole_tiff(bits, settings):
    return lambda shares: tiff(
        levels(_stored(shares, settings), bits), bits, **settings
    )


def _float_tiff(settings):
    return lambda x: tiff(_stored(x, settings), 32, kind=FLOAT, **settings)


def _stored(shares, settings):
    return 1 - np.asarray(shares) if settings["white_is_zero"] else shares


LOSSY = ("WebP", "AVIF", "JPEG")

# How gray is written, from shares of white, and the bits of it that are kept.
GRAY = {
    **{f"PNG of {b} bits": (lambda x, b=b: png(x, b), b) for b in (1, 2, 4, 8, 16)},
    **{name: (encode, bits) for name, encode, bits in _tiffs()},
    **{
        f"PGM up to {most}": (lambda x, m=most: pgm(x, m), np.log2(most + 1))
        for most in (1, 100, 255, 1000, 4095, 65535)
    },
    "PFM": (lambda x: saved(x, "PPM", "float"), 32),
    "JPEG 2000 of 16 bits": (lambda x: saved(x, "JPEG2000", 16), 16),
    "BMP": (lambda x: saved(x, "BMP", 8), 8),
    "TGA": (lambda x: saved(x, "TGA", 8), 8),
    **{name: (lambda x, k=name: saved(x, k.upper(), 8), 5) for name in LOSSY},
}

_RAMP = np.linspace(0, 1, 12).reshape(3, 4)

# Pixels whose range nobody states, and what is said.
UNKNOWN_RANGE = {
    "TIFF of 32 bits": (tiff(levels(_RAMP, 32), 32), "range of its pixels is unknown"),
    **{
        f"signed TIFF of {bits} bits": (
            tiff(levels(_RAMP, bits - 1), bits, kind=SIGNED),
            "range of its pixels is unknown",
        )
        for bits in (8, 16, 32)
    },
    "floats to 255": (tiff(_RAMP * 255, 32, kind=FLOAT), "Received: 0 to 255"),
    "floats below 0": (tiff(_RAMP - 0.5, 32, kind=FLOAT), "Received: -0.5 to 0.5"),
    "no number": (tiff(_RAMP * np.nan, 32, kind=FLOAT), "Received: nan to nan"),
    "floats of 64 bits": (tiff(_RAMP, 64, kind=FLOAT), "no kind of pixels"),
}

# How editors write text: each from a text to bytes.
ENCODINGS = {
    "UTF-8": lambda text: text.encode(),
    "UTF-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16 with a mark": lambda text: text.encode("utf-16"),
    "UTF-16, big endian": lambda text: ("\ufeff" + text).encode("utf-16-be"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "UTF-32 with a mark": lambda text: text.encode("utf-32"),
}
LINE_ENDS = ("\n", "\r\n", "\r")


def _gif_cut_short(file):
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 9).save(buffer, "GIF")
    file.write_bytes(buffer.getvalue()[:400])


# Files in the place of an image that cannot be read, and what is said of each. Every
# door that reads images refuses them by name, or skips and lists them.
UNREADABLE = {
    "empty": (lambda file: file.touch(), "no image format"),
    "text": (lambda file: file.write_text("<html>"), "no image format"),
    "cut short": (_gif_cut_short, "cannot be read as an image"),
    "floats to 255": (
        lambda file: file.write_bytes(UNKNOWN_RANGE["floats to 255"][0]),
        "Received: 0 to 255",
    ),
    "link to nothing": (lambda file: file.symlink_to("/nowhere/1.png"), "no such file"),
    "link to itself": (lambda file: file.symlink_to(file), "no such file"),
    "too large": (
        lambda file: Image.new("1", (5000, 3000)).save(file, "PNG"),
        "at most 10000000 pixels, as `max_pixels`",
    ),
}
MAX_PIXELS = 10_000_000
"""The limit by which the last one is too large."""

# What is never read, whatever its name, and never waited for.
NO_FILES = {
    "pipe": lambda file: os.mkfifo(file),
    "link to a pipe": lambda file: _link_to_pipe(file),
    "folder": lambda file: file.mkdir(),
}


def _link_to_pipe(file):
    os.mkfifo(file.with_name(".pipe"))
    file.symlink_to(".pipe")
