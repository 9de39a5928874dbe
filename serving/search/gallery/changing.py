"""Adding pictures to the index in a folder, and removing them, while nobody serves it.

A service that serves the index finds the changes when it starts again. One that lets
its users change the index keeps everybody else from it.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from tqdm import tqdm

from serving.client import Credentials, EndpointClient
from serving.endpoint.models.saved_model import find_model_version, model_fingerprint
from serving.search.gallery.editing import Addition, ExistsError, GalleryEditor
from serving.search.gallery.embedding import check_row, embed_files, how_to_skip
from serving.search.gallery.gallery import (
    CLASS,
    Gallery,
    class_of,
    load_gallery,
    read_image_list,
)
from serving.search.gallery.image_search import ImageSearch
from serving.search.gallery.model_check import check_model
from serving.search.gallery.report import AddReport, RemoveReport
from serving.search.gallery.uploads import check_picture
from tfdml.export import SavedEmbedder
from tfdml.images import UnreadableImageError, list_images
from tfdml.index import ScannIndex

Embedded = Iterator[tuple[str, np.ndarray | UnreadableImageError]]


def add_images(
    index_folder: str | PathLike[str],
    images_folder: str | PathLike[str],
    *,
    model: str | PathLike[str] | None = None,
    endpoint: str | None = None,
    credentials: Credentials | None = None,
    only: str | PathLike[str] | None = None,
    batch_size: int = 64,
    skip_unreadable: bool = False,
    skip_existing: bool = False,
    progress: bool = True,
) -> AddReport:
    """Add a folder of pictures to an index.

    Where `images_folder` is in the folder that was indexed, or that folder itself, the
    ids are paths below that, as of a build. Pictures of another folder are copied into
    the folder of the index, and their ids are paths below `images_folder`. The first
    folder of an id is the class.

    Each batch is on the disk when it has been added: of a run that was ended, go on
    with `skip_existing`.

    Args:
        index_folder: Folder that `index_images` wrote.
        images_folder: Folder of pictures.
        model: The exported model that the index was built with: base path or folder of
            the version.
        endpoint: Address of an endpoint that serves it, in the place of `model`.
        credentials: What the endpoint asks of its clients.
        only: Text file with the paths to take, one a line, relative to
            `images_folder`; without it, all pictures are taken.
        batch_size: Pictures in one run of the model, and in one change of the index,
            at least 1.
        skip_unreadable: Leave broken pictures out and list them in the report. By
            default the first one ends it.
        skip_existing: Leave pictures out whose ids the index has. By default nothing
            is added where it has one of them.
        progress: Show a progress bar, where the standard error is a terminal.

    Returns:
        The report; as text it is a summary.

    Raises:
        ExistsError: The index has one of the ids.
        UnreadableImageError: A file is no picture; what came before it was added.
        NotADirectoryError, FileNotFoundError: A folder or file is missing.
        ValueError: There is no picture, the model is another one, or of `model` and
            `endpoint` not one is given.
        EndpointError: The endpoint did not answer.
        LockedError: Somebody else changes the index.
    """
    if batch_size < 1:
        raise ValueError(
            f"`batch_size` must be at least 1. Received: batch_size={batch_size}."
        )
    if (model is None) == (endpoint is None):
        raise ValueError("Give `model` or `endpoint`, and not both.")
    root = Path(images_folder).resolve()
    paths = list_images(root) if only is None else read_image_list(only, root)
    with contextlib.ExitStack() as stack:
        index, gallery = load_gallery(index_folder)
        stack.callback(index.close)
        editor = stack.enter_context(GalleryEditor(index))
        prefix = _prefix(root, gallery)
        ids = {path: f"{prefix or ''}{path}" for path in paths}
        existing = [path for path in paths if ids[path] in index]
        if existing and not skip_existing:
            raise ExistsError(
                f"The index has {len(existing)} of the {len(paths)} images already, "
                f"such as {ids[existing[0]]!r}. Leave them out with `--skip-existing`."
            )
        new = [path for path in paths if ids[path] not in index]
        embedded: Embedded
        if model is not None:
            embedded = _by_model(index, model, root, new, batch_size)
        else:
            client = stack.enter_context(
                EndpointClient(str(endpoint), credentials=credentials)
            )
            search = ImageSearch(index, gallery, client)
            check_model(search)
            own = stack.enter_context(client.at_version(gallery.model_version))
            embedded = _by_endpoint(own, root, new, batch_size)
        added, skipped = 0, []
        waiting: list[Addition] = []
        bar = tqdm(
            embedded,
            total=len(new),
            desc="adding",
            unit=" images",
            disable=None if progress else True,  # None: where there is no terminal
        )
        for path, result in bar:
            try:
                waiting.append(_addition(root / path, ids[path], result, prefix))
            except UnreadableImageError as error:
                if not skip_unreadable:
                    editor.add(waiting)
                    raise how_to_skip(error) from error
                skipped.append(str(error))
            if len(waiting) == batch_size:
                editor.add(waiting)
                added += len(waiting)
                waiting = []
        editor.add(waiting)
        added += len(waiting)
        return AddReport(
            added=added,
            stored=added if prefix is None else 0,
            images=index.count(),
            existing=len(existing),
            skipped=tuple(skipped),
        )


def remove_images(
    index_folder: str | PathLike[str], ids: Sequence[str]
) -> RemoveReport:
    """Remove pictures from an index, all of them or, on an error, none.

    Files below the folder that was indexed stay where they are; those that were copied
    into the folder of the index are deleted.

    Args:
        index_folder: Folder that `index_images` wrote.
        ids: Their ids, none twice.

    Returns:
        The report; as text it is a summary.

    Raises:
        KeyError: There is no such picture; nothing was removed.
        FileNotFoundError, ValueError: As `load_gallery`; an id is there twice.
        LockedError: Somebody else changes the index.
    """
    index, _ = load_gallery(index_folder)
    with contextlib.closing(index), GalleryEditor(index) as editor:
        editor.remove(ids)
        return RemoveReport(len(ids), index.count())


def _prefix(images_folder: Path, gallery: Gallery) -> str | None:
    """Return what leads from the root to a folder in it, None for another folder."""
    try:
        below = images_folder.relative_to(gallery.root.resolve())
    except ValueError:
        return None
    return "" if below == Path() else f"{below.as_posix()}/"


def _by_model(
    index: ScannIndex,
    model: str | PathLike[str],
    root: Path,
    paths: Sequence[str],
    batch_size: int,
) -> Embedded:
    version = find_model_version(model)
    if model_fingerprint(version.folder) != index.model_fingerprint:
        raise ValueError(
            f"The index was built with another model than {version.folder}. Name that "
            "model, or build the index again."
        )
    return embed_files(SavedEmbedder(version.folder), root, paths, batch_size)


def _by_endpoint(
    client: EndpointClient, root: Path, paths: Sequence[str], batch_size: int
) -> Embedded:
    """Embed files through an endpoint; broken ones come where they stood."""
    broken: dict[str, UnreadableImageError] = {}

    def note(picture: object, reason: Exception) -> None:
        if not isinstance(reason, UnreadableImageError):
            raise reason
        broken[os.fspath(picture)] = reason  # type: ignore[call-overload]

    files = [str(root / path) for path in paths]
    stream = client.embed_stream(files, batch_size=batch_size, on_unreadable=note)
    with contextlib.closing(stream):
        found = next(stream, None)
        for file, path in zip(files, paths, strict=True):
            if found is not None and found[0] == file:
                check_row(found[1], path)
                yield path, found[1]
                found = next(stream, None)
            else:
                yield path, broken[file]


def _addition(
    file: Path,
    id_: str,
    embedding: np.ndarray | UnreadableImageError,
    prefix: str | None,
) -> Addition:
    if isinstance(embedding, UnreadableImageError):
        raise embedding
    attributes = {CLASS: name} if (name := class_of(id_)) else {}
    if prefix is not None:
        return Addition(id_, embedding, attributes)
    content = file.read_bytes()
    return Addition(id_, embedding, attributes, content, _suffix(content))


def _suffix(content: bytes) -> str:
    """Return how the name of a picture ends that has been read already."""
    try:
        return check_picture(content)
    except UnreadableImageError:  # strangers may not send one, but a gallery has any
        return "img"
