"""Create thumbnails of the images of a gallery when needed, and keep them."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import simplejpeg
from PIL import Image

from tfdml.images import read_image

from ...storage.remote_image import RemoteImage, content_of

MEDIA_TYPE = "image/jpeg"
# The size of WebP at the same quality, in a thirtieth of the time.
_QUALITY = 85


class Thumbnails:
    """Create thumbnails, and keep the most recently used ones in memory.

    Args:
        size: Longest side in pixels; a smaller image keeps its size.
        keep_bytes: Total size of the thumbnails that are kept.
        decoding: Bounds the memory of the images whose thumbnails are made.

    Attributes:
        asked: Called at each `get`, with whether the thumbnail was kept.
    """

    def __init__(
        self,
        *,
        size: int = 320,
        keep_bytes: int = 64_000_000,
        decoding: Callable[[bytes | Path], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._size = size
        self._keep_bytes = keep_bytes
        self._decoding = decoding
        self.asked: Callable[[bool], None] = lambda was_kept: None
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, file: Path | RemoteImage) -> bytes:
        """Return the thumbnail of an image, as JPEG.

        Args:
            key: Identifies the image and its version.
            file: Its file, which is read if its thumbnail is not kept.

        Raises:
            FileNotFoundError: The image is gone.
            UnreadableImageError: The image is broken.
        """
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
        self.asked(kept is not None)
        if kept is not None:
            return kept
        content = self._make(file)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = content
                self._kept_bytes += len(content)
            while self._kept_bytes > self._keep_bytes:
                _, oldest = self._kept.popitem(last=False)
                self._kept_bytes -= len(oldest)
        return content

    def _make(self, file: Path | RemoteImage) -> bytes:
        source = content_of(file)
        with nullcontext() if self._decoding is None else self._decoding(source):
            image = Image.fromarray(read_image(source, max_pixels=None))
            image.thumbnail((self._size, self._size), Image.Resampling.LANCZOS)
        content: bytes = simplejpeg.encode_jpeg(np.array(image), quality=_QUALITY)
        return content
