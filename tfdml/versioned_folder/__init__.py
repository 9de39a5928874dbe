"""Keep an index, or a part of one, in a folder that is replaced as a whole."""

from tfdml.versioned_folder._kept import HeldFolder, held, kept_manifest
from tfdml.versioned_folder._manifest import (
    IndexFileError,
    check_class,
    check_file,
    check_notes,
    read_manifest,
)
from tfdml.versioned_folder._versions import (
    LockedError,
    check_destination,
    check_unlocked,
    lock_log,
    log_of,
    read_version,
    saved_data,
    write_version,
)

__all__ = [
    "HeldFolder",
    "IndexFileError",
    "LockedError",
    "check_class",
    "check_destination",
    "check_file",
    "check_notes",
    "check_unlocked",
    "held",
    "kept_manifest",
    "lock_log",
    "log_of",
    "read_manifest",
    "read_version",
    "saved_data",
    "write_version",
]
