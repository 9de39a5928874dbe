"""Embed a gallery again in blocks, each on the disk as soon as it is done.

A block holds the ids of some images, their new embeddings, and digests of the old ones:
an image that got another embedding since, or that came later, is embedded once more.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.export import SavedEmbedder
from tfdml.files import make_folder, remove_unfinished, written
from tfdml.images import UnreadableImageError
from tfdml.index import LocalIndex

from ...client.images import how_to_skip
from .embedding import check_max_pixels, embed_files
from .gallery import Gallery
from .image_search import file_of, items_of
from .stored_images import StoredImages
from .upgrade_folder import upgrade_folder

BLOCK = 256
"""Images in a block: as many are embedded again after a kill, at most."""


@dataclass(frozen=True)
class Embedded:
    """Images that the new model has embedded.

    Attributes:
        rows: Row of the embedding of each image in `embeddings`, by its id.
        embeddings: float32 `[N, D]`.
        digests: Of the old embedding of each image, uint64, by its id.
        skipped: Why an image could not be read, by its id.
    """

    rows: dict[str, int]
    embeddings: NDArray[np.float32]
    digests: dict[str, int]
    skipped: dict[str, str]


class Pace:
    """A limit on the images per second.

    Args:
        images_per_second: The limit, above 0; None for none.
        clock: Returns the time in seconds.
        sleep: Waits so many seconds.
    """

    def __init__(
        self,
        images_per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if images_per_second is not None and not images_per_second > 0:
            raise ValueError(
                "`images_per_second` must be above 0. Received: images_per_second="
                f"{images_per_second}."
            )
        self._seconds = 0.0 if images_per_second is None else 1 / images_per_second
        self._clock, self._sleep = clock, sleep
        self._next = clock()

    def wait(self, images: int) -> None:
        """Wait until so many more images may be embedded."""
        now = self._clock()
        if self._seconds and now < self._next:
            self._sleep(self._next - now)
        self._next = max(now, self._next) + images * self._seconds


@dataclass(frozen=True)
class Pacing:
    """How an upgrade embeds the gallery.

    Args:
        batch_size: Images per run of the model, at least 1.
        images_per_second: Embed no more than this, above 0; None for no limit.
        skip_unreadable: Leave images out that have vanished or cannot be read. By
            default the first one is an error.
        max_pixels: Width times height above which an image cannot be read.
        progress: Show the progress on the standard error.
    """

    batch_size: int = 64
    images_per_second: float | None = None
    skip_unreadable: bool = False
    max_pixels: int = 100_000_000
    progress: bool = True

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(
                "`batch_size` must be at least 1. Received: batch_size="
                f"{self.batch_size}."
            )
        check_max_pixels(self.max_pixels)
        Pace(self.images_per_second)


class BlockWriter:
    """Embeds images of a gallery, and writes them to blocks.

    Args:
        index_folder: Folder of the index.
        index: The index, as it is now.
        gallery: Where its images are.
        embedder: The new model.
        pacing: How to embed.
    """

    def __init__(
        self,
        index_folder: Path,
        index: LocalIndex,
        gallery: Gallery,
        embedder: SavedEmbedder,
        pacing: Pacing,
    ) -> None:
        self._folder = blocks_folder(index_folder)
        self._index, self._gallery, self._embedder = index, gallery, embedder
        self._stored = StoredImages(index_folder)
        self._pacing = pacing
        self._pace = Pace(pacing.images_per_second)
        make_folder(self._folder)

    def write(self, name: str, ids: Sequence[str]) -> None:
        """Embed images and write them as one block.

        Args:
            name: Name of the block.
            ids: Ids of the images; those that are no longer there are left out.

        Raises:
            UnreadableImageError: An image cannot be read, or has vanished.
        """
        items = items_of(self._index, ids)
        kept: list[str] = []
        rows: list[NDArray[np.float32]] = []
        skipped: dict[str, str] = {}
        files: dict[str, str] = {}
        for item in items:
            try:
                files[item.id] = str(file_of(item, self._gallery, self._stored))
            except FileNotFoundError as error:
                self._skip(item.id, UnreadableImageError(str(error)), skipped)
        embedded = embed_files(
            self._embedder,
            self._gallery.root,
            list(files.values()),
            self._pacing.batch_size,
            self._pacing.max_pixels,
        )
        for number, id_ in enumerate(files):
            if number % self._pacing.batch_size == 0:
                self._pace.wait(min(self._pacing.batch_size, len(files) - number))
            _, result = next(embedded)
            if isinstance(result, np.ndarray):
                kept.append(id_)
                rows.append(result)
            else:
                self._skip(id_, result, skipped)
        done = [*kept, *skipped]
        old = self._index.get(done).embeddings if done else np.empty((0, 1))
        with written(self._folder / f"{name}.npz") as new, new.open("wb") as file:
            np.savez(
                file,
                about=_text({"ids": kept, "skipped": skipped}),
                rows=np.stack(rows) if rows else np.empty((0, 0), np.float32),
                digests=digests_of(old),
            )

    def write_late(self, ids: Sequence[str]) -> None:
        """Embed images that came or changed since, after all other blocks."""
        for part in parts_of(ids, BLOCK):
            # In the order of the names of blocks, the last one counts.
            self.write(f"late-{time.time_ns():020d}", part)

    def _skip(
        self, id_: str, error: UnreadableImageError, skipped: dict[str, str]
    ) -> None:
        if not self._pacing.skip_unreadable:
            raise how_to_skip(error)
        skipped[id_] = str(error)


def blocks_folder(index_folder: Path) -> Path:
    """Return the folder of the blocks."""
    return upgrade_folder(index_folder) / "blocks"


def block_names(images: int) -> list[str]:
    """Return the names of the blocks of so many images."""
    return [f"{number:08d}" for number in range(-(-images // BLOCK))]


def is_written(index_folder: Path, name: str) -> bool:
    """Return whether a block is on the disk."""
    return (blocks_folder(index_folder) / f"{name}.npz").is_file()


def read_blocks(index_folder: Path) -> Embedded:
    """Read all blocks; what a later one holds counts."""
    folder = blocks_folder(index_folder)
    remove_unfinished(folder)
    rows: dict[str, int] = {}
    digests: dict[str, int] = {}
    skipped: dict[str, str] = {}
    parts: list[NDArray[np.float32]] = []
    count = 0
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as block:
            about = json.loads(block["about"].tobytes())
            part, marks = block["rows"], block["digests"].tolist()
        done = [*about["ids"], *about["skipped"]]
        digests.update(zip(done, marks, strict=True))
        for id_ in done:
            rows.pop(id_, None)
            skipped.pop(id_, None)
        rows.update((id_, count + row) for row, id_ in enumerate(about["ids"]))
        skipped.update(about["skipped"])
        if len(part):
            parts.append(part)
            count += len(part)
    embeddings = np.concatenate(parts) if parts else np.empty((0, 0), np.float32)
    return Embedded(rows, embeddings, digests, skipped)


def not_embedded(
    index: LocalIndex, digests: dict[str, int], block: int = 4096
) -> list[str]:
    """Return the ids of images that came, or got other embeddings, since."""
    missing: list[str] = []
    for ids in parts_of(index.ids.tolist(), block):
        marks = digests_of(index.get(ids).embeddings).tolist()
        missing += [
            id_
            for id_, mark in zip(ids, marks, strict=True)
            if digests.get(id_) != mark
        ]
    return missing


def parts_of(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield a list in parts of at most `size`."""
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def digests_of(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a digest of each row, uint64 `[N]`."""
    rows = np.ascontiguousarray(rows, np.float32)
    found = b"".join(
        hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows
    )
    return np.frombuffer(found, np.uint64)


def _text(value: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)
