"""Building a gallery: a folder of pictures becomes an index that can be searched.

A whole build is the one shard of itself: `embed_shard` and `merge_shards` do what
`index_images` does, in two steps and with a file between them.
"""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from os import PathLike
from pathlib import Path

import numpy as np
from tqdm import tqdm

from serving.export.calibration import calibration_of_model
from serving.models.saved_model import find_model_version, model_fingerprint
from serving.search.gallery import Gallery, read_image_list, save_gallery
from serving.search.index_report import IndexReport, ShardReport
from serving.search.shards import (
    Job,
    Part,
    Shard,
    check_shard_folder,
    digest_of_list,
    read_shards,
    save_shard,
)
from tfdml.images import (
    UnreadableImageError,
    list_images,
    read_image,
)
from tfdml.index import ScannIndex
from tfdml.saved_embedder import SavedEmbedder
from tfdml.views import View

__all__ = ["embed_shard", "index_images", "merge_shards"]

_BATCHES_AHEAD = 2
_LENGTH_TOLERANCE = 1e-3


def index_images(
    images_folder: str | PathLike[str],
    index_folder: str | PathLike[str],
    model: str | PathLike[str],
    *,
    only: str | PathLike[str] | None = None,
    batch_size: int = 64,
    skip_unreadable: bool = False,
) -> IndexReport:
    """Embed a folder of pictures and save them as an index that can be searched.

    An index that is already in `index_folder` is replaced when, and only when, the
    new one is complete.

    Args:
        images_folder: Folder of pictures. The first folder below it is the class of
            a picture; pictures right in it have none.
        index_folder: Folder to write to; made where missing.
        model: Base path of the exported model (its latest version is used), or the
            folder of one version.
        only: Text file with the paths to take, one a line, relative to
            `images_folder`; without it, all pictures are taken.
        batch_size: Pictures in one run of the model, at least 1.
        skip_unreadable: Leave broken pictures out and list them in the report. By
            default the first one ends the build.

    Returns:
        The report; as text it is a summary.

    Raises:
        UnreadableImageError: A file is no picture; the message names it and the
            reason.
        NotADirectoryError, FileNotFoundError: A folder or file is missing.
        ValueError: There is no picture, or the model does not suit.
    """
    shard = _embed(
        images_folder,
        model,
        Part(),
        only=only,
        batch_size=batch_size,
        skip_unreadable=skip_unreadable,
    )
    return _build(index_folder, shard)


def embed_shard(
    images_folder: str | PathLike[str],
    shard_folder: str | PathLike[str],
    model: str | PathLike[str],
    part: Part,
    *,
    only: str | PathLike[str] | None = None,
    batch_size: int = 64,
    skip_unreadable: bool = False,
) -> ShardReport:
    """Embed one part of a folder of pictures and save it, to be merged with the others.

    A shard that is already in `shard_folder` is replaced when, and only when, the new
    one is complete.

    Args:
        images_folder: See `index_images`, as of the other arguments.
        shard_folder: Folder to write to, one for each shard; made where missing.
        model: The exported model.
        part: Which part, such as `Part(2, 8)`: every 8th picture, from the second on.
        only: Text file with the paths to take.
        batch_size: Pictures in one run of the model, at least 1.
        skip_unreadable: Leave broken pictures out and list them in the report.

    Returns:
        The report; as text it is a summary.

    Raises:
        UnreadableImageError, NotADirectoryError, FileNotFoundError, ValueError: As
            `index_images`; also where the folder holds something else than a shard.
    """
    check_shard_folder(shard_folder, part)  # before hours of work
    shard = _embed(
        images_folder,
        model,
        part,
        only=only,
        batch_size=batch_size,
        skip_unreadable=skip_unreadable,
    )
    save_shard(shard_folder, shard)
    reasons = tuple(shard.skipped.values())
    return ShardReport(part, len(shard.paths), shard.job.images, reasons)


def merge_shards(
    index_folder: str | PathLike[str], shard_folders: Sequence[str | PathLike[str]]
) -> IndexReport:
    """Build from shards the index that one `index_images` would have built.

    Args:
        index_folder: Folder to write to; made where missing. An index in it is
            replaced when the new one is complete.
        shard_folders: What `embed_shard` wrote, each shard once, in any order.

    Returns:
        The report; as text it is a summary.

    Raises:
        ValueError: A shard is missing, there twice, broken, or of other pictures or
            another model; the message names it.
    """
    return _build(index_folder, read_shards(shard_folders))


