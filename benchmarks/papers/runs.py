"""Describe one run by its recipe, and keep its result."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

FLOOR = "floor"
"""The study of what was not trained."""

NOT_TRAINED = "not trained"
RAW_PIXELS = "raw pixels"
AT_RANDOM = "at random"
FLOORS = (NOT_TRAINED, RAW_PIXELS, AT_RANDOM)
"""Its series: the pretrained network's features, the pixels, and random numbers."""

Tables = dict[str, dict[str, Any]]
"""The tables of a recipe by their names."""

Record = dict[str, Any]
"""What a file of results has of a run: what it is, and what it reached."""


@dataclass(frozen=True)
class Run:
    """A run.

    Args:
        study: Which study first asks for it.
        series: What is compared there, such as the name of the loss.
        tables: The tables of its recipe; `images` in `[data]` names the set.
        point: At which value of what the study varies; None where it varies nothing.
        split: What is measured, `"validation"` or `"test"`.
        thinned: How unequal the training classes are made, from 0 to 1; see
            `benchmarks.papers.splits.thinned`.
        noise: The share of training images that get the label of another class; see
            `benchmarks.papers.splits.mislabeled`.
        classes: How many training classes are trained on at a time, drawn anew at each
            epoch; see `benchmarks.papers.sampled_classes`. 0: all.
        prefix: How many first components of the embeddings are measured. 0: all.
        prefixes: Of one training all that are measured, each as a run of its own.
        unit_length: Whether embeddings have unit length. Without, classes are still
            measured by cosine, continuous labels by distance.
        with_curve: Whether it is also measured after each epoch.
        is_trained: Whether it is trained at all.
        is_timed: Whether its step is timed, and nothing measured.
    """

    study: str
    series: str
    tables: Tables
    point: float | str | None = None
    split: str = "test"
    thinned: float = 0.0
    noise: float = 0.0
    classes: int = 0
    prefix: int = 0
    prefixes: tuple[int, ...] = ()
    unit_length: bool = True
    with_curve: bool = False
    is_trained: bool = True
    is_timed: bool = False

    @property
    def set(self) -> str:
        """The name of the set."""
        return str(self.tables["data"]["images"])

    @property
    def work(self) -> str:
        """Tells apart runs that do not compute the same, whatever they are called.

        What is not trained is identified by its series.
        """
        names = _NAMES if self.is_trained else ()
        return _hash({k: v for k, v in self._about().items() if k not in names})

    @property
    def training(self) -> str:
        """Tells apart runs that do not train the same, whatever they measure of it."""
        return replace(self, prefix=0).work

    def found_by(self, found: Record) -> list[tuple["Run", Record]]:
        """Return the runs that one training has done, each with what it has found.

        Args:
            found: What was found; `of_prefixes` in it has what belongs to each prefix,
                and is left out where all diverged.
        """
        if not self.prefixes:
            return [(self, found)]
        common = dict(found)
        parts = common.pop("of_prefixes", [{}] * len(self.prefixes))
        return [
            (replace(self, prefix=prefix, point=prefix), common | part)
            for prefix, part in zip(self.prefixes, parts, strict=True)
        ]

    @property
    def key(self) -> str:
        """Tells apart runs that do not compute the same or are called otherwise."""
        return _hash(self._about())

    def _about(self) -> dict[str, Any]:
        """Return its fields; some only where they count, as in earlier files."""
        fields = asdict(self)
        for name in _LATER:
            if not fields[name]:
                del fields[name]
        return fields

    def record(self) -> Record:
        """Return what it is, as a file of results has it."""
        return {"key": self.key, "work": self.work, "set": self.set, **self._about()}

    def renamed(self, record: Record) -> Record:
        """Return the result of a run that does the same work as this one's."""
        return record | self.record()


_NAMES = ("study", "series", "point")
_LATER = ("classes", "prefix", "prefixes")


def _hash(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def read_results(files: Iterable[Path]) -> dict[str, Record]:
    """Read files of results: each record by the key of its run.

    A line that is cut short, as by a process that was killed, is reported and left out.
    """
    records = {}
    for file in files:
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                print(f"Left out of {file}, as it is cut short: {line[:60]}...")
                continue
            records[record["key"]] = record
    return records
