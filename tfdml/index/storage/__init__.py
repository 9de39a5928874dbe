"""Store what is in an index: the files of its table, and the log of its changes."""

from tfdml.index.storage._log import (
    Change,
    ChangeLog,
    LogError,
    create_log,
    has_whole_length,
    read_log,
    start_of,
)
from tfdml.index.storage._table_files import describe_table, read_table, write_table

__all__ = [
    "Change",
    "ChangeLog",
    "LogError",
    "create_log",
    "describe_table",
    "has_whole_length",
    "read_log",
    "read_table",
    "start_of",
    "write_table",
]
