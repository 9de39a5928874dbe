"""Turn items into rows of a Milvus collection, and rows into requests."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.embeddings import as_embeddings
from tfdml.index._checks import check_count
from tfdml.index.milvus._collection import EMBEDDING
from tfdml.index.milvus._filters import ATTRIBUTES, ID, SMALLEST, key_of, name_of
from tfdml.index.rows import (
    TYPES,
    Checked,
    Ids,
    Scalar,
    check_attributes,
    kind_of,
    read_ids,
)
from tfdml.messages import shown

LONGEST_ATTRIBUTES = 65_535
"""Bytes of an item's attributes as JSON, which Milvus takes."""


class Rows(NamedTuple):
    """Items that Milvus will take.

    Attributes:
        ids: Their ids `[N]`.
        embeddings: Float32 `[N, D]`.
        attributes: Those of each; None for a missing one.
        sizes: The bytes of each in a request `[N]`.
    """

    ids: NDArray[Any]
    embeddings: NDArray[np.float32]
    attributes: Sequence[Mapping[str, Scalar | None]]
    sizes: NDArray[np.int64]

    def values(self, part: slice) -> list[dict[str, Any]]:
        """Return some items as pymilvus writes them."""
        return [
            {ID: name, EMBEDDING: embedding, ATTRIBUTES: _packed(own)}
            for name, embedding, own in zip(
                self.ids[part].tolist(),
                self.embeddings[part],
                self.attributes[part],
                strict=True,
            )
        ]


def _packed(attributes: Mapping[str, Scalar | None]) -> dict[str, Scalar]:
    return {key_of(name): v for name, v in attributes.items() if v is not None}


def check_milvus_ids(
    ids: Ids, *, kind: str | None, may_repeat: bool = False
) -> NDArray[Any]:
    """Return ids as `read_ids` does, if Milvus can hold and name them.

    Raises:
        ValueError: As `read_ids`, or an integer is -2**63.
    """
    checked = read_ids(ids, kind=kind, may_repeat=may_repeat)
    if kind_of(checked) == "integer" and (checked == SMALLEST).any():
        raise ValueError(
            "`ids` must be above -2**63, which cannot be queried in Milvus. "
            f"Received: {SMALLEST}."
        )
    return checked


def rows_of_gallery(
    embeddings: ArrayLike,
    ids: Ids | None,
    attributes: Mapping[str, Sequence[Any]] | None,
    *,
    unit: bool,
) -> tuple[Rows, dict[str, str]]:
    """Return the rows of a new collection, and the kinds of their attributes.

    Args:
        embeddings: As `MilvusIndex.build` is given them, as of all that follow.
        ids: One per row, or None.
        attributes: See `Index.add`.
        unit: Whether rows of zeros are refused.

    Raises:
        ValueError: A shape, dtype, value, id or attribute is not as stated there.
    """
    gallery = as_embeddings("embeddings", embeddings, unit=unit)
    rows = len(gallery)
    given = np.arange(rows) if ids is None else ids
    of_strings = isinstance(given, np.ndarray) and given.dtype.kind in "UT"
    checked = check_milvus_ids(given, kind="string" if of_strings else None)
    check_count(checked, rows)
    new = check_attributes(attributes, rows, {})
    kinds = {name: kind for name, (kind, _) in new.items()}
    return make_rows(checked, gallery, attributes_of_rows(new, rows)), kinds


def size_of_ids(ids: NDArray[Any]) -> NDArray[np.int64]:
    """Return how many bytes each id has in a request."""
    if kind_of(ids) == "integer":
        return np.full(len(ids), 24, np.int64)
    return np.array([len(value.encode()) for value in ids.tolist()], np.int64)


def attributes_of_rows(checked: Checked, rows: int) -> list[dict[str, Scalar | None]]:
    """Return the attributes of each row, None for missing ones."""
    columns = [(name, values) for name, (_, values) in checked.items()]
    return [{name: values[row] for name, values in columns} for row in range(rows)]


def make_rows(
    ids: NDArray[Any],
    embeddings: NDArray[np.float32],
    attributes: Sequence[Mapping[str, Scalar | None]],
) -> Rows:
    """Check that Milvus will take items.

    Args:
        ids: Checked ids `[N]`.
        embeddings: Float32 `[N, D]`.
        attributes: Those of each row.

    Returns:
        The rows.

    Raises:
        ValueError: The attributes of a row are too long, or an integer is -2**63.
    """
    lengths = [_checked_length(_packed(own)) for own in attributes]
    sizes = size_of_ids(ids) + 4 * embeddings.shape[1] + np.array(lengths, np.int64)
    return Rows(ids, embeddings, attributes, sizes)


def _checked_length(values: Mapping[str, Scalar]) -> int:
    for key, value in values.items():
        if value == SMALLEST and isinstance(value, int):
            raise ValueError(
                f"`attributes[{shown(name_of(key))}]` must be above -2**63, which "
                f"cannot be queried in Milvus. Received: {shown(value)}."
            )
    length = len(json.dumps(values, ensure_ascii=False).encode())
    if length > LONGEST_ATTRIBUTES:
        raise ValueError(
            f"`attributes` of one item must have at most {LONGEST_ATTRIBUTES} bytes "
            f"as JSON, Milvus' limit. Received: {length} bytes."
        )
    return length


def attributes_of(row: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the attributes of a row that pymilvus has read, as JSON has them."""
    given = row[ATTRIBUTES]
    if isinstance(given, str | bytes):
        given = json.loads(given)
    return {name_of(key): value for key, value in given.items() if value is not None}


def of_kinds(
    attributes: Mapping[str, Scalar], kinds: Mapping[str, str]
) -> dict[str, Scalar]:
    """Return attributes in their kinds; those that nobody declared are left out."""
    return {
        name: TYPES[kinds[name]](value)
        for name, value in attributes.items()
        if name in kinds
    }


def batches(sizes: NDArray[np.int64], rows: int, most: int) -> Iterator[slice]:
    """Split rows into requests.

    Args:
        sizes: The bytes of each row.
        rows: The most rows in one request.
        most: The most bytes.
    """
    first, total = 0, 0
    for row, size in enumerate(sizes.tolist()):
        if row > first and (row - first == rows or total + size > most):
            yield slice(first, row)
            first, total = row, 0
        total += size
    if first < len(sizes):
        yield slice(first, len(sizes))
