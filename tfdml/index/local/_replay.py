"""Making the changes of a log again: each must fit what is there."""

import numpy as np

from tfdml.index.rows import Table, kind_of
from tfdml.index.storage import Change, LogError


def check_fits(change: Change, table: Table, dimension: int) -> None:
    """Refuse a change that cannot have been made to a table.

    A row that is removed in spite of not being there would be the last one of all; an
    id that is added twice would leave a row that nobody can remove.

    Args:
        change: What the log holds next.
        table: What it is about to be made to.
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
        "the kind of an attribute": all(
            known.get(name, kind) == kind for name, kind in kinds.items()
        ),
    }
    for what, fit in fits.items():
        if not fit:
            raise LogError(f"it holds a change that does not fit: {what}")
    if (table.rows_of(change.removed) < 0).any():
        raise LogError("it holds a change that does not fit: a removed id is not there")
    there = table.rows_of(change.ids) >= 0
    if not np.isin(change.ids[there], change.removed).all():
        raise LogError("it holds a change that does not fit: an added id is there")
