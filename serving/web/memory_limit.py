"""Find out how much memory this process may use: that of its container or machine."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h
_LEAST_BYTES = 64 * 2**20


def memory_limit(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process may use.

    Args:
        root: Folder with `proc` and `sys` of Linux.

    Returns:
        The least of the machine's memory and the limits of the control groups of this
        process, of version 1 or 2, which is how containers are limited.
    """
    return min([int(psutil.virtual_memory().total), *_group_limits(root)])


def default_image_bytes(root: Path = Path("/")) -> int:
    """Return how much memory images may take while they are decoded.

    Args:
        root: As in `memory_limit`.

    Returns:
        Half of what this process may use and does not use now, at least 64 MiB. The
        rest is for what grows while it serves.
    """
    return max(_LEAST_BYTES, _bytes_left(root) // 2)


def default_message_bytes(root: Path = Path("/")) -> int:
    """Return how much memory the messages of gRPC calls in progress may take.

    Args:
        root: As in `memory_limit`.

    Returns:
        A quarter of what this process may use and does not use now, at least 64 MiB.
    """
    return max(_LEAST_BYTES, _bytes_left(root) // 4)


def _bytes_left(root: Path) -> int:
    used = psutil.Process().memory_info()
    # Pages of programs and libraries, half a gigabyte of them TensorFlow's, are shared
    # and can be read again: they do not fill up a container.
    own = int(used.rss - getattr(used, "shared", 0))
    return memory_limit(root) - own


def give_back_large_blocks() -> None:
    """Let the system have freed memory again at once, in blocks of 1 MiB and more.

    The C library of Linux raises the size from which it does so with each block that is
    freed, to 32 MiB. Below, each thread keeps what it has freed: after a large image a
    quarter of a gigabyte, which no other thread can use then. Other systems are left as
    they are.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 2**20)


def _group_limits(root: Path) -> Iterator[int]:
    for file in _limit_files(root):
        try:
            text = file.read_text("ascii").strip()
        except (OSError, ValueError):
            continue
        if text.isdigit():  # "max" is no limit
            yield int(text)


def _limit_files(root: Path) -> Iterator[Path]:
    """List where the limits of this process and of the groups above it may be."""
    mounted = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except (OSError, ValueError):  # not Linux
        return
    for line in lines:
        _, kinds, path = [*line.split(":", 2), "", ""][:3]
        if not kinds:
            folder, name = mounted, "memory.max"
        elif "memory" in kinds.split(","):
            folder, name = mounted / "memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the path may be that on the host: then only the top is there.
        group = PurePosixPath(path.lstrip("/"))
        for each in (group, *group.parents):
            if ".." not in each.parts:
                yield folder / each / name
