"""Embed the images of a split, by a network or as their own pixels."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from tfdml.progress import Progress

from ..data.split import Split

_BATCH = 64
_AHEAD = 4


class _Blocks(keras.utils.PyDataset):
    """The images of a split as they are tested, in blocks of one size.

    The last one is filled up with its own images; a single block is not.
    """

    def __init__(self, split: Split, count: Callable[[int], object]) -> None:
        super().__init__(workers=1, use_multiprocessing=False)
        self._split = split
        self._count = count  # is told how many images have been read
        self._next = 0
        self.error: Exception | None = None

    def __len__(self) -> int:
        return -(-len(self._split.positions) // _BATCH)

    def __getitem__(self, index: int) -> tuple[np.ndarray]:
        block = self._split.positions[index * _BATCH : (index + 1) * _BATCH]
        with noted(self):
            images = self._split.images.central(block)
        if index:  # with a shorter last one a model would be compiled twice
            images = np.resize(images, (_BATCH, *images.shape[1:]))
        if index >= self._next:  # Keras looks at the first one before it reads all
            self._next = index + 1
            self._count(len(block))
        return (images,)


@contextmanager
def noted(batches: Any) -> Iterator[None]:
    """Keep an error as `batches.error`: TensorFlow replaces it."""
    try:
        yield
    except Exception as error:
        batches.error = error
        raise


@contextmanager
def original_error(batches: Any) -> Iterator[None]:
    """Raise the error of reading batches, not the one TensorFlow made of it."""
    try:
        yield
    except Exception:
        if batches.error is not None:
            raise batches.error from None
        raise


def embed(embedder: keras.Model, split: Split) -> np.ndarray:
    """Embed the images of a split, float32 `[N, dimension]`.

    Raises:
        UnreadableImageError: A file is broken.
        FileNotFoundError: A file is gone.
    """
    with Progress("embedding", len(split.positions)) as progress:
        blocks = _Blocks(split, progress.update)
        with original_error(blocks):
            return embedder.predict(blocks, verbose=0)[: len(split.positions)]


def raw_pixels(split: Split) -> np.ndarray:
    """Embed images as their own 32 x 32 pixels, each centered: the floor to beat."""
    rows = np.empty((len(split.positions), 32 * 32 * 3), "float32")
    with Progress("reading raw pixels", len(rows)) as progress:
        blocks = _Blocks(split, progress.update)
        for index in range(len(blocks)):
            images = blocks[index][0].astype("float32")
            small = keras.ops.image.resize(images, (32, 32), antialias=True)
            flat = keras.ops.convert_to_numpy(small).reshape(len(images), -1)
            # Without this, most of the cosine is the white that all drawings share.
            flat = flat - flat.mean(axis=1, keepdims=True)
            block = rows[index * _BATCH : (index + 1) * _BATCH]
            block[:] = flat[: len(block)]
    return rows
