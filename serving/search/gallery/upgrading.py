"""Upgrade a live gallery to a new model: embed it again, measure it, and switch.

The old pair of model and index serves until one rename switches to the new one, and is
kept for a way back. Killed at any moment, an upgrade goes on where it was.
"""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from tfdml.export import SavedEmbedder
from tfdml.progress import Progress

from ...client import Credentials, EndpointClient
from ...endpoint.models.saved_model import find_version_folders, model_fingerprint
from .gallery import load_local_gallery
from .pair import QUERIES_FILE, Pair, kept_pair, pair_in
from .shards import Part
from .upgrade_blocks import BLOCK, Pacing, block_names, is_written
from .upgrade_compatible import search_old_gallery
from .upgrade_folder import (
    at_work,
    check_no_shard_runs,
    read_job,
    remove_upgrade,
    staged_folder,
    upgrade_folder,
)
from .upgrade_job import Job, clear_finished, pair_of_job, prepared
from .upgrade_measure import Comparison, Side, compare_by_images, compare_by_items
from .upgrade_stage import block_writer, embed_changed, stage, staged_state
from .upgrade_switch import switch_to_staged

_LOCK = "lock"


@dataclass(frozen=True)
class UpgradeReport:
    """The result of an upgrade.

    Args:
        before: The old pair.
        after: The new pair.
        images: Number of images in the new index.
        skipped: Why images were left out, one text per image.
        dimensions: Of the old index, and of the new one.
        by_items: What images of the gallery find in both; None if too few are there.
        by_images: What the images of a folder find in both; None without a folder.
        is_switched: Whether the new pair serves now.
        why_not: Why it does not; "" if nothing is wrong.
    """

    before: Pair
    after: Pair
    images: int
    skipped: tuple[str, ...]
    dimensions: tuple[int, int]
    by_items: Comparison | None
    by_images: Comparison | None
    is_switched: bool
    why_not: str = ""


def embed_upgrade_shard(
    index_folder: str | PathLike[str],
    model: str | PathLike[str],
    part: Part,
    *,
    images: str | PathLike[str] | None = None,
    pacing: Pacing | None = None,
) -> int:
    """Embed one part of a gallery for its upgrade; what is done already is left out.

    Args:
        index_folder: Folder that `tfdml index build` wrote.
        model: The new model, an exported version.
        part: Which part of the blocks, such as `Part(2, 8)`.
        images: Folder of the images, if they were moved.
        pacing: How to embed.

    Returns:
        The number of images that were embedded.

    Raises:
        LockedError: Another process embeds this part.
        UnreadableImageError, FileNotFoundError, ValueError: As `upgrade`.
    """
    name = f"shard-{part.number}-of-{part.count}.lock"
    with at_work(index_folder, name, f"embedding the shard {part} of an upgrade"):
        job = prepared(index_folder, model, images)
        with job.index:
            return _embed(job, part, Pacing() if pacing is None else pacing)


def upgrade(
    index_folder: str | PathLike[str],
    model: str | PathLike[str],
    *,
    images: str | PathLike[str] | None = None,
    queries: str | PathLike[str] | None = None,
    endpoint: str | None = None,
    credentials: Credentials | None = None,
    largest_loss: float = 0.02,
    switch: bool = True,
    compatible: bool = False,
    pacing: Pacing | None = None,
) -> UpgradeReport:
    """Upgrade a gallery to a new model, and keep the old pair of model and index.

    Args:
        index_folder: Folder that `tfdml index build` wrote; pages may serve it.
        model: The new model: folder of an exported version, or base path, of which the
            latest is taken. It is another version of the model of the index.
        images: Folder of the images, if they were moved.
        queries: Folder of images, class/image, to measure with besides, such as the
            test images of a run. The old model must lie beside the new one.
        endpoint: Address of an endpoint that must serve the new model before the
            switch.
        credentials: What the endpoint asks of its clients.
        largest_loss: Switch only if Precision@1 falls by no more, from 0 to 1.
        switch: Whether to switch at the end.
        compatible: Let queries of the new model search the old gallery from now on, if
            they find as much on images of the gallery.
        pacing: How to embed.

    Returns:
        The report.

    Raises:
        LockedError: Another process upgrades the index, or changes it all the time.
        UnreadableImageError: An image has vanished or cannot be read.
        FileNotFoundError: There is no index or no model.
        ValueError: The model cannot take the place of the old one, or another upgrade
            is unfinished.
        EndpointError: The endpoint does not serve the new model.
    """
    if not 0 <= largest_loss <= 1:
        raise ValueError(
            "`largest_loss` must be from 0 to 1. "
            f"Received: largest_loss={largest_loss}."
        )
    pacing = Pacing() if pacing is None else pacing
    folder = Path(index_folder)
    pair_in(folder)  # before a folder is made in it
    with at_work(folder, _LOCK, "upgrading the index"):
        clear_finished(folder)
        job = prepared(folder, model, images)
        with job.index:
            check_no_shard_runs(folder)
            if compatible and not (folder / QUERIES_FILE).exists():
                if endpoint is not None:
                    _check_endpoint(endpoint, credentials, job.after)
                search_old_gallery(job, pacing, largest_loss)
            _embed(job, Part(), pacing)
            # Not named: all embeddings, which are not needed after the stage.
            skipped = stage(
                job,
                embed_changed(job, job.index, pacing)[0],
                progress=pacing.progress,
            )
            new_index, new_gallery = load_local_gallery(staged_folder(folder))
            with new_index:
                old = Side(job.index, job.gallery)
                new = Side(new_index, new_gallery)
                by_items = compare_by_items(old, new)
                by_images = None
                if queries is not None:
                    by_images = _by_images(job, old, new, Path(queries), pacing)
                dimensions = job.index.dimension, new_index.dimension
                count = new_index.count()
        why_not = _why_not((by_items, by_images), largest_loss)
        if switch and not why_not:
            if endpoint is not None:
                _check_endpoint(endpoint, credentials, job.after)
            count = switch_to_staged(job, pacing)
            remove_upgrade(folder)
        return UpgradeReport(
            job.before,
            job.after,
            count,
            skipped,
            dimensions,
            by_items,
            by_images,
            switch and not why_not,
            why_not,
        )


