"""Split images into requests, and check the embeddings that answer them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.messages import shortened

from .metadata import OUTPUT

_REQUEST_BYTES = 16_000_000


def split(prepared: Iterable[bytes], batch_size: int) -> Iterator[list[bytes]]:
    """Split encoded images into requests.

    Args:
        prepared: The images; taken as they are needed.
        batch_size: Most images in one request, at least 1.

    Yields:
        Images of 16 MB together at most, or a single larger one.
    """
    batch: list[bytes] = []
    total = 0
    for encoded in prepared:
        is_full = len(batch) == batch_size
        if batch and (is_full or total + len(encoded) > _REQUEST_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(encoded)
        total += len(encoded)
    if batch:
        yield batch


def rows_of(predictions: Sequence[Any]) -> NDArray[np.float32]:
    """Check that predictions are embeddings.

    Args:
        predictions: One per image: a row of numbers, or a dict of outputs, of which
            `embedding` is taken.

    Returns:
        float32 `[len(predictions), dimension]`, finite; no row is all zeros.

    Raises:
        ValueError: They are something else; the message says what is expected.
    """
    if all(isinstance(row, dict) and OUTPUT in row for row in predictions):
        predictions = [row[OUTPUT] for row in predictions]
    try:
        rows = np.asarray(predictions, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"rows of numbers are expected: {shortened(error)}") from error
    if rows.ndim != 2 or not rows.shape[1] or not np.isfinite(rows).all():
        raise ValueError("an embedding must be a row of finite numbers")
    if not rows.any(axis=1).all():
        raise ValueError("an embedding of zeros has no direction")
    return rows
