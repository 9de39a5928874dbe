"""Hold the items of an index in memory: ids, attributes and embeddings."""

from tfdml.index.rows._attributes import Checked, Column, Columns, check_attributes
from tfdml.index.rows._column_view import TYPES, ColumnView, Scalar
from tfdml.index.rows._exclusions import banned_rows, check_exclude, leaving_out_alike
from tfdml.index.rows._ids import (
    LONGEST_ID,
    IdMap,
    Ids,
    check_ids,
    check_widths,
    kind_of,
)
from tfdml.index.rows._table import Snapshot, Table

__all__ = [
    "LONGEST_ID",
    "TYPES",
    "Checked",
    "Column",
    "ColumnView",
    "Columns",
    "IdMap",
    "Ids",
    "Scalar",
    "Snapshot",
    "Table",
    "banned_rows",
    "check_attributes",
    "check_exclude",
    "check_ids",
    "check_widths",
    "kind_of",
    "leaving_out_alike",
]
