"""Build the new index of an upgrade beside the old one."""

import json
import shutil
from pathlib import Path
from typing import Any

from tfdml.files import written
from tfdml.index import LocalIndex
from tfdml.progress import Progress
from tfdml.versioned_folder import log_of, saved_data

from ...endpoint.models.calibration import calibration_of_model
from .gallery import Gallery, save_gallery
from .image_search import items_of
from .upgrade_blocks import (
    BlockWriter,
    Embedded,
    Pacing,
    not_embedded,
    parts_of,
    read_blocks,
)
from .upgrade_folder import staged_folder, upgrade_folder
from .upgrade_job import Job


def block_writer(job: Job, index: LocalIndex, pacing: Pacing) -> BlockWriter:
    """Return what embeds images of the old index, as it is now, with the new model."""
    return BlockWriter(job.folder, index, job.gallery, job.embedder, pacing)


def embed_changed(
    job: Job, index: LocalIndex, pacing: Pacing
) -> tuple[Embedded, list[str]]:
    """Embed what came or changed since the blocks were embedded.

    Args:
        job: The upgrade.
        index: The old index, as it is now.
        pacing: How to embed.

    Returns:
        All that is embedded, and the ids of what came or changed.

    Raises:
        UnreadableImageError: An image cannot be read, or has vanished.
    """
    done = read_blocks(job.folder)
    if missing := not_embedded(index, done.digests):
        block_writer(job, index, pacing).write_late(missing)
        done = read_blocks(job.folder)
    return done, missing


def stage(job: Job, done: Embedded, *, progress: bool) -> tuple[str, ...]:
    """Build the new index beside the old one, unless it is there already.

    Args:
        job: The upgrade.
        done: All images, embedded.
        progress: Show the progress on the standard error.

    Returns:
        Why images were left out, one text per image.

    Raises:
        ValueError: No image can be read.
    """
    there = job.index.ids.tolist()
    skipped = tuple(done.skipped[id_] for id_ in there if id_ in done.skipped)
    known = staged_state(job.folder)
    if known is not None and known["state"] == job.state:
        return skipped
    ids = [id_ for id_ in there if id_ in done.rows]
    if not ids:
        raise ValueError(
            f"None of the {len(there)} images can be read. The first: {skipped[:1]}."
        )
    staged = staged_folder(job.folder)
    (upgrade_folder(job.folder) / "staged.json").unlink(missing_ok=True)
    shutil.rmtree(staged, ignore_errors=True)
    with Progress("building the index", shown=progress):
        index = LocalIndex.build(
            done.embeddings[[done.rows[id_] for id_ in ids]],
            ids=ids,
            attributes=columns_of(job.index, ids),
            metric=job.index.metric,
            model_fingerprint=job.after.fingerprint,
            **_settings_of(job.index),
        )
        with index:
            save_gallery(staged, index, _gallery(job))
    with written(upgrade_folder(job.folder) / "staged.json") as new:
        new.write_text(json.dumps({"state": job.state}), encoding="utf-8")
    return skipped


def _gallery(job: Job) -> Gallery:
    is_cut = job.index.dimension != job.index.embedding_dimension
    return Gallery(
        job.gallery.root,
        job.after.name,
        job.after.version,
        None if is_cut else calibration_of_model(job.version.folder),
    )


def _settings_of(index: LocalIndex) -> dict[str, Any]:
    """Return the options with which an index was built."""
    details = index.stats().details
    target, codes = details["target"], details["codes"]
    options: dict[str, Any] = {
        "target_recall": target and target["value"],
        "engine": details["wanted_engine"],
    }
    if index.dimension != index.embedding_dimension:
        options["dimensions"] = index.dimension
    if codes is not None:
        options |= {"codes": codes["kind"], "code_dimensions": codes["dimensions"]}
    return options


def columns_of(index: LocalIndex, ids: list[str]) -> dict[str, list[Any]]:
    """Return the attributes of images by name, as `LocalIndex.build` takes them."""
    names = list(index.stats().attributes)
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for part in parts_of(ids, 4096):
        for item in items_of(index, part):
            for name in names:
                columns[name].append(item.attributes.get(name))
    return columns


def staged_state(folder: Path) -> dict[str, Any] | None:
    """Return of what state of the old index the new one is; None if it is not there."""
    try:
        text = (upgrade_folder(folder) / "staged.json").read_bytes()
        data = saved_data(staged_folder(folder))
        if not (data.is_dir() and log_of(data).exists()):
            return None  # a switch was killed while it moved them
        found: dict[str, Any] = json.loads(text)
        return found
    except (OSError, ValueError):
        return None
