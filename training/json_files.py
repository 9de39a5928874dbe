"""Read and write the JSON files of runs and evaluations."""

import json
from pathlib import Path
from typing import Any

from tfdml.files import written
from tfdml.messages import cut, shortened


def read_json(file: Path) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is damaged; the message names it.
    """
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError as error:  # bad JSON, or bytes that are not text
        raise ValueError(f"{cut(file)} is damaged: {shortened(error)}.") from error


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, indented, whole or not at all."""
    with written(path) as new:
        new.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
