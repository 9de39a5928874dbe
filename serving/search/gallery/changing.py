"""Add images to the index in a folder and remove them, from the command line.

A service that serves the index sees the changes when it starts again. A service that
lets its users change the index locks it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from tfdml.export import SavedEmbedder
from tfdml.images import UnreadableImageError
from tfdml.index import Index
from tfdml.messages import shown
from tfdml.progress import tracked

from ...client import Credentials, EndpointClient
from ...client.images import how_to_skip
from ...endpoint.models.saved_model import find_model_version, model_fingerprint
from ...storage.remote_folder import RemoteFolder
from ...storage.remote_image import RemoteImage, image_at, place_of
from .choosing import choose_images
from .editing import Addition, ExistsError, GalleryEditor
from .embedding import (
    check_max_pixels,
    check_row,
    embed_files,
)
from .gallery import (
    CLASS,
    Gallery,
    class_of,
    load_gallery,
)
from .image_search import ImageSearch
from .model_check import client_of_index
from .report import AddReport, RemoveReport
from .uploads import check_upload

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
    outside_links: bool = True,
    max_pixels: int = 100_000_000,
    skip_existing: bool = False,
    progress: bool = True,
) -> AddReport:
    """Add a folder of images to an index.

    If `images_folder` is the folder that was indexed, or inside it, ids are paths below
    that folder, as in a build. Images of another folder are copied into the folder of
    the index, and their ids are paths below `images_folder`. The first folder of an id
    is the class.

    Each batch is on the disk once it has been added: continue an interrupted run with
    `skip_existing`.

    Args:
        index_folder: Folder that `index_images` wrote.
        images_folder: Folder of images.
        model: The exported model that the index was built with: base path or folder of
            the version.
        endpoint: Address of an endpoint that serves it, instead of `model`.
        credentials: What the endpoint asks of its clients.
        only: Text file with the paths of the images to add, one per line, relative to
            `images_folder`; by default all images.
        batch_size: Images per run of the model and per change of the index, at least 1.
        skip_unreadable: Skip images that cannot be read and list them in the report.
            By default the first one is an error.
        outside_links: Take images that links lead to, outside of the folder.
        max_pixels: Width times height above which an image cannot be read, at least 1.
        skip_existing: Skip images whose ids the index has. By default nothing is added
            if it has one of them.
        progress: Show the progress on the standard error.

    Returns:
        The report; as text it is a summary.

    Raises:
        ExistsError: The index has one of the ids.
        UnreadableImageError: A file is not an image; those before it were added.
        NotADirectoryError, FileNotFoundError: A folder or file is missing.
        ValueError: There is no image, the model is another one, or not exactly one of
            `model` and `endpoint` is given.
        EndpointError: The endpoint did not answer.
        LockedError: Another process changes the index.
    """
    if batch_size < 1:
        raise ValueError(
            f"`batch_size` must be at least 1. Received: batch_size={batch_size}."
        )
    check_max_pixels(max_pixels)
    if (model is None) == (endpoint is None):
        raise ValueError("Give either `model` or `endpoint`, not both.")
    root = place_of(images_folder)
    if model is None and not isinstance(root, Path):
        raise ValueError(
            "`images_folder` must be on this machine where an `endpoint` embeds the "
            f"images. Give a `model` instead. Received: {shown(str(root))}."
        )
    paths, notes = choose_images(
        root, only, skip_unreadable=skip_unreadable, outside_links=outside_links
    )
    with contextlib.ExitStack() as stack:
        index, gallery = load_gallery(index_folder)
        stack.callback(index.close)
        editor = stack.enter_context(GalleryEditor(index))
        prefix = _prefix(root, gallery)
        ids = {path: f"{prefix or ''}{path}" for path in paths}
        existing = [path for path in paths if ids[path] in index]
        if existing and not skip_existing:
            raise ExistsError(
                f"The index already has {len(existing)} of the {len(paths)} images, "
                f"such as {shown(ids[existing[0]])}. Skip them with `--skip-existing`."
            )
        new = [path for path in paths if ids[path] not in index]
        embedded: Embedded
        check: Callable[[], None] = _nothing
        if model is not None:
            embedded = _by_model(index, model, root, new, batch_size, max_pixels)
        else:
            client = stack.enter_context(
                EndpointClient(
                    str(endpoint), max_pixels=max_pixels, credentials=credentials
                )
            )
            checked = client_of_index(client, ImageSearch(index, gallery, client))
            stack.callback(checked.close)
            check = checked.check
            embedded = _by_endpoint(checked.client, root, new, batch_size, index.metric)
        added, skipped = 0, []
        waiting: list[Addition] = []

        def add() -> None:
            nonlocal added, waiting
            if waiting:
                check()
                editor.add(waiting)
            added += len(waiting)
            waiting = []

        for path, result in tracked(embedded, "adding", len(new), shown=progress):
            try:
                file = image_at(root, path)
                waiting.append(_addition(file, ids[path], result, prefix))
            except UnreadableImageError as error:
                if not skip_unreadable:
                    add()
                    raise how_to_skip(error) from error
                skipped.append(str(error))
            if len(waiting) == batch_size:
                add()
        add()
        return AddReport(
            added=added,
            stored=added if prefix is None else 0,
            images=index.count(),
            existing=len(existing),
            skipped=tuple(skipped),
            notes=notes,
        )


def remove_images(
    index_folder: str | PathLike[str], ids: Sequence[str], *, lines: Sequence[str] = ()
) -> RemoveReport:
    """Remove images from an index, all or none.

    Files below the folder that was indexed stay where they are; those that were copied
    into the folder of the index are deleted.

    Args:
        index_folder: Folder that `index_images` wrote.
        ids: Their ids, without repetition.
        lines: Further ids, as lines of a text file: where the index has no such id, the
            spaces around it are dropped, and a line that begins with # is skipped.

    Returns:
        The report; as text it is a summary.

    Raises:
        KeyError: There is no such image; nothing was removed.
        FileNotFoundError, ValueError: As `load_gallery`; an id is repeated.
        LockedError: Another process changes the index.
    """
    index, _ = load_gallery(index_folder)
    with contextlib.closing(index), GalleryEditor(index) as editor:
        ids = [*ids, *_ids_of_lines(index, lines)]
        editor.remove(ids)
        return RemoveReport(len(ids), index.count())


def _ids_of_lines(index: Index, lines: Sequence[str]) -> list[str]:
    known = [line if line in index else line.strip() for line in lines]
    return [id_ for id_ in known if id_ in index or not id_.startswith("#")]


def _nothing() -> None:
    """Check nothing: a model in this process stays the same."""


def _prefix(images_folder: Path | RemoteFolder, gallery: Gallery) -> str | None:
    """Return the path from the root to a folder in it; None for another folder."""
    root = gallery.root.resolve()
    if isinstance(images_folder, Path) and isinstance(root, Path):
        try:
            below = images_folder.relative_to(root)
        except ValueError:
            return None
        return "" if below == Path() else f"{below.as_posix()}/"
    inner, outer = f"{images_folder}/", f"{root}/"
    is_inside = type(images_folder) is type(root) and inner.startswith(outer)
    return inner.removeprefix(outer) if is_inside else None


def _by_model(
    index: Index,
    model: str | PathLike[str],
    root: Path | RemoteFolder,
    paths: Sequence[str],
    batch_size: int,
    max_pixels: int,
) -> Embedded:
    version = find_model_version(model)
    if model_fingerprint(version.folder) != index.model_fingerprint:
        raise ValueError(
            f"The index was built with another model than {version.folder}. Give that "
            "model, or build the index again."
        )
    embedder = SavedEmbedder(version.folder)
    return embed_files(embedder, root, paths, batch_size, max_pixels)


def _by_endpoint(
    client: EndpointClient,
    root: Path | RemoteFolder,
    paths: Sequence[str],
    batch_size: int,
    metric: str,
) -> Embedded:
    """Embed files through an endpoint, in order; a broken one gives its error."""
    broken: dict[str, UnreadableImageError] = {}

    def note(image: object, reason: UnreadableImageError) -> None:
        broken[os.fspath(image)] = reason  # type: ignore[call-overload]

    files = [str(image_at(root, path)) for path in paths]
    stream = client.embed_stream(files, batch_size=batch_size, on_unreadable=note)
    with contextlib.closing(stream):
        found = next(stream, None)
        for file, path in zip(files, paths, strict=True):
            if found is not None and found[0] == file:
                check_row(found[1], path, metric)
                yield path, found[1]
                found = next(stream, None)
            else:
                yield path, broken[file]


def _addition(
    file: Path | RemoteImage,
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
    """Return the suffix of an image that could be read."""
    try:
        return check_upload(content)
    except UnreadableImageError:  # a format that strangers may not send
        return "img"
