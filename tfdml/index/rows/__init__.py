"""Hold the items of an index in memory: ids, attributes and embeddings."""

from tfdml.index.rows._attributes import Checked, Column, Columns, check_attributes
from tfdml.index.rows._column_view import TYPES, ColumnView, Scalar
from tfdml.index.rows._exclusions import banned_rows, check_exclude, leaving_out_alike
from tfdml.index.rows._id_map import IdMap
from tfdml.index.rows._ids import (
    LONGEST_ID,
    Ids,
    StoredIds,
    check_ids,
    handed_out,
    kind_of,
    read_ids,
    stored,
)
from tfdml.index.rows._row_searcher import RowSearcher
from tfdml.index.rows._table import Snapshot, Table
from tfdml.index.rows._texts import Texts

__all__ = [
    "LONGEST_ID",
    "TYPES",
    "Checked",
    "Column",
    "ColumnView",
    "Columns",
    "IdMap",
    "Ids",
    "RowSearcher",
    "Scalar",
    "Snapshot",
    "StoredIds",
    "Table",
    "Texts",
    "banned_rows",
    "check_attributes",
    "check_exclude",
    "check_ids",
    "handed_out",
    "kind_of",
    "leaving_out_alike",
    "read_ids",
    "stored",
]
