"""What is trained and measured: one run by its recipe, and how its result is kept."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.papers.sets import Tables

__all__ = ["Run", "read_results"]


@dataclass(frozen=True)
class Run:
    """A run.

    Args:
        study: Which study first asks for it.
        name: What it is called there, such as the name of the loss.
        tables: The tables of its recipe; `images` in `[data]` names the set.
        split: What is measured, `"validation"` or `"test"`.
        with_curve: Whether it is also measured after each epoch.
        is_trained: Whether it is trained at all.
    """

    study: str
    name: str
    tables: Tables
    split: str = "test"
    with_curve: bool = False
    is_trained: bool = True

    @property
    def set(self) -> str:
        """The name of the set."""
        return str(self.tables["data"]["images"])

    @property
    def seed(self) -> int:
        """The seed."""
        return int(self.tables["fit"].get("seed", 0))

    @property
    def key(self) -> str:
        """Tells apart runs that do not compute the same, whatever they are called."""
        about = asdict(self)
        del about["study"], about["name"]
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def read_results(files: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Read files of results: each record by the key of its run."""
    records = {}
    for file in files:
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            record = json.loads(line)
            records[record["key"]] = record
    return records
