"""Keep the folder of an index: what was saved, and the log of changes since."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tfdml.index.storage import (
    Change,
    ChangeLog,
    LogError,
    create_log,
    read_log,
    start_of,
)
from tfdml.messages import cut
from tfdml.versioned_folder import IndexFileError, log_of, saved_data, write_version

Apply = Callable[[Change], None]
Replay = Callable[[Iterable[Change]], None]


class SavedFolder:
    """The folder of an index, if it has one, and the log of its changes."""

    def __init__(self) -> None:
        self._data: Path | None = None
        self._end = 0
        self._log: ChangeLog | None = None
        # Data and end of a save that failed, perhaps after the data became valid.
        self._unsure: tuple[Path, int] | None = None

    @property
    def folder(self) -> str | None:
        """The folder; None until the index is saved."""
        return None if self._data is None else str(self._data.parent)

    @property
    def log_bytes(self) -> int:
        """The size of the log, without the rest of an unfinished change."""
        return self._end

    def save(
        self,
        folder: str | os.PathLike[str],
        description: dict[str, Any],
        write: Callable[[Path], None],
    ) -> None:
        """Write an index, and start a new log; see `write_version`."""
        end = 0

        def write_all(data: Path) -> None:
            nonlocal end
            write(data)
            end = create_log(log_of(data), data.name)
            self._unsure = data, end

        own = None if self._log is None else self._log.fileno()
        data = write_version(Path(folder).absolute(), description, write_all, own=own)
        self._data, self._end, self._unsure = data, end, None
        self.close()

    def opened(self, data: Path, replay: Replay) -> None:
        """Attach a folder that the index was read from, and apply the changes since.

        Raises:
            IndexFileError: The log is damaged.
        """
        self._data = data.absolute()
        # Where the first change goes if there is none to read.
        self._end = start_of(data.name)
        self._catch_up(replay)

    def _catch_up(self, replay: Replay) -> None:
        if self._data is None:
            return
        try:
            replay(self._changes_since(self._data))
        except FileNotFoundError as error:
            raise IndexFileError(
                f"The index is damaged: {cut(log_of(self._data))} is missing."
            ) from error
        except LogError as error:
            raise IndexFileError(f"The index is damaged: {error}") from error

    def _changes_since(self, data: Path) -> Iterator[Change]:
        for change, end in read_log(log_of(data), data.name, self._end):
            yield change
            self._end = end  # whoever asks for the next one has applied this one

    def catch_up(self, folder: str | os.PathLike[str], replay: Replay) -> None:
        """Lock the folder before a save, if it is the one of the index; see `lock`.

        Otherwise, what others have added to it since it was loaded would be lost. A
        folder that no longer holds an index belongs to nobody and is overwritten.

        Raises:
            IndexFileError: Another index was saved to the folder meanwhile.
            LockedError: Somebody else is changing it.
            OSError: The log cannot be written.
        """
        if self._data is None or not _is_same(Path(folder), self._data.parent):
            return
        try:
            there = saved_data(folder)
        except IndexFileError:
            return
        if self._unsure is not None and there.name == self._unsure[0].name:
            self.close()
            self._data, self._end = self._unsure
        if there.name != self._data.name:
            raise IndexFileError(
                f"The index in {cut(self.folder)} was replaced by another process, or "
                "by another index of this one, since it was loaded or saved. Load it "
                "again, or save to another folder."
            )
        self.lock(replay)

    def lock(self, replay: Replay) -> None:
        """Keep everybody else from changing the folder from now on.

        Changes that others have made since the index was loaded are applied here too.

        Raises:
            LockedError: Somebody else is changing it.
            IndexFileError: The index was replaced, moved or removed.
            OSError: The log cannot be written.
        """
        if self._data is None:
            return
        if self._log is not None:
            try:
                self._log.check(self._end)
                # Such as by a backup that was copied over it, file by file: it does not
                # read this log.
                if saved_data(self._data.parent).name != self._data.name:
                    raise LogError("another index is in its place")
            except (LogError, IndexFileError) as error:
                raise self._gone(
                    "Save it again to keep it, to another folder if this one exists."
                ) from error
            return
        gone = self._gone("Load it again.")
        try:
            log = ChangeLog(log_of(self._data), self._data.name)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise gone from error
        try:
            if saved_data(self._data.parent).name != self._data.name:
                raise gone
            if log.size() < self._end:  # an earlier copy of the folder
                raise gone
            self._catch_up(replay)
            log.cut(self._end)  # the rest of a change whose process was killed
        except BaseException:
            log.close()
            raise
        self._log = log

    def _gone(self, remedy: str) -> IndexFileError:
        return IndexFileError(
            f"The index in {cut(self.folder)} was replaced, moved or removed since it "
            f"was loaded or saved. {remedy}"
        )

    def make(self, change: Change, apply: Apply, made: Callable[[], bool]) -> None:
        """Make a change on the disk and then in memory, or on an error, in neither.

        Args:
            change: The change; `lock` was called before.
            apply: Makes it in memory.
            made: Returns whether it was made there. An interrupt may come at any time.

        Raises:
            OSError: It could not be written.
        """
        if self._log is None:
            apply(change)
            return
        try:
            end = self._log.append(change, self._end)
            apply(change)
            self._end = end
        except BaseException:
            if made():
                self._end = end
            else:
                self._take_back()
            raise

    def _take_back(self) -> None:
        if self._log is None:
            return
        try:
            self._log.cut(self._end)
        except OSError:
            # It is unknown what is on the disk: the next change reads it, or fails too.
            self.close()

    def close(self) -> None:
        """Release the log."""
        if self._log is not None:
            log, self._log = self._log, None
            log.close()


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them was removed or moved
        return False
