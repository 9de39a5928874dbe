"""Check the changes of a table: those that a caller asks for, and those of a log."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index._checks import check_count
from tfdml.index.rows import (
    Checked,
    Ids,
    Table,
    check_attributes,
    kind_of,
    read_ids,
)
from tfdml.index.storage import Change, LogError
from tfdml.messages import shown

Attributes = Mapping[str, Sequence[Any]] | None


def addition(
    table: Table, embeddings: NDArray[np.float32], ids: Ids, attributes: Attributes
) -> Change:
    """Return the change that adds items; see `Index.add`.

    Args:
        table: The table to be changed.
        embeddings: Checked rows of the index's dimension, `[N, D]`.
        ids: As they were given.
        attributes: As they were given.

    Raises:
        ValueError: Ids or attributes do not fit, or an id exists already.
    """
    checked = read_ids(ids, kind=table.kind)
    check_count(checked, len(embeddings))
    new = _checked(table, attributes, len(embeddings), np.empty(0, np.int64))
    there = table.rows_of(checked) >= 0
    if there.any():
        raise ValueError(
            "`ids` must not be in the index already. "
            f"Received: {shown(checked[there].tolist()[0])}. Use `update`."
        )
    return Change(checked[:0], checked, embeddings, new)


def replacement(
    table: Table,
    ids: NDArray[Any],
    old: NDArray[np.int64],
    embeddings: NDArray[np.float32] | None,
    attributes: Attributes,
) -> Change | None:
    """Return the change that updates items; see `Index.update`.

    Args:
        table: The table to be changed.
        ids: Checked ids.
        old: Their rows.
        embeddings: Checked rows of the index's dimension; None: they stay.
        attributes: As they were given.

    Returns:
        The change; None if no attribute was named.

    Raises:
        ValueError: Embeddings or attributes do not fit.
    """
    state = table.snapshot
    if embeddings is not None:
        check_count(ids, len(embeddings))
    new = _checked(table, attributes, len(ids), old)
    if embeddings is None:
        if not new:
            return None
        embeddings = state.embeddings_of(old)
    return Change(ids, ids, embeddings, {**state.attributes_of(old), **new})


def _checked(
    table: Table, attributes: Attributes, rows: int, removed: NDArray[np.int64]
) -> Checked:
    """Check the attributes of new rows, in the place of removed ones."""
    return check_attributes(
        attributes,
        rows,
        table.kinds,
        lambda name, kind: table.may_become(name, kind, removed),
    )


def rows_there(table: Table, ids: NDArray[Any]) -> NDArray[np.int64]:
    """Return the row of each id.

    Raises:
        KeyError: An id is not in the index.
    """
    rows = table.rows_of(ids)
    if (rows < 0).any():
        raise KeyError(
            f"`ids` must be in the index. Received: {shown(ids[rows < 0].tolist()[0])}."
        )
    return rows


def of_kind(ids: NDArray[Any], table: Table) -> Table:
    """Return the table that ids are added to: the first of all decide on the kind."""
    if not len(ids) or table.kind is not None:
        return table
    same = kind_of(table.snapshot.base_ids) == kind_of(ids)
    return table if same else table.emptied(ids)


def rows_of(
    change: Change, table: Table
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[Any], Checked]:
    """Return the arguments of `Table.replace` for a change."""
    removed = table.rows_of(change.removed)
    return removed, change.embeddings, change.ids, change.attributes


def check_fits(change: Change, table: Table, dimension: int) -> None:
    """Check that a change can have been made to a table.

    Removing a row that does not exist would remove the last one; adding an id twice
    would leave a row that cannot be removed.

    Args:
        change: The next one in the log.
        table: The table that it is about to be made to.
        dimension: That of the index.

    Raises:
        LogError: It does not fit.
    """
    ids = change.ids if len(change.ids) else change.removed
    known = table.kinds
    kinds = {name: kind for name, (kind, _) in change.attributes.items()}
    fits = {
        "the dimension of its embeddings": change.embeddings.shape[1] == dimension,
        "an embedding that is not finite": np.isfinite(change.embeddings).all(),
        "the kind of its ids": table.kind in (None, kind_of(ids)),
    }
    for what, fit in fits.items():
        if not fit:
            raise LogError(f"it holds a change that does not fit: {what}")
    removed = table.rows_of(change.removed)
    if (removed < 0).any():
        raise LogError("it holds a change that does not fit: a removed id is missing")
    for name, kind in kinds.items():
        is_same = known.get(name, kind) == kind
        if not (is_same or table.may_become(name, kind, removed)):
            raise LogError(
                "it holds a change that does not fit: the kind of an attribute"
            )
    there = table.rows_of(change.ids) >= 0
    if not set(change.ids[there].tolist()) <= set(change.removed.tolist()):
        raise LogError("it holds a change that does not fit: an added id exists")
