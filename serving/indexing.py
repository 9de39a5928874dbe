"""Building a gallery: a folder of pictures becomes an index that can be searched."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from tqdm import tqdm

from serving.gallery import Gallery, read_image_list, save_gallery
from serving.saved_model import SavedEmbedder, find_model_version, model_fingerprint
from tfdml.images import (
    UnreadableImageError,
    list_images,
    read_image,
    resize_image,
)
from tfdml.index import ScannIndex

__all__ = ["IndexReport", "index_images"]

_BATCHES_AHEAD = 2
_LENGTH_TOLERANCE = 1e-3


@dataclass(frozen=True)
class IndexReport:
    """What a build put into the index and what it left out."""

    gallery: Gallery
    dimension: int
    method: str
    skipped: tuple[str, ...]

    def __str__(self) -> str:
        gallery = self.gallery
        lines = [
            f"{len(gallery.paths)} images of {len(gallery.classes())} classes indexed: "
            f"dimension {self.dimension}, {self.method} search, "
            f"model {gallery.model_name} version {gallery.model_version}."
        ]
        if self.skipped:
            lines.append(f"{len(self.skipped)} unreadable images left out:")
            lines.extend(f"  {reason}" for reason in self.skipped)
        return "\n".join(lines)


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
    if batch_size < 1:
        raise ValueError(
            f"`batch_size` must be at least 1. Received: batch_size={batch_size}."
        )
    root = Path(images_folder).resolve()
    paths = list_images(root) if only is None else read_image_list(only, root)
    version = find_model_version(model)
    fingerprint = model_fingerprint(version.folder)
    embedder = SavedEmbedder(version.folder)

    embeddings: list[np.ndarray] = []
    kept: list[str] = []
    skipped: list[str] = []
    with tqdm(total=len(paths), desc="embedding", unit=" images") as progress:
        for batch, decoded in _decoded(root, paths, embedder.image_size, batch_size):
            broken = [
                item for item in decoded if isinstance(item, UnreadableImageError)
            ]
            if broken and not skip_unreadable:
                raise UnreadableImageError(
                    f"{broken[0]} Repair or remove it, or leave such files out with "
                    "`--skip-unreadable`."
                )
            skipped += [str(error) for error in broken]
            pairs = zip(batch, decoded, strict=True)
            good = {path: item for path, item in pairs if isinstance(item, np.ndarray)}
            if good:
                rows = embedder.embed(np.stack(list(good.values())))
                _check_rows(rows, list(good))
                embeddings.append(rows)
                kept.extend(good)
            progress.update(len(batch))
    if not kept:
        raise ValueError(
            f"None of the {len(paths)} images in {str(images_folder)!r} can be read. "
            f"The first: {skipped[0]}"
        )

    gallery = Gallery(
        root=root,
        paths=tuple(kept),
        model_name=version.name,
        model_version=version.version,
        model_fingerprint=fingerprint,
    )
    matrix = np.concatenate(embeddings)
    index = ScannIndex.build(
        matrix, ids=kept, metric="cosine", model_fingerprint=fingerprint
    )
    save_gallery(index_folder, index, gallery)
    return IndexReport(gallery, matrix.shape[1], index.settings.method, tuple(skipped))


Decoded = list[np.ndarray | UnreadableImageError]


def _decoded(
    root: Path, paths: Sequence[str], size: int, batch_size: int
) -> Iterator[tuple[Sequence[str], Decoded]]:
    """Decode batch after batch in threads, a few batches ahead of the model."""

    def read(path: str) -> np.ndarray | UnreadableImageError:
        try:
            return resize_image(read_image(root / path), size)
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
