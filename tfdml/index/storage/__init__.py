"""Store an index in a folder: manifest, files and change log."""

from tfdml.index.storage._files import (
    check_destination,
    check_unlocked,
    log_of,
    read_version,
    saved_data,
    write_version,
)
from tfdml.index.storage._log import (
    Change,
    ChangeLog,
    LockedError,
    LogError,
    create_log,
    has_whole_length,
    read_log,
    start_of,
)
from tfdml.index.storage._manifest import (
    IndexFileError,
    check_class,
    check_file,
    check_notes,
    read_manifest,
)
from tfdml.index.storage._table_files import describe_table, read_table, write_table

__all__ = [
    "Change",
    "ChangeLog",
    "IndexFileError",
    "LockedError",
    "LogError",
    "check_class",
    "check_destination",
    "check_file",
    "check_notes",
    "check_unlocked",
    "create_log",
    "describe_table",
    "has_whole_length",
    "log_of",
    "read_log",
    "read_manifest",
    "read_table",
    "read_version",
    "saved_data",
    "start_of",
    "write_table",
    "write_version",
]
