"""Progress of a command, on the standard error."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm


def progress_bar(parsed: argparse.Namespace, total: int, what: str) -> "tqdm[Any]":
    """Begin a bar of `total` images; none with `--json` or without a terminal."""
    from tqdm import tqdm

    disable = True if parsed.json else None  # None: where there is no terminal
    bar: tqdm[Any] = tqdm(
        total=total, desc=what, unit=" images", disable=disable, leave=False
    )
    return bar
