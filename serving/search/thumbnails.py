"""Small versions of the pictures of a gallery, made when asked for and kept."""

import io
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tfdml.images import read_image

__all__ = ["MEDIA_TYPE", "Thumbnails"]

MEDIA_TYPE = "image/webp"


class Thumbnails:
    """Makes thumbnails and keeps the ones last asked for in memory.

    Args:
        file_of: Gives the file of a row.
        size: Longest side in pixels; a smaller picture keeps its size.
        keep_bytes: Total size of the thumbnails that are kept.
    """

    def __init__(
        self,
        file_of: Callable[[int], Path],
        *,
        size: int = 320,
        keep_bytes: int = 64_000_000,
    ) -> None:
        self._file_of = file_of
        self._size = size
        self._keep_bytes = keep_bytes
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def get(self, row: int) -> bytes:
        """Return the thumbnail of a row, as WebP.

        Raises:
            FileNotFoundError: The picture is gone.
            UnreadableImageError: The picture is broken.
        """
        with self._lock:
            if row in self._kept:
                self._kept.move_to_end(row)
                return self._kept[row]
        content = self._make(row)
        with self._lock:
            if row not in self._kept:
                self._kept[row] = content
                self._kept_bytes += len(content)
            while self._kept_bytes > self._keep_bytes:
                _, oldest = self._kept.popitem(last=False)
                self._kept_bytes -= len(oldest)
        return content

    def _make(self, row: int) -> bytes:
        image = Image.fromarray(read_image(self._file_of(row)))
        image.thumbnail((self._size, self._size), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, format="WEBP", quality=90)
        return buffer.getvalue()
