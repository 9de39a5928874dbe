"""Record the embeddings of queries in a folder that stays small, for `tfdml drift`.

Only embeddings and times are recorded, never images, addresses or clients:

    QUERIES/queries-TIME-TOKEN.npz     embeddings [Q, D], times [Q], fingerprint
"""

import collections
import contextlib
import logging
import secrets
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tfdml.files import make_folder, remove_unfinished, written
from tfdml.index import Index
from tfdml.messages import shortened, shown
from tfdml.neighbors import Metric, first_dimensions

MOST_BYTES = 256_000_000
_LEAST_BYTES = 1_000_000
_MOST_FILES = 10_000
_MOST_WAITING = 10_000  # queries that are kept in memory while the disk is slow
_FILE_ROWS = 1_000
_FILE_SHARE = 10  # a file takes at most this part of the folder
_CLOSE_SECONDS = 5.0
_PATTERN = "queries-*.npz"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Source:
    """The index that was searched, as far as its queries depend on it."""

    fingerprint: str
    dimension: int
    metric: Metric

    def cut(self, row: NDArray[Any]) -> NDArray[np.float32]:
        """Return a query as long as the embeddings of the index."""
        row = np.asarray(row, np.float32)
        if len(row) == self.dimension:
            return row
        cut = first_dimensions(row[np.newaxis], self.dimension, metric=self.metric)
        return np.asarray(cut[0], np.float32)


class _Waiting(NamedTuple):
    """A query that waits for its file."""

    source: _Source
    time: float
    embedding: NDArray[Any]


class QueryRecorder:
    """Writes the embeddings of queries to a folder, in a thread of its own.

    A query never waits for the disk. What cannot be written is lost, and so are the
    queries of the last minutes where the process is killed. Several processes may
    record in one folder.

    Args:
        folder: Where to write; it is made, for its owner alone.
        most_bytes: Size of the folder, at least 1,000,000; the oldest files are deleted
            first.
        seconds: From one file to the next, above 0.
        clock: Returns the seconds since 1970.

    Raises:
        ValueError: `most_bytes` is too small.
        OSError: The folder cannot be made.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        most_bytes: int = MOST_BYTES,
        seconds: float = 600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if most_bytes < _LEAST_BYTES:
            raise ValueError(
                f"`most_bytes` must be at least {_LEAST_BYTES}. "
                f"Received: most_bytes={most_bytes}."
            )
        self._folder = Path(folder)
        if not self._folder.is_dir():
            make_folder(self._folder)
            self._folder.chmod(0o700)
        remove_unfinished(self._folder)
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._clock = clock
        self._waiting: collections.deque[_Waiting] = collections.deque(
            maxlen=_MOST_WAITING
        )
        self._lock = threading.Lock()
        self._is_due, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="record", daemon=True)

    def keeper(self, index: Index) -> Callable[[NDArray[Any]], None]:
        """Return what keeps a query `[D]` of an index for the next file."""
        source = _Source(
            index.stats().model_fingerprint or "", index.dimension, index.metric
        )

        def keep(embedding: NDArray[Any]) -> None:
            with self._lock:
                self._waiting.append(_Waiting(source, self._clock(), embedding))
                is_due = len(self._waiting) >= _FILE_ROWS
            if is_due:
                self._is_due.set()

        return keep

    def write(self) -> None:
        """Write the queries that wait, and delete the oldest files."""
        while batch := self._taken():
            try:
                self._write(batch)
                self._delete_oldest()
            except OSError as error:
                _log.warning("%d queries were not recorded: %s", len(batch), error)

    def start(self) -> None:
        """Begin to write at intervals."""
        self._thread.start()

    def close(self) -> None:
        """Write what waits; a disk that hangs is not waited for."""
        self._end.set()
        self._is_due.set()
        self._thread.join(_CLOSE_SECONDS)

    def __enter__(self) -> Self:
        """Begin to write; the end of the block closes the record."""
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Close the record."""
        self.close()

    def _watch(self) -> None:
        while not self._end.is_set():
            self._is_due.wait(self._seconds)
            self._is_due.clear()
            try:
                self.write()
            except Exception:  # later queries can still be recorded
                _log.exception("Recording queries failed.")

    def _taken(self) -> list[_Waiting]:
        """Return the next queries of one model, as many as a file may have."""
        taken: list[_Waiting] = []
        with self._lock:
            while self._waiting and len(taken) < _FILE_ROWS:
                source = self._waiting[0].source
                most = self._most_bytes // _FILE_SHARE // (4 * source.dimension + 8)
                if taken and (source != taken[0].source or len(taken) >= most):
                    break
                taken.append(self._waiting.popleft())
        return taken

    def _write(self, batch: list[_Waiting]) -> None:
        source, first = batch[0].source, batch[0].time
        name = f"queries-{int(1000 * first):014d}-{secrets.token_hex(4)}.npz"
        with written(self._folder / name) as new, new.open("wb") as file:
            np.savez(
                file,
                embeddings=np.stack([source.cut(each.embedding) for each in batch]),
                times=np.array([each.time for each in batch]),
                fingerprint=np.array(source.fingerprint),
            )

    def _delete_oldest(self) -> None:
        sizes: dict[Path, int] = {}
        for file in sorted(self._folder.glob(_PATTERN)):
            with contextlib.suppress(FileNotFoundError):  # another process deleted it
                sizes[file] = file.stat().st_size
        total = sum(sizes.values())
        for place, (file, size) in enumerate(sizes.items()):
            if total <= self._most_bytes and len(sizes) - place <= _MOST_FILES:
                return
            file.unlink(missing_ok=True)
            total -= size


