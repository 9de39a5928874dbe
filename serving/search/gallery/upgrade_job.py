"""Begin an upgrade, or go on with the one that was begun: what becomes of what."""

from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.export import SavedEmbedder
from tfdml.files import locked, make_folder, written
from tfdml.index import LocalIndex
from tfdml.messages import shown
from tfdml.versioned_folder import IndexFileError, log_of, saved_data

from ...endpoint.models.saved_model import (
    ModelVersion,
    find_model_version,
    model_fingerprint,
)
from ...storage.remote_image import place_of
from .gallery import Gallery, load_local_gallery
from .pair import Pair, pair_in
from .upgrade_folder import read_job, remove_upgrade, upgrade_folder, write_job

_PREPARE = "prepare.lock"


@dataclass(frozen=True)
class Job:
    """An upgrade that goes on.

    Attributes:
        folder: Folder of the index.
        index: The old index, as it is now.
        gallery: Where its images are.
        version: The new model.
        before: The old pair.
        after: The new one.
        ids: The images at the beginning, in order.
        state: What changes with each change of the old index, as it is now.
    """

    folder: Path
    index: LocalIndex
    gallery: Gallery
    version: ModelVersion
    before: Pair
    after: Pair
    ids: list[str]
    state: list[Any]

    @cached_property
    def embedder(self) -> SavedEmbedder:
        """Load the new model, once, and check that it may replace the old one.

        Raises:
            ValueError: It compares embeddings otherwise, or they are too short for the
                index; or it cannot be loaded.
        """
        embedder = SavedEmbedder(self.version.folder)
        if embedder.metric != self.index.metric:
            raise ValueError(
                f"`model` must compare embeddings by {self.index.metric}, as the index "
                f"does. Received: {shown(str(self.version.folder))}, which compares by "
                f"{embedder.metric}. Build another index with `index build`."
            )
        kept = self.index.dimension
        is_cut = kept != self.index.embedding_dimension
        if is_cut and embedder.dimension is not None and embedder.dimension < kept:
            raise ValueError(
                f"`model` must return embeddings of at least {kept} numbers, of which "
                "the index keeps the first. Received: "
                f"{shown(str(self.version.folder))}, of dimension "
                f"{embedder.dimension}. Build another index."
            )
        return embedder


def prepared(
    index_folder: str | PathLike[str],
    model: str | PathLike[str],
    images: str | PathLike[str] | None,
) -> Job:
    """Begin an upgrade, or return the one that was begun with the same model.

    Args:
        index_folder: Folder of the index.
        model: The new model: folder of a version, or base path, of which the latest is
            taken.
        images: Folder of the images, if they were moved.

    Raises:
        FileNotFoundError: There is no index or no model.
        ValueError: The model cannot take the place of the old one, or another upgrade
            is unfinished.
    """
    folder = Path(index_folder)
    version = find_model_version(model)
    fingerprint = model_fingerprint(version.folder)
    state = state_of(folder)
    index, gallery = load_local_gallery(folder)
    if images is not None:
        gallery = replace(gallery, root=place_of(images))
    before = Pair.of(index, gallery)
    after = Pair(version.name, version.version, fingerprint, fingerprint)
    _check(before, after)
    make_folder(upgrade_folder(folder))
    path = upgrade_folder(folder) / _PREPARE
    path.touch()
    with locked(path, wait=True):
        job = read_job(folder)
        if job is None:
            ids = index.ids.tolist()
            _write_ids(folder, ids)
            about = {"before": before, "after": after, "images": len(ids)}
            write_job(folder, {"format": 1, **about})
        else:
            _check_same(job, before, after)
            ids = _read_ids(folder)
    return Job(folder, index, gallery, version, before, after, ids, state)


def state_of(index_folder: Path) -> list[Any]:
    """Return what changes with each change of the index in a folder."""
    try:
        data = saved_data(index_folder)
        return [data.name, log_of(data).stat().st_size]
    except (IndexFileError, FileNotFoundError):  # whoever loads it says what is wrong
        return []


def clear_finished(index_folder: Path) -> None:
    """Remove the remains of an upgrade that was killed after the switch."""
    job = read_job(index_folder)
    if job is not None and pair_of_job(job, "after") == pair_in(index_folder):
        remove_upgrade(index_folder)


def _check(before: Pair, after: Pair) -> None:
    if after.fingerprint == before.fingerprint:
        raise ValueError(
            f"`model` must be another model than the one of the index, {before}. "
            f"Received: {after}, the same weights: there is nothing to upgrade."
        )
    if after.name != before.name or after.version == before.version:
        raise ValueError(
            f"`model` must be another version of the model {shown(before.name)} than "
            f"version {before.version}, so that an endpoint can serve both. Received: "
            f"version {after.version} of {shown(after.name)}. Export or copy it to "
            f"{before.name}/{before.version + 1}."
        )


def _check_same(job: dict[str, Any], before: Pair, after: Pair) -> None:
    if pair_of_job(job, "after") != after:
        raise ValueError(
            f"The index is being upgraded to {pair_of_job(job, 'after')}. Go on with "
            f"that model, or end the upgrade with `--cancel`. Received: {after}."
        )
    if pair_of_job(job, "before") != before:
        raise ValueError(
            f"The upgrade began from {pair_of_job(job, 'before')}, the index is now "
            f"that of {before}. End the upgrade with `--cancel`, and begin again."
        )


def pair_of_job(job: dict[str, Any], name: str) -> Pair:
    """Return the pair "before" or "after" of an upgrade.

    Raises:
        ValueError: The upgrade is damaged.
    """
    try:
        return Pair(*job[name])
    except (KeyError, TypeError) as error:
        raise ValueError(
            "The upgrade of the index is damaged. End it with `--cancel`."
        ) from error


def _write_ids(folder: Path, ids: list[str]) -> None:
    text = np.frombuffer("\0".join(ids).encode("utf-8", "surrogatepass"), np.uint8)
    path = upgrade_folder(folder) / "ids.npy"
    with written(path) as new, new.open("wb") as file:
        np.save(file, text, allow_pickle=False)


def _read_ids(folder: Path) -> list[str]:
    text = np.load(upgrade_folder(folder) / "ids.npy", allow_pickle=False).tobytes()
    return text.decode("utf-8", "surrogatepass").split("\0") if text else []
