"""Embed files with an exported model in this process."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tfdml.export import SavedEmbedder
from tfdml.images import UnreadableImageError, View
from tfdml.messages import shown

from ...storage.remote_folder import RemoteFolder
from ...storage.remote_image import read_image_at

_BATCHES_AHEAD = 2
_LENGTH_TOLERANCE = 1e-3

Decoded = list[np.ndarray | UnreadableImageError]


def embed_files(
    embedder: SavedEmbedder,
    root: Path | RemoteFolder,
    paths: Sequence[str],
    batch_size: int,
    max_pixels: int,
) -> Iterator[tuple[str, np.ndarray | UnreadableImageError]]:
    """Embed files, which are read a few batches ahead.

    Args:
        embedder: The model.
        root: Folder of the files, here or in the cloud.
        paths: Paths below it.
        batch_size: Images per run of the model, at least 1.
        max_pixels: Width times height above which an image cannot be read.

    Yields:
        Each path, in order, with its embedding, float32 `[D]`, or the error if it
        cannot be read.

    Raises:
        ValueError: The model returned an embedding whose length is not 1, though they
            are compared by cosine, or not finite.
        OSError, MemoryError: The machine cannot read an image.
    """
    for batch, decoded in _decoded(root, paths, embedder.view, batch_size, max_pixels):
        good = [item for item in decoded if isinstance(item, np.ndarray)]
        rows = iter(embedder.embed(np.stack(good)) if good else ())
        for path, item in zip(batch, decoded, strict=True):
            if isinstance(item, np.ndarray):
                row = next(rows)
                check_row(row, path, embedder.metric)
                yield path, row
            else:
                yield path, item


def _decoded(
    root: Path | RemoteFolder,
    paths: Sequence[str],
    view: View,
    batch_size: int,
    max_pixels: int,
) -> Iterator[tuple[Sequence[str], Decoded]]:
    """Decode the batches in threads, a few ahead of the model."""

    def read(path: str) -> np.ndarray | UnreadableImageError:
        try:
            return view.central(read_image_at(root, path, max_pixels))
        except UnreadableImageError as error:
            # A disk that was taken away, with all of them.
            if isinstance(root, Path) and not root.is_dir():
                raise NotADirectoryError(f"The folder {root} is gone.") from error
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


def check_row(row: np.ndarray, path: str, metric: str = "cosine") -> None:
    """Check that an embedding has length 1, where cosines compare, and is finite.

    Raises:
        ValueError: It has another length, or is not finite.
    """
    length = float(np.linalg.norm(row))
    if metric == "squared_euclidean":
        if not np.isfinite(length):
            raise ValueError(
                "The model must return finite embeddings. Received: length "
                f"{length:g} for the image {shown(path)}."
            )
        return
    # A NaN is in no range, so it is refused as well.
    if not abs(length - 1) <= _LENGTH_TOLERANCE:
        raise ValueError(
            "The model must return embeddings of length 1: end it in "
            "`tfdml.layers.L2Normalization`, or export it by "
            "`tfdml.export.export_embedder`, which scales them. Received: length "
            f"{length:g} for the image {shown(path)}."
        )


def check_max_pixels(max_pixels: int) -> None:
    """Raise a `ValueError` unless a limit allows an image at all."""
    if max_pixels < 1:
        raise ValueError(
            f"`max_pixels` must be at least 1. Received: max_pixels={max_pixels}."
        )
