r"""Log each change of an index since it was saved, and read the log.

A change counts once `ChangeLog.append` has returned: then it is on the disk. So the
last record may be cut short by a kill, and is ignored: it starts, and the file ends.
After a loss of power the file may have its length but not its content: such a record
has a block of zeros, and is ignored too, with a warning if its length is complete.
Anything else was, or may have been, acknowledged: a record that does not match its
checksum, wherever it is, is an error. Ignoring it would undo an acknowledged change,
and the next change would overwrite it.

    tfdml-changes 1 NAME\n          NAME is that of the data the changes apply to
    record ...                      header: magic, length, SHA-256 of the payload, and
                                    the CRC of NAME and all of these
                                    payload: length of the JSON, JSON, float32 numbers

SQLite would be no faster: 300 changes of one row, each brought to the disk, came to
1,513 and 1,608 per second here and to 1,531 and 1,513 there (WAL, synchronous=FULL). It
has no checksum per page, its files cannot be copied while they change, and embeddings
could not be mapped into memory.
"""

import hashlib
import json
import logging
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.files import naming
from tfdml.index.rows import Checked, kind_of, read_ids
from tfdml.messages import cut, shortened
from tfdml.versioned_folder import LockedError, lock_log

_START = "tfdml-changes 1 {}\n"
_MAGIC = b"\x93CHG"
_HEADER = struct.Struct("<4sQ32sI")
_JSON_LENGTH = struct.Struct("<I")
_CHUNK = 2**20  # bytes that are looked through at once
_BLOCK = 4096  # bytes that a file system writes, or does not write, at once

_LOGGER = logging.getLogger(__name__)


class LogError(ValueError):
    """A file of changes is damaged or missing."""


@dataclass(frozen=True)
class Change:
    """Items that are removed and items that are added, in one step.

    Args:
        removed: Ids of the removed ones.
        ids: Ids of the added ones; some may be among the removed.
        embeddings: Embeddings of the added ones, float32 `[N, D]`.
        attributes: Attributes of the added ones.
    """

    removed: NDArray[Any]
    ids: NDArray[Any]
    embeddings: NDArray[np.float32]
    attributes: Checked


def start_of(name: str) -> int:
    """Return where the first change is in the log of data with a name."""
    return len(_START.format(name).encode())


def create_log(path: Path, name: str) -> int:
    """Create an empty file of changes, bring it to the disk, and return its size."""
    start = _START.format(name).encode()
    with path.open("xb") as file:
        file.write(start)
        file.flush()
        os.fsync(file.fileno())
    return len(start)


def read_log(path: Path, name: str, start: int = 0) -> Iterator[tuple[Change, int]]:
    """Read the changes in a file, and where each one ends.

    Another process may be adding to it. One change is in memory at a time.

    Args:
        path: The file.
        name: That of the data that the changes apply to.
        start: Where to start, an end from an earlier call; 0 for the first.

    Raises:
        LogError: The file is damaged, or belongs to other data.
        FileNotFoundError: It is missing.
    """
    # Without a buffer, which would keep what was half written when it was read.
    with path.open("rb", buffering=0) as file:
        first = _START.format(name).encode()
        if _read(file, 0, len(first)) != first:
            raise LogError(f"{cut(path)} is damaged, or not of this index.")
        end = max(start, len(first))
        while True:
            payload = _read_payload(file, end, name)
            if payload is None and not _is_unfinished(file, end, name):
                # Or it was being written, and is complete by now.
                payload = _read_payload(file, end, name)
                if payload is None:
                    raise LogError(
                        f"{cut(path)} is damaged at byte {end}: the change there does "
                        "not match its checksum. Restore the folder from a copy, or "
                        "build the index again. Truncating the file there discards "
                        "this change and all later ones."
                    )
            if payload is None:
                if _has_whole_length(file, end, name):
                    _LOGGER.warning(
                        "%s: the change at byte %d was not completely written and "
                        "is ignored. It was not acknowledged, unless the disk has "
                        "lost it.",
                        path,
                        end,
                    )
                return
            end += _HEADER.size + len(payload)
            yield _decoded(payload, path), end


def has_whole_length(path: Path, name: str, place: int) -> bool:
    """Return whether the record at a place ends within the file."""
    with path.open("rb", buffering=0) as file:
        return _has_whole_length(file, place, name)


def _read(file: FileIO, place: int, length: int) -> bytearray:
    """Read some bytes from a place, or as many as there are."""
    file.seek(place)
    found = bytearray(length)
    size = 0
    with memoryview(found) as view:
        while size < length and (count := file.readinto(view[size:])):
            size += count
    del found[size:]
    return found


def _read_payload(file: FileIO, place: int, name: str) -> bytearray | None:
    """Read one record; None if it is missing, incomplete or damaged."""
    header = _read(file, place, _HEADER.size)
    length = _length(header, name)
    place += _HEADER.size
    if length is None or place + length > os.fstat(file.fileno()).st_size:
        return None
    payload = _read(file, place, length)
    if hashlib.sha256(payload).digest() != header[12:44]:
        return None
    return payload


def _length(header: bytes | bytearray, name: str) -> int | None:
    """Return the length of a payload; None if its header is incomplete."""
    if len(header) < _HEADER.size:
        return None
    magic, length, _, checksum = _HEADER.unpack(header)
    if magic != _MAGIC or _checksum(header[:-4], name) != checksum:
        return None
    return int(length)


def _checksum(header: bytes | bytearray, name: str) -> int:
    # With the name, which cannot be guessed: an embedding may hold any bytes, and must
    # not look like a record. Nor must a record of another log.
    return zlib.crc32(header, zlib.crc32(name.encode()))


