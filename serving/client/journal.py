"""Keep the embeddings of a run, so that a run that was stopped can continue.

A journal is a file of JSON lines: the first says what is embedded and with what; each
further line holds an image and its stamp, which changes when the file does. A
line that was not finished when a run ended is dropped.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tfdml.files import Lock
from tfdml.messages import cut, shown


def digest_of_list(paths: Iterable[str]) -> str:
    """Compute a SHA-256 that differs between two lists of images."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.encode() + b"\0")
    return digest.hexdigest()


class Journal:
    """The embeddings of a run so far. A context manager: its end closes the file.

    One process at a time may have a journal open. An existing journal is continued.

    Args:
        file: Where it is, or goes.
        job: What is embedded and with what; values of JSON.
        paths: All images of the job, in the order in which they are added.
        stamps: For each of them, numbers that change when it does.
        remedy: What to do if the file cannot be continued.

    Raises:
        ValueError: The file is the journal of another job or not a journal, or an image
            in it has changed.
        OSError: It cannot be read or written, or another process has it open.
    """

    def __init__(
        self,
        file: str | PathLike[str],
        job: Mapping[str, Any],
        paths: Sequence[str],
        stamps: Sequence[list[int]],
        *,
        remedy: str,
    ) -> None:
        self._paths, self._stamps = paths, stamps
        self._rows: list[NDArray[np.float32] | None] = []
        self._reasons: dict[int, str] = {}
        self._path = Path(file)
        self._path.touch()
        try:
            self._lock = Lock(self._path)
        except BlockingIOError as error:
            raise BlockingIOError(
                f"Another process is writing {file}. Wait for it, or end it."
            ) from error
        self._file = self._path.open("a+b")
        try:
            self._read(json.dumps(job, sort_keys=True), remedy)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._lock.close()

    def __len__(self) -> int:
        """Count the images that are in it, those without an embedding too."""
        return len(self._rows)

    def add(self, embedding: NDArray[np.float32]) -> None:
        """Add the embedding of the next image, `[dimension]`."""
        self._append({"embedding": base64.b64encode(embedding.tobytes()).decode()})
        self._rows.append(embedding)

    def leave_out(self, reason: str) -> None:
        """Add, in the place of the next image's embedding, why it has none."""
        self._append({"reason": reason})
        self._reasons[len(self._rows)] = reason
        self._rows.append(None)

    @property
    def embedded(self) -> list[str]:
        """The images that have an embedding."""
        pairs = zip(self._paths, self._rows, strict=False)
        return [path for path, row in pairs if row is not None]

    @property
    def embeddings(self) -> NDArray[np.float32]:
        """Their embeddings, `[len(embedded), dimension]`; `[0, 0]` where none is."""
        rows = [row for row in self._rows if row is not None]
        return np.stack(rows) if rows else np.zeros((0, 0), np.float32)

    @property
    def skipped(self) -> dict[str, str]:
        """Why an image has none, by its path."""
        return {self._paths[place]: reason for place, reason in self._reasons.items()}

    def _append(self, result: dict[str, str]) -> None:
        place = len(self._rows)
        entry = {"path": self._paths[place], "stamp": self._stamps[place], **result}
        self._file.write(json.dumps(entry).encode() + b"\n")
        # In the hands of the system, a line outlives the process.
        self._file.flush()

    def _read(self, job: str, remedy: str) -> None:
        def refusal(reason: str) -> ValueError:
            return ValueError(f"{cut(self._path)} {reason}. {remedy}")

        self._file.seek(0)
        first = self._file.readline()
        own = job.encode() + b"\n"
        # Anything else without an end may be a file of somebody else.
        if len(first) < len(own) and own.startswith(first):
            self._file.truncate(0)
            self._file.write(own)
            self._file.flush()
            return
        if first != own:
            raise refusal("was begun with other images or another model")
        end = self._file.tell()
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            end += len(line)
            try:
                changed = self._take(json.loads(line))
            except (IndexError, KeyError, TypeError, ValueError) as error:
                raise refusal("is damaged") from error
            if changed is not None:
                raise refusal(f"has {shown(changed)}, which has changed since then")
        self._file.truncate(end)

    def _take(self, entry: dict[str, Any]) -> str | None:
        """Take an entry; returns its image if that has changed."""
        place = len(self._rows)
        if entry["path"] != self._paths[place]:
            raise ValueError(f"{shown(entry['path'])} is not image {place}")
        if "embedding" in entry:
            content = base64.b64decode(entry["embedding"], validate=True)
            self._rows.append(np.frombuffer(content, np.float32))
        else:
            self._reasons[place] = entry["reason"]
            self._rows.append(None)
        is_same: bool = entry["stamp"] == self._stamps[place]
        return None if is_same else self._paths[place]
