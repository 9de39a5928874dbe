"""Read with Pillow by one's own limit on pixels, and know whose fault an error is."""

import contextlib
import threading
import warnings
from collections.abc import Iterator

from PIL import Image


class _Inside:
    """What `own_limit` counts: who is in it, and how it was before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.limits: list[int | None] = []
        self.warnings_before = warnings.catch_warnings()
        self.limit_before: int | None = None


_INSIDE = _Inside()


@contextlib.contextmanager
def own_limit(max_pixels: int | None) -> Iterator[None]:
    """Raise Pillow's limit on pixels to one's own, and ignore its many warnings.

    Both are of the whole process, so threads that overlap share the highest limit;
    `warnings.catch_warnings` alone would put back what another thread had set, and in
    the end the whole process would be silent. Pillow's limit is never lowered: check
    the size of an image yourself.

    Args:
        max_pixels: Width times height up to which Pillow must open an image; None for
            any size.
    """
    with _INSIDE.lock:
        if not _INSIDE.limits:
            _INSIDE.warnings_before = warnings.catch_warnings()
            _INSIDE.warnings_before.__enter__()
            warnings.simplefilter("ignore")
            _INSIDE.limit_before = Image.MAX_IMAGE_PIXELS
        _INSIDE.limits.append(max_pixels)
        Image.MAX_IMAGE_PIXELS = _highest()
    try:
        yield
    finally:
        with _INSIDE.lock:
            _INSIDE.limits.remove(max_pixels)
            Image.MAX_IMAGE_PIXELS = _highest()
            if not _INSIDE.limits:
                _INSIDE.warnings_before.__exit__(None, None, None)


def _highest() -> int | None:
    """Return the limit that lets everybody inside open what they allow."""
    limits = [limit for limit in _INSIDE.limits if limit is not None]
    if _INSIDE.limit_before is None or len(limits) < len(_INSIDE.limits):
        return None
    # Pillow warns above its limit and refuses above twice as much.
    return max([_INSIDE.limit_before, *(-(-limit // 2) for limit in limits)])


def is_of_machine(error: Exception) -> bool:
    """Return whether an error of Pillow is the machine's and not that of the bytes.

    No memory or no file descriptors are left, a disk cannot be read: the same bytes may
    be read elsewhere, or later. What Pillow says of bytes is an `OSError` without a
    number.
    """
    if isinstance(error, OSError):
        return error.errno is not None
    return isinstance(error, MemoryError)
