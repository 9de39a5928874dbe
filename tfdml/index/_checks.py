"""Check the arguments of an index other than ids and attributes."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.embeddings import as_embeddings
from tfdml.messages import shown


def own_embeddings(name: str, rows: ArrayLike, *, unit: bool) -> NDArray[np.float32]:
    """Check embeddings, of which nobody else holds the array that is returned.

    What is checked must not change afterwards: ScaNN ends the process on a NaN.

    Args:
        name: The argument's name, for the error.
        rows: Embeddings `[N, D]`.
        unit: Whether rows of zeros are refused.

    Raises:
        ValueError: As `as_embeddings`.
    """
    given = np.asarray(rows) if hasattr(rows, "__array__") else rows
    if isinstance(given, np.ndarray) and given.dtype == np.float32:
        given = given.copy()
    return as_embeddings(name, given, unit=unit)


def of_dimension(
    name: str, rows: NDArray[np.float32], dimension: int, whole: int | None = None
) -> NDArray[np.float32]:
    """Return checked embeddings, if they have the dimension of the index.

    `whole` is that of embeddings before they were cut, where it is another one.
    """
    if rows.shape[1] != dimension:
        ours = "" if whole is None else f", or {whole}, of which it keeps the first"
        raise ValueError(
            f"`{name}` must have the dimension of the index, {dimension}{ours}. "
            f"Received: shape={rows.shape}."
        )
    return rows


def check_count(ids: NDArray[Any], rows: int) -> None:
    """Check that there are as many ids as rows."""
    if len(ids) != rows:
        raise ValueError(
            f"`ids` must hold one id for each of the {rows} rows. "
            f"Received: {len(ids)} ids."
        )


def check_update(embeddings: object, attributes: object) -> None:
    """Check that an update replaces something."""
    if embeddings is None and attributes is None:
        raise ValueError(
            "`update` must be given `embeddings` or `attributes` to replace."
        )


def check_embed(embed: object) -> None:
    """Check that `embed` is a function or None."""
    if embed is not None and not callable(embed):
        raise ValueError(
            f"`embed` must be a function of images, or None. Received: {shown(embed)}."
        )


def check_fingerprint(model_fingerprint: object) -> None:
    """Check that a fingerprint is a string."""
    if not isinstance(model_fingerprint, str):
        raise ValueError(
            "`model_fingerprint` must be a string. Received: "
            f"{shown(model_fingerprint)}."
        )


def check_load(model_fingerprint: object, embed: object) -> None:
    """Check the arguments of a load before a file is opened.

    Errors raised while reading are reported as damage of the files.
    """
    check_embed(embed)
    if model_fingerprint is not None:
        check_fingerprint(model_fingerprint)