def _has_whole_length(file: FileIO, place: int, name: str) -> bool:
    length = _length(_read(file, place, _HEADER.size), name)
    end = place + _HEADER.size + (length or 0)
    return length is not None and end <= os.fstat(file.fileno()).st_size


def _is_unfinished(file: FileIO, place: int, name: str) -> bool:
    """Return whether a place holds a change that was never acknowledged."""
    size = os.fstat(file.fileno()).st_size
    header = _read(file, place, _HEADER.size)
    length = _length(header, name)
    if length is None:
        if _has_record(file, place + 1, size, name):
            return False
        # A kill leaves whole headers only.
        return len(header) < _HEADER.size or _has_zero_block(file, place, size)
    end = place + _HEADER.size + length
    return end > size or (end == size and _has_zero_block(file, place, size))


def _has_record(file: FileIO, place: int, size: int, name: str) -> bool:
    """Return whether a record begins after a place."""
    while place + _HEADER.size <= size:
        chunk = _read(file, place, _CHUNK)
        found = chunk.find(_MAGIC)
        while found >= 0:
            if _length(chunk[found : found + _HEADER.size], name) is not None:
                return True
            found = chunk.find(_MAGIC, found + 1)
        if len(chunk) < _HEADER.size:  # another process has truncated it
            break
        place += len(chunk) - _HEADER.size + 1
    return False


def _has_zero_block(file: FileIO, place: int, size: int) -> bool:
    """Return whether a block of the disk, or its part from a place on, is zeros."""
    while place < size:
        end = min(size, (place // _BLOCK + 1) * _BLOCK)
        if not any(_read(file, place, end - place)):
            return True
        place = end
    return False


def _encoded(change: Change, name: str) -> list[Any]:
    """Return the bytes of a record, in pieces: the numbers may be many."""
    text = json.dumps(
        {
            "removed": change.removed.tolist(),
            "ids": change.ids.tolist(),
            "kind": kind_of(change.ids if len(change.ids) else change.removed),
            "shape": change.embeddings.shape,
            "attributes": change.attributes,
        },
        ensure_ascii=False,
    ).encode()
    numbers = np.ascontiguousarray(change.embeddings, "<f4").reshape(-1).view(np.uint8)
    payload: list[Any] = [_JSON_LENGTH.pack(len(text)) + text, numbers]
    digest = hashlib.sha256()
    for piece in payload:
        digest.update(piece)
    length = sum(map(len, payload))
    start = _HEADER.pack(_MAGIC, length, digest.digest(), 0)[:-4]
    return [start + struct.pack("<I", _checksum(start, name)), *payload]


def _decoded(payload: bytearray, path: Path) -> Change:
    try:
        (length,) = _JSON_LENGTH.unpack_from(payload)
        end = _JSON_LENGTH.size + length
        values = json.loads(payload[_JSON_LENGTH.size : end].decode())
        removed = read_ids(values["removed"], kind=values["kind"])
        ids = read_ids(values["ids"], kind=values["kind"])
        numbers = np.frombuffer(payload, "<f4", offset=end).reshape(values["shape"])
        attributes = {
            name: (kind, v) for name, (kind, v) in values["attributes"].items()
        }
        counts = {len(numbers), *(len(given) for _, given in attributes.values())}
        if numbers.ndim != 2 or counts != {len(ids)}:
            raise ValueError("its lengths do not agree")
        return Change(removed, ids, numbers.astype(np.float32), attributes)
    except (KeyError, TypeError, ValueError, struct.error) as error:
        # Its checksums match, so another program wrote it.
        raise LogError(
            f"{cut(path)} holds a record that is not a change: {shortened(error)}."
        ) from error


class ChangeLog:
    """A file of changes, open for more and locked.

    Args:
        path: The file.
        name: That of the data which the changes are made to.

    Raises:
        LockedError: Somebody else has it open.
        OSError: It cannot be opened for writing.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self._name = name
        self._process = os.getpid()
        self._file = path.open("r+b", buffering=0)
        try:
            self._lock = lock_log(path)
        except BaseException:
            self._file.close()
            raise

    def fileno(self) -> int:
        """Return the handle of the file."""
        return self._file.fileno()

    def size(self) -> int:
        """Return the size of the file."""
        return os.fstat(self._file.fileno()).st_size

    def check(self, end: int) -> None:
        """Check that a load will find what is added after a place.

        Raises:
            LockedError: The file was locked by the process that this one was forked
                from, which may add to it at any time.
            LogError: It was deleted or moved, another file is in its place, or it was
                written to in spite of the lock.
        """
        if self._process != os.getpid():
            raise LockedError(
                f"{cut(self.path.parent)} is being changed by the process that this "
                "one was forked from. Load the index again in the process that "
                "changes it."
            )
        state = os.fstat(self._file.fileno())
        try:
            is_there = os.path.samestat(os.stat(self.path), state)
        except FileNotFoundError:
            is_there = False
        if not is_there or state.st_nlink == 0:
            raise LogError(f"{cut(self.path)} was deleted, moved or replaced")
        if state.st_size != end:
            raise LogError(f"{cut(self.path)} was written to by another process")

    def append(self, change: Change, end: int) -> int:
        """Write a change after a place; when this returns, it is on the disk.

        Returns:
            Where it ends.

        Raises:
            OSError: It could not be written; part of it may have been.
        """
        self._file.seek(end)
        with naming(self.path):
            for piece in _encoded(change, self._name):
                end += len(piece)
                with memoryview(piece) as rest:
                    written = 0
                    while written < len(rest):
                        written += self._file.write(rest[written:])
            os.fsync(self._file.fileno())
        return end

    def cut(self, end: int) -> None:
        """Truncate the file at a place."""
        self._file.truncate(end)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file and release its lock."""
        try:
            self._lock.close()
        finally:
            self._file.close()