def _embed(
    images_folder: str | PathLike[str],
    model: str | PathLike[str],
    part: Part,
    *,
    only: str | PathLike[str] | None,
    batch_size: int,
    skip_unreadable: bool,
) -> Shard:
    """Embed one part of the list of pictures."""
    if batch_size < 1:
        raise ValueError(
            f"`batch_size` must be at least 1. Received: batch_size={batch_size}."
        )
    root = Path(images_folder).resolve()
    paths = list_images(root) if only is None else read_image_list(only, root)
    version = find_model_version(model)
    job = Job(
        str(root),
        len(paths),
        digest_of_list(paths),
        version.name,
        version.version,
        model_fingerprint(version.folder),
        calibration_of_model(version.folder),
    )
    embedder = SavedEmbedder(version.folder)

    positions = part.positions(len(paths))
    own = [paths[position] for position in positions]
    done = 0
    blocks: list[np.ndarray] = []
    kept: dict[int, str] = {}
    skipped: dict[int, str] = {}
    with tqdm(total=len(own), desc="embedding", unit=" images") as progress:
        for batch, decoded in _decoded(root, own, embedder.view, batch_size):
            where = positions[done : done + len(batch)]
            done += len(batch)
            good: dict[int, np.ndarray] = {}
            for position, path, item in zip(where, batch, decoded, strict=True):
                if isinstance(item, np.ndarray):
                    good[position] = item
                    kept[position] = path
                elif skip_unreadable:
                    skipped[position] = str(item)
                else:
                    raise UnreadableImageError(
                        f"{item} Repair or remove it, or leave such files out with "
                        "`--skip-unreadable`."
                    )
            if good:
                rows = embedder.embed(np.stack(list(good.values())))
                _check_rows(rows, [kept[position] for position in good])
                blocks.append(rows)
            progress.update(len(batch))
    return Shard(
        job,
        part,
        np.array(list(kept), dtype=np.int64),
        tuple(kept.values()),
        np.concatenate(blocks) if blocks else np.empty((0, 0), np.float32),
        skipped,
    )


def _build(index_folder: str | PathLike[str], shard: Shard) -> IndexReport:
    """Build the index of the one shard that holds all pictures."""
    job, reasons = shard.job, tuple(shard.skipped.values())
    if not shard.paths:
        raise ValueError(
            f"None of the {job.images} images in {job.root!r} can be read. "
            f"The first: {reasons[0]}"
        )
    gallery = Gallery(
        root=Path(job.root),
        paths=tuple(shard.paths),
        model_name=job.model_name,
        model_version=job.model_version,
        model_fingerprint=job.model_fingerprint,
        calibration=job.calibration,
    )
    index = ScannIndex.build(
        shard.embeddings,
        ids=shard.paths,
        metric="cosine",
        model_fingerprint=job.model_fingerprint,
    )
    save_gallery(index_folder, index, gallery)
    return IndexReport(gallery, index.dimension, index.settings.method, reasons)


Decoded = list[np.ndarray | UnreadableImageError]


def _decoded(
    root: Path, paths: Sequence[str], view: View, batch_size: int
) -> Iterator[tuple[Sequence[str], Decoded]]:
    """Decode batch after batch in threads, a few batches ahead of the model."""

    def read(path: str) -> np.ndarray | UnreadableImageError:
        try:
            return view.central(read_image(root / path))
        except UnreadableImageError as error:
            return error

    waiting: deque[tuple[Sequence[str], list[Future]]] = deque()
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(paths), batch_size):
            batch = paths[start : start + batch_size]
            waiting.append((batch, [pool.submit(read, path) for path in batch]))
            if len(waiting) > _BATCHES_AHEAD:
                first, futures = waiting.popleft()
                yield first, [future.result() for future in futures]
        while waiting:
            first, futures = waiting.popleft()
            yield first, [future.result() for future in futures]


def _check_rows(rows: np.ndarray, paths: Sequence[str]) -> None:
    lengths = np.linalg.norm(rows, axis=1)
    # A NaN is in no range, so it is caught as well.
    wrong = np.flatnonzero(~(np.abs(lengths - 1) <= _LENGTH_TOLERANCE))
    if wrong.size:
        raise ValueError(
            "The model must return embeddings of length 1. It returned one of length "
            f"{lengths[wrong[0]]:g} for the image {paths[wrong[0]]!r}."
        )
