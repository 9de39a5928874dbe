"""Build a gallery: embed a folder of images and save them as an index.

A whole build is a build of one shard: `embed_shard` and `merge_shards` do what
`index_images` does in two steps, with a file between them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from tfdml.export import SavedEmbedder
from tfdml.index import CodeKind, Engine, LocalIndex, check_ids
from tfdml.messages import shown
from tfdml.progress import Progress

from ...client.images import how_to_skip
from ...client.journal import digest_of_list
from ...endpoint.models.calibration import calibration_of_model
from ...endpoint.models.saved_model import find_model_version, model_fingerprint
from ...storage.remote_image import place_of
from .choosing import choose_images
from .embedding import (
    check_max_pixels,
    embed_files,
)
from .gallery import (
    CLASS,
    Gallery,
    check_gallery_folder,
    class_attributes,
    save_gallery,
)
from .report import IndexReport, ShardReport, engine_of, method_of, recall_of
from .shards import (
    Job,
    Part,
    Shard,
    check_shard_folder,
    read_shards,
    save_shard,
)
from .stores import Collection, build_in, check_options, check_store, collection_of

_NO_THRESHOLD = (
    "The threshold of the model is one of all its dimensions: the index has none, and "
    "no search of it ends in no match."
)


def index_images(
    images_folder: str | PathLike[str],
    index_folder: str | PathLike[str],
    model: str | PathLike[str],
    *,
    only: str | PathLike[str] | None = None,
    batch_size: int = 64,
    skip_unreadable: bool = False,
    outside_links: bool = True,
    max_pixels: int = 100_000_000,
    dimensions: int | None = None,
    target_recall: float | None = None,
    engine: Engine | None = None,
    codes: CodeKind | None = None,
    code_dimensions: int | None = None,
    store: str | None = None,
    collection: str | None = None,
    progress: bool = True,
) -> IndexReport:
    """Embed a folder of images and save them as an index that can be searched.

    An index that is already in `index_folder` is replaced only once the new one is
    complete.

    Args:
        images_folder: Folder of images, or its address in the cloud. The first folder
            below it is the class of an image; images directly in it have none.
        index_folder: Folder to write to; created if missing.
        model: Base path of the exported model (its latest version is used), or the
            folder of one version.
        only: Text file with the paths of the images to index, one per line, relative to
            `images_folder`; by default all images.
        batch_size: Images per run of the model, at least 1.
        skip_unreadable: Skip images that cannot be read and list them in the report.
            By default the first one is an error.
        outside_links: Take images that links lead to, outside of the folder.
        max_pixels: Width times height above which an image cannot be read, at least 1.
        dimensions: See `LocalIndex.build`, also for the default. The threshold of a
            calibrated model is one of all dimensions, so that an index of fewer has
            none.
        target_recall: See `LocalIndex.build`, also for the default.
        engine: See `LocalIndex.build`, also for the default.
        codes: See `LocalIndex.build`.
        code_dimensions: See `LocalIndex.build`.
        store: The address of a database that is to keep the items, see
            `collection_of` in `stores`. By default they are in memory and in the
            folder.
        collection: The name of the collection in it, which must be new; by default
            that of `index_folder`.
        progress: Show the progress on the standard error.

    Returns:
        The report; as text it is a summary.

    Raises:
        UnreadableImageError: A file is not an image; the message names it and the
            reason.
        NotADirectoryError, FileNotFoundError: A folder or file is missing.
        ValueError: There is no image, the model is unsuitable, or `index_folder` holds
            something that must not be replaced.
        LockedError: Another process changes the index in `index_folder`.
    """
    check_gallery_folder(index_folder)  # before hours of work
    options = _given(
        dimensions=dimensions,
        target_recall=target_recall,
        engine=engine,
        codes=codes,
        code_dimensions=code_dimensions,
    )
    target = collection_of(store, collection, index_folder)
    check_options(target, options)
    shard, notes = _embed(
        images_folder,
        model,
        Part(),
        only=only,
        batch_size=batch_size,
        skip_unreadable=skip_unreadable,
        outside_links=outside_links,
        max_pixels=max_pixels,
        progress=progress,
        options=options,
        target=target,
    )
    report = _build(index_folder, shard, options, target, progress=progress)
    return replace(report, notes=notes + report.notes)


def embed_shard(
    images_folder: str | PathLike[str],
    shard_folder: str | PathLike[str],
    model: str | PathLike[str],
    part: Part,
    *,
    only: str | PathLike[str] | None = None,
    batch_size: int = 64,
    skip_unreadable: bool = False,
    outside_links: bool = True,
    max_pixels: int = 100_000_000,
    progress: bool = True,
) -> ShardReport:
    """Embed one part of a folder of images and save it, to merge it with the others.

    A shard that is already in `shard_folder` is replaced only once the new one is
    complete.

    Args:
        images_folder: See `index_images`, also for the other arguments.
        shard_folder: Folder to write to, one per shard; created if missing.
        model: The exported model.
        part: Which part, such as `Part(2, 8)`: every 8th image, from the second.
        only: Text file with the paths of the images.
        batch_size: Images in one run of the model, at least 1.
        skip_unreadable: Skip images that cannot be read and list them in the report.
        outside_links: Take images that links lead to, outside of the folder.
        max_pixels: Width times height above which an image cannot be read.
        progress: Show the progress on the standard error.

    Returns:
        The report; as text it is a summary.

    Raises:
        UnreadableImageError, NotADirectoryError, FileNotFoundError, ValueError: As
            `index_images`; also if the folder holds something other than a shard.
    """
    check_shard_folder(shard_folder, part)  # before hours of work
    shard, notes = _embed(
        images_folder,
        model,
        part,
        only=only,
        batch_size=batch_size,
        skip_unreadable=skip_unreadable,
        outside_links=outside_links,
        max_pixels=max_pixels,
        progress=progress,
    )
    save_shard(shard_folder, shard)
    reasons = tuple(shard.skipped.values())
    return ShardReport(part, len(shard.paths), shard.job.images, reasons, notes)


def merge_shards(
    index_folder: str | PathLike[str],
    shard_folders: Sequence[str | PathLike[str]],
    *,
    dimensions: int | None = None,
    target_recall: float | None = None,
    engine: Engine | None = None,
    codes: CodeKind | None = None,
    code_dimensions: int | None = None,
    store: str | None = None,
    collection: str | None = None,
    progress: bool = True,
) -> IndexReport:
    """Build, from shards, the index that `index_images` would have built.

    Args:
        index_folder: Folder to write to; created if missing. An index in it is
            replaced once the new one is complete.
        shard_folders: Folders that `embed_shard` wrote, each shard once, in any order.
        dimensions: See `index_images`.
        target_recall: See `LocalIndex.build`, also for the default.
        engine: See `LocalIndex.build`, also for the default.
        codes: See `LocalIndex.build`.
        code_dimensions: See `LocalIndex.build`.
        store: The address of a database that is to keep the items, see
            `collection_of` in `stores`. By default they are in memory and in the
            folder.
        collection: The name of the collection in it, which must be new; by default
            that of `index_folder`.
        progress: Show the progress on the standard error.

    Returns:
        The report; as text it is a summary.

    Raises:
        ValueError: A shard is missing, repeated, broken, or of other images or another
            model; the message names it. Or `index_folder` holds something that must not
            be replaced.
        LockedError: Another process changes the index in `index_folder`.
    """
    check_gallery_folder(index_folder)
    target = collection_of(store, collection, index_folder)
    options = _given(
        dimensions=dimensions,
        target_recall=target_recall,
        engine=engine,
        codes=codes,
        code_dimensions=code_dimensions,
    )
    check_options(target, options)
    shard = read_shards(shard_folders)
    return _build(index_folder, shard, options, target, progress=progress)


def _given(**options: Any) -> dict[str, Any]:
    """Return those options of `LocalIndex.build` that are not left to it."""
    return {name: value for name, value in options.items() if value is not None}


def _embed(
    images_folder: str | PathLike[str],
    model: str | PathLike[str],
    part: Part,
    *,
    only: str | PathLike[str] | None,
    batch_size: int,
    skip_unreadable: bool,
    outside_links: bool,
    max_pixels: int,
    progress: bool,
    options: Mapping[str, Any] | None = None,
    target: Collection | None = None,
) -> tuple[Shard, tuple[str, ...]]:
    """Embed one part of the list of images; the notes are on the whole list.

    The options of `LocalIndex.build` and the database are only checked, before hours of
    work.
    """
    if batch_size < 1:
        raise ValueError(
            f"`batch_size` must be at least 1. Received: batch_size={batch_size}."
        )
    check_max_pixels(max_pixels)
    root = place_of(images_folder)
    paths, notes = choose_images(
        root, only, skip_unreadable=skip_unreadable, outside_links=outside_links
    )
    check_ids(paths, name="paths")  # before hours of work
    version = find_model_version(model)
    embedder = SavedEmbedder(version.folder)
    if options and embedder.dimension is not None:
        none = np.empty((0, embedder.dimension))
        LocalIndex.build(none, metric=embedder.metric, **options)
    check_store(target, embedder.metric, embedder.dimension)
    job = Job(
        str(root),
        len(paths),
        digest_of_list(paths),
        version.name,
        version.version,
        model_fingerprint(version.folder),
        calibration_of_model(version.folder),
        embedder.metric,
    )
    positions = part.positions(len(paths))
    own = [paths[position] for position in positions]
    rows: list[np.ndarray] = []
    kept: dict[int, str] = {}
    skipped: dict[int, str] = {}
    with Progress("embedding", len(own), shown=progress) as bar:
        embedded = embed_files(embedder, root, own, batch_size, max_pixels)
        for position, (path, result) in zip(positions, embedded, strict=True):
            bar.update()
            if isinstance(result, np.ndarray):
                rows.append(result)
                kept[position] = path
            elif skip_unreadable:
                skipped[position] = str(result)
            else:
                raise how_to_skip(result)
    shard = Shard(
        job,
        part,
        np.array(list(kept), dtype=np.int64),
        tuple(kept.values()),
        np.stack(rows) if rows else np.empty((0, 0), np.float32),
        skipped,
    )
    return shard, notes


def _build(
    index_folder: str | PathLike[str],
    shard: Shard,
    options: Mapping[str, Any],
    target: Collection | None,
    *,
    progress: bool,
) -> IndexReport:
    """Build the index from the one shard that holds all images."""
    job, reasons = shard.job, tuple(shard.skipped.values())
    if not shard.paths:
        raise ValueError(
            f"None of the {job.images} images in {shown(job.root)} can be read. "
            f"The first: {reasons[0]}"
        )
    calibration, notes = job.calibration, tuple[str, ...]()
    whole = shard.embeddings.shape[1]
    if calibration is not None and options.get("dimensions", whole) != whole:
        calibration, notes = None, (_NO_THRESHOLD,)
    gallery = Gallery(
        root=place_of(job.root),
        model_name=job.model_name,
        model_version=job.model_version,
        calibration=calibration,
    )
    attributes = class_attributes(shard.paths)
    with Progress("building the index", shown=progress):
        index = build_in(
            target,
            shard.embeddings,
            shard.paths,
            attributes,
            job.metric,
            job.model_fingerprint,
            options,
        )
        try:
            save_gallery(index_folder, index, gallery)
        except BaseException:
            if not isinstance(index, LocalIndex):
                index.drop()  # nothing leads to it
            raise
    classes = len(set(attributes[CLASS]) - {None})
    return IndexReport(
        gallery,
        images=len(shard.paths),
        classes=classes,
        dimension=index.dimension,
        method=method_of(index),
        engine=engine_of(index),
        recall=recall_of(index),
        skipped=reasons,
        notes=notes,
        embedding_dimension=index.embedding_dimension,
    )
