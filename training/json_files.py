"""Read and write the JSON files of runs and evaluations."""

import json
import os
from pathlib import Path
from typing import Any


def read_json(file: Path) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is damaged; the message names it.
    """
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError as error:  # bad JSON, or bytes that are not text
        raise ValueError(f"{file} is damaged: {error}.") from error


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, indented, whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(json.dumps(value, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
