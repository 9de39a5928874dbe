"""Hold the views of images in memory that several processes write to."""

import mmap
import os
import sys
import tempfile
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

_BYTES = 256 * 2**20  # touched as far as they are used
_PARTS = 8  # at least so many blocks find room at once
_WAIT = 0.05  # seconds after which arrays that were dropped are looked for


class SharedViews:
    """Memory for blocks of views.

    A block becomes an array without being copied, and free again when nothing refers to
    that array any more. That is so in the first half of the memory. What finds no room
    there is copied out of the second half, which is free again at once: whoever keeps
    all arrays, large and small, does not stop the reading.

    Args:
        view_shape: Shape of a view.

    Attributes:
        view_shape: Shape of a view.
        view_bytes: Its bytes.
        most: Most views of a block.
        size: Bytes of the memory.
    """

    def __init__(self, view_shape: tuple[int, ...]) -> None:
        self.view_shape = view_shape
        self.view_bytes = int(np.prod(view_shape))
        self.size = max(_BYTES, _PARTS * self.view_bytes)
        self.most = self.size // _PARTS // self.view_bytes
        self._lock = threading.Condition()
        self._used: dict[int, int] = {}  # begin and end of blocks
        # Filled when an array ends, which can be in the middle of anything.
        self._dropped: deque[int] = deque()

    @contextmanager
    def open(self) -> Iterator[int | str]:
        """Open the memory; other processes can open it by its name meanwhile.

        It is not in /dev/shm, which is small in a container.

        Raises:
            OSError: There is not so much.
        """
        if sys.platform == "win32":
            name = f"tfdml-{uuid.uuid4()}"
            self._memory = open_memory(name, self.size)
            yield name
            return
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("tfdml-images")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        try:
            os.truncate(descriptor, self.size)
            self._memory = open_memory(descriptor, self.size)
            yield descriptor
        finally:
            os.close(descriptor)

    def take(self, count: int) -> int:
        """Take room for a block, when there is some.

        Args:
            count: How many views, at least 1 and at most `most`.

        Returns:
            Where it begins.
        """
        wanted = count * self.view_bytes
        half = self.size // 2
        with self._lock:
            while True:
                while self._dropped:
                    del self._used[self._dropped.popleft()]
                for first, last in ((0, half), (half, self.size)):
                    begin = self._free_place(first, last, wanted)
                    if begin is not None:
                        self._used[begin] = begin + wanted
                        return begin
                self._lock.wait(_WAIT)

    def _free_place(self, first: int, last: int, wanted: int) -> int | None:
        """Return where so many bytes are free, within a part of the memory."""
        begin = first
        for taken, end in sorted(self._used.items()):
            if first <= taken < last:
                if taken - begin >= wanted:
                    break
                begin = end
        return begin if begin + wanted <= last else None

    def array(self, begin: int, count: int) -> np.ndarray:
        """Return a block as an array, uint8 `[count, *view_shape]`."""
        size = count * self.view_bytes
        block = np.frombuffer(self._memory, np.uint8, size, begin)
        views = block.reshape(count, *self.view_shape)
        if begin >= self.size // 2:
            views = views.copy()
            self.drop(begin)
            return views
        weakref.finalize(block, self._dropped.append, begin)
        return views

    def drop(self, begin: int) -> None:
        """Give up a block that has not become an array."""
        with self._lock:
            del self._used[begin]
            self._lock.notify_all()


def open_memory(name: int | str, size: int) -> mmap.mmap:
    """Open shared memory by the file descriptor, or on Windows the name, it has."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size, tagname=name)
    return mmap.mmap(int(name), size)