@dataclass(frozen=True)
class RecordedQueries:
    """Queries that were recorded.

    Attributes:
        embeddings: float32 `[Q, D]`, in the order of their times.
        times: Seconds since 1970, float64 `[Q]`.
        of_other_models: Queries that were left out, because the model that embedded
            them is not that of the index.
    """

    embeddings: NDArray[np.float32]
    times: NDArray[np.float64]
    of_other_models: int

    def between(self, since: float, until: float) -> NDArray[np.float32]:
        """Return the embeddings of a period, `since` in it and `until` not."""
        return self.embeddings[(self.times >= since) & (self.times < until)]


def read_queries(folder: str | PathLike[str], index: Index) -> RecordedQueries:
    """Read the queries that were recorded with the model of an index.

    Args:
        folder: Folder that a `QueryRecorder` wrote.
        index: The index.

    Raises:
        FileNotFoundError: The folder holds no recorded queries.
        ValueError: A file of it is damaged.
    """
    fingerprint = index.stats().model_fingerprint or ""
    rows = [np.zeros((0, index.dimension), np.float32)]
    times = [np.zeros(0)]
    others = 0
    files = sorted(Path(folder).glob(_PATTERN))
    if not files:
        raise FileNotFoundError(
            f"{shown(str(folder))} holds no recorded queries: `page --record-queries` "
            "writes them after some minutes."
        )
    for file in files:
        try:
            with (
                file.open("rb") as opened,
                np.load(opened, allow_pickle=False) as content,
            ):
                embeddings, own = content["embeddings"], content["times"]
                model = str(content["fingerprint"])
            is_whole = embeddings.ndim == 2 and own.shape == embeddings.shape[:1]
        except FileNotFoundError:  # deleted, to stay small
            continue
        except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{file} is damaged. Delete it. ({shortened(error)})"
            ) from error
        if not is_whole:
            raise ValueError(f"{file} is damaged. Delete it.")
        if model != fingerprint or embeddings.shape[1] != index.dimension:
            others += len(embeddings)
            continue
        rows.append(embeddings)
        times.append(own)
    all_times = np.concatenate(times)
    order = np.argsort(all_times, kind="stable")
    return RecordedQueries(np.concatenate(rows)[order], all_times[order], others)
