"""Keep what an unfinished upgrade has done, and who is at work, in `INDEX/upgrade`.

job.json          what becomes of what: both models, the number of images
ids.npy           the images at the beginning, in order
blocks/N.npz      their embeddings by the new model, written whole or not at all
lock, shard-*     locked by the process that upgrades, and by those of the shards
pause             locked while nobody else may change the gallery
next/             the new index, until the switch
"""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

from tfdml.files import Lock, make_folder, sync, written
from tfdml.messages import cut
from tfdml.versioned_folder import LockedError

_FOLDER = "upgrade"
_PAUSE = "pause"


def upgrade_folder(index_folder: str | PathLike[str]) -> Path:
    """Return where the upgrade of an index keeps its files; it may be missing."""
    return Path(index_folder) / _FOLDER


def staged_folder(index_folder: str | PathLike[str]) -> Path:
    """Return where the new index is until the switch."""
    return upgrade_folder(index_folder) / "next"


@contextmanager
def at_work(index_folder: str | PathLike[str], name: str, job: str) -> Iterator[None]:
    """Be the one process that does a job of an upgrade.

    Args:
        index_folder: Folder of the index.
        name: Name of the lock.
        job: What the process does, for whoever comes second.

    Raises:
        LockedError: Another process does it; the message says which one.
    """
    folder = upgrade_folder(index_folder)
    make_folder(folder)
    path = folder / name
    with ExitStack() as stack:
        stack.callback(_lock_or_refuse(path).close)
        about = {"job": job, "process": os.getpid(), "host": socket.gethostname()}
        path.write_text(json.dumps(about), encoding="utf-8")
        stack.callback(_tidy, folder, path)
        yield


def _tidy(folder: Path, lock: Path) -> None:
    """Remove a lock, and the folder where there is no upgrade."""
    with suppress(OSError):  # Windows removes no open file
        lock.unlink()
        if not (folder / "job.json").exists():
            (folder / "prepare.lock").unlink(missing_ok=True)
            folder.rmdir()


def check_no_shard_runs(index_folder: str | PathLike[str]) -> None:
    """Check that no process embeds a shard.

    Raises:
        LockedError: One does; the message says which one.
    """
    for path in sorted(upgrade_folder(index_folder).glob("shard-*.lock")):
        _lock_or_refuse(path).close()


@contextmanager
def pause_wanted(index_folder: str | PathLike[str]) -> Iterator[None]:
    """Ask pages that may change the gallery to leave it unchanged in the block."""
    folder = upgrade_folder(index_folder)
    is_new = not folder.exists()
    make_folder(folder)
    path = folder / _PAUSE
    path.touch()
    lock = Lock(path, wait=True)  # a page that looks holds it for a moment
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        lock.close()
        if is_new:
            with suppress(OSError):  # it is not empty
                folder.rmdir()


def is_pause_wanted(index_folder: str | PathLike[str]) -> bool:
    """Return whether a living process asks that the gallery be left unchanged."""
    path = upgrade_folder(index_folder) / _PAUSE
    try:
        Lock(path).close()
    except BlockingIOError:
        return True
    except OSError:  # it is not there
        return False
    return False  # its process was killed


def write_job(index_folder: str | PathLike[str], job: dict[str, Any]) -> None:
    """Write what the upgrade is, whole or not at all."""
    path = upgrade_folder(index_folder) / "job.json"
    with written(path) as new:
        new.write_text(json.dumps(job, indent=2) + "\n", encoding="utf-8")


def read_job(index_folder: str | PathLike[str]) -> dict[str, Any] | None:
    """Return what the unfinished upgrade is; None if there is none.

    Raises:
        ValueError: The file is damaged.
    """
    path = upgrade_folder(index_folder) / "job.json"
    try:
        job = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(
            f"{cut(path)} is damaged: it is not JSON. End the upgrade with `--cancel`."
        ) from error
    if not isinstance(job, dict) or job.get("format") != 1:
        raise ValueError(
            f"{cut(path)} was written by another version of tfdml. End the upgrade "
            "with `--cancel`."
        )
    return job


def remove_upgrade(index_folder: str | PathLike[str]) -> None:
    """Remove what an upgrade has left; its process must hold the lock."""
    folder = upgrade_folder(index_folder)
    # First what makes it an upgrade: a kill leaves nothing that is taken for one.
    (folder / "job.json").unlink(missing_ok=True)
    sync(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _lock_or_refuse(path: Path) -> Lock:
    path.touch()
    try:
        return Lock(path)
    except BlockingIOError:
        raise LockedError(f"{_holder(path)} Wait for it, or end it.") from None


def _holder(path: Path) -> str:
    try:
        about = json.loads(path.read_bytes())
        return (
            f"The process {about['process']} on {about['host']} is at work: "
            f"{about['job']}."
        )
    except (OSError, ValueError, KeyError, TypeError):
        return f"Another process is at work: it holds {cut(path)}."
