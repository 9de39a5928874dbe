"""Know the files of images by their names, and those that are images all the same."""

import contextlib
import mimetypes
import sys
from pathlib import PurePath

from PIL import Image

with contextlib.suppress(ImportError):  # an extra
    import pillow_heif

    pillow_heif.register_heif_opener()

# Pillow knows these and decodes none of them; WMF it draws on Windows alone.
_NOT_DECODED = {"BUFR", "GRIB", "HDF5", "MPEG"}
if sys.platform != "win32":
    _NOT_DECODED.add("WMF")

IMAGE_SUFFIXES = frozenset(
    suffix
    for suffix, kind in Image.registered_extensions().items()
    if kind in Image.OPEN and kind not in _NOT_DECODED
)
"""Lower-case endings of the names of images that are read, such as `.jpg`."""

_HEIF = (".heic", ".heics", ".heif", ".heifs", ".hif")
_OTHERS = frozenset((
    # RAW
    ".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".fff", ".iiq",
    ".kdc", ".mef", ".mos", ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw",
    ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f",
    # pixels; the first three where Pillow was built without them
    ".avif", ".avifs", ".jp2", ".bpg", ".djvu", ".exr", ".flif", ".hdr", ".jxl", ".jxr",
    ".psb", ".wdp", ".dcm", ".dicom", ".nii",
    # drawings
    ".ai", ".cdr", ".emf", ".kra", ".ora", ".svg", ".svgz", ".wmf", ".xcf",
))  # fmt: skip
# What the first bytes of an image are.
_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"II*\0", b"MM\0*")

HEIF_REMEDY = 'HEIC needs pillow-heif (pip install "tfdml[heic]")'
NOT_READ = "this format is not read"
WRONG_NAME = "this is an image without the suffix of one (rename it)"


def is_image_name(name: str) -> bool:
    """Return whether a file is taken for an image that is read, by its name.

    Args:
        name: The name of a file, or a path to it.

    Returns:
        Whether it ends as those of images do that Pillow decodes here, such as `.jpg`,
        in capitals, too; `.heic` only with pillow-heif.
    """
    return _suffix(name) in IMAGE_SUFFIXES


def why_not_taken(name: str, path: str) -> str | None:
    """Return why a file is no image to read, though it looks like one; None otherwise.

    Args:
        name: A name that is not taken for an image.
        path: The file, which is opened where its name says nothing.
    """
    suffix = _suffix(name)
    if suffix in _HEIF:
        return HEIF_REMEDY
    kind, _ = mimetypes.guess_type(name, strict=False)
    if suffix in _OTHERS or (kind or "").startswith("image/"):
        return NOT_READ
    if kind is None and _begins_as_image(path):
        return WRONG_NAME
    return None


def _suffix(name: str) -> str:
    return PurePath(name).suffix.lower()


def _begins_as_image(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            start = file.read(12)
    except OSError:
        return False
    is_webp = start[:4] == b"RIFF" and start[8:] == b"WEBP"
    return is_webp or start.startswith(_BEGINNINGS)