def cancel(index_folder: str | PathLike[str]) -> bool:
    """End an unfinished upgrade and remove what it has done.

    Returns:
        Whether there was one.

    Raises:
        LockedError: A process is at work on it.
    """
    folder = Path(index_folder)
    pair_in(folder)
    if not upgrade_folder(folder).exists():
        return False
    with at_work(folder, _LOCK, "ending the upgrade"):
        check_no_shard_runs(folder)
        remove_upgrade(folder)
    return True


@dataclass(frozen=True)
class UpgradeStatus:
    """The pairs of an index, and how far an upgrade is.

    Args:
        used: The pair that serves.
        kept: The pair that is kept for a way back.
        next: The pair that an unfinished upgrade makes.
        blocks: Blocks that are embedded, and all of them.
        is_staged: Whether the new index is complete.
    """

    used: Pair
    kept: Pair | None
    next: Pair | None = None
    blocks: tuple[int, int] = (0, 0)
    is_staged: bool = False


def status(index_folder: str | PathLike[str]) -> UpgradeStatus:
    """Return the pairs of an index, and how far an upgrade is."""
    folder = Path(index_folder)
    used, kept = pair_in(folder), kept_pair(folder)
    job = read_job(folder)
    if job is None:
        return UpgradeStatus(used, kept)
    names = block_names(int(job["images"]))
    done = sum(is_written(folder, name) for name in names)
    is_staged = staged_state(folder) is not None
    return UpgradeStatus(
        used, kept, pair_of_job(job, "after"), (done, len(names)), is_staged
    )


def _embed(job: Job, part: Part, pacing: Pacing) -> int:
    """Embed the blocks of one part that are not done yet; returns the images."""
    names = block_names(len(job.ids))
    own = [
        n for n in part.positions(len(names)) if not is_written(job.folder, names[n])
    ]
    count = 0
    if own:
        writer = block_writer(job, job.index, pacing)
        with Progress("embedding", len(own) * BLOCK, shown=pacing.progress) as bar:
            for number in own:
                ids = job.ids[number * BLOCK : (number + 1) * BLOCK]
                writer.write(names[number], ids)
                count += len(ids)
                bar.update(BLOCK)
    return count


def _why_not(found: tuple[Comparison | None, ...], largest_loss: float) -> str:
    losses = [each.loss for each in found if each is not None and each.loss is not None]
    if losses and max(losses) > largest_loss:
        return (
            f"Precision@1 falls by {max(losses):.4f}, more than {largest_loss:g}. The "
            "new index is ready: to switch nevertheless, run the command again with a "
            "larger `--largest-loss`; to give it up, with `--cancel`."
        )
    return ""


def _by_images(
    job: Job, old: Side, new: Side, folder: Path, pacing: Pacing
) -> Comparison:
    base = job.version.folder.parent
    before = find_version_folders(base).get(job.before.version)
    if before is None or model_fingerprint(before) != job.before.fingerprint:
        raise ValueError(
            f"`queries` needs the old model beside the new one: {base} must hold "
            f"{job.before}."
        )
    return compare_by_images(
        old,
        new,
        [SavedEmbedder(before), job.embedder],
        folder,
        batch_size=pacing.batch_size,
        max_pixels=pacing.max_pixels,
    )


def _check_endpoint(url: str, credentials: Credentials | None, pair: Pair) -> None:
    with (
        EndpointClient(url, credentials=credentials) as client,
        client.at_version(pair.version, fingerprint=pair.fingerprint) as own,
    ):
        own.check()
