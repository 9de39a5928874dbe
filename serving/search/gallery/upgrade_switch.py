"""Switch an index to its new pair, or back, while nobody else changes it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tfdml.index import LocalIndex
from tfdml.versioned_folder import HeldFolder, LockedError, held

from .gallery import load_local_gallery
from .image_search import items_of
from .pair import QUERIES_FILE, Pair, kept_pair, pair_in
from .stored_images import STORED_IMAGE, StoredImages
from .upgrade_blocks import Pacing, parts_of
from .upgrade_folder import pause_wanted, staged_folder
from .upgrade_job import Job, state_of
from .upgrade_stage import columns_of, embed_changed, staged_state

_PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.05


def switch_to_staged(job: Job, pacing: Pacing) -> int:
    """Bring the new index up to date while nobody changes the old one, and switch.

    Args:
        job: The upgrade; the new index was staged.
        pacing: How to embed what came since.

    Returns:
        The number of images in the new index.

    Raises:
        LockedError: Another process goes on changing the index.
    """
    with changing_alone(job.folder) as own:
        staged = staged_folder(job.folder)
        known = staged_state(job.folder)
        index, _ = load_local_gallery(staged)
        with index:
            if known is None or known["state"] != state_of(job.folder):
                now, _ = load_local_gallery(job.folder)
                with now:
                    _catch_up(job, now, index, pacing)
            count = index.count()
        own.switch(staged)
    return count


def _catch_up(job: Job, now: LocalIndex, new: LocalIndex, pacing: Pacing) -> None:
    """Make the changes of the old index in the new one."""
    done, missing = embed_changed(job, now, pacing)
    new.remove([id_ for id_ in new.ids.tolist() if id_ not in now])
    late = set(missing)
    changed = [id_ for id_ in now.ids.tolist() if id_ in new and id_ in late]
    new.remove(changed)
    added = [i for i in now.ids.tolist() if i not in new and i in done.rows]
    if added:
        rows = done.embeddings[[done.rows[id_] for id_ in added]]
        new.add(rows, added, columns_of(now, added))
    _copy_attributes(now, new)


def _copy_attributes(now: LocalIndex, new: LocalIndex) -> None:
    for part in parts_of(new.ids.tolist(), 4096):
        pairs = zip(items_of(now, part), items_of(new, part), strict=True)
        ids = [one.id for one, other in pairs if one.attributes != other.attributes]
        if ids:
            names = {*now.stats().attributes, *new.stats().attributes}
            columns: dict[str, list[Any]] = dict.fromkeys(names, [None] * len(ids))
            new.update(ids, attributes=columns | columns_of(now, ids))


@dataclass(frozen=True)
class RollbackReport:
    """The result of a way back.

    Args:
        before: The pair that served until now, and is kept.
        after: The pair that serves now.
        missing: Ids of images that only the pair before has: they were added since.
    """

    before: Pair
    after: Pair
    missing: tuple[str, ...]


def roll_back(index_folder: str | PathLike[str]) -> RollbackReport:
    """Switch back to the pair that was kept, and keep the other one.

    Args:
        index_folder: Folder of the index.

    Raises:
        FileNotFoundError: No pair is kept.
        LockedError: Another process upgrades or changes the index.
    """
    folder = Path(index_folder)
    before = pair_in(folder)
    if kept_pair(folder) is None:
        raise FileNotFoundError(
            f"There is no pair to go back to in {folder}: none is kept."
        )
    with changing_alone(folder) as own:
        index, _ = load_local_gallery(folder)
        with index:
            ids = index.ids.tolist()
        (folder / QUERIES_FILE).unlink(missing_ok=True)
        own.swap()
    index, _ = load_local_gallery(folder)
    with index:
        missing = tuple(id_ for id_ in ids if id_ not in index)
        _remove_gone(index, folder)
    return RollbackReport(before, pair_in(folder), missing)


def _remove_gone(index: LocalIndex, folder: Path) -> None:
    """Remove images that users have removed since, with the file in the index."""
    if STORED_IMAGE not in index.stats().attributes:
        return
    stored = StoredImages(folder)
    gone = [
        item.id
        for part in parts_of(index.ids.tolist(), 4096)
        for item in items_of(index, part)
        if item.stored is not None and not stored.path(item.stored).exists()
    ]
    # An editable page that is back already removes none and shows that they are gone.
    with contextlib.suppress(LockedError):
        index.remove(gone)


def delete_kept(index_folder: str | PathLike[str]) -> Pair | None:
    """Delete the index of the pair that is kept.

    Returns:
        The pair; None if none was kept.

    Raises:
        LockedError: Another process changes the index.
    """
    kept = kept_pair(index_folder)
    with changing_alone(Path(index_folder)) as own:
        own.forget()
    return kept


@contextlib.contextmanager
def changing_alone(
    folder: Path,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[HeldFolder]:
    """Keep everybody else from changing an index; editable pages give way.

    Raises:
        LockedError: Another process goes on changing it.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(pause_wanted(folder))
        deadline = clock() + _PATIENCE_SECONDS
        while True:
            try:
                own = stack.enter_context(held(folder))
                break
            except LockedError as error:
                if clock() >= deadline:
                    raise LockedError(
                        f"{folder} has been changed by another process for "
                        f"{_PATIENCE_SECONDS:g} seconds. Nothing was switched: wait "
                        "for it, such as for `index add`, and run the command again."
                    ) from error
            sleep(_LOOK_SECONDS)
        yield own
