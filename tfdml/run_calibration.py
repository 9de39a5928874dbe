"""Keep the calibration of a run beside the embedder that it was chosen for."""

import json
from os import PathLike
from pathlib import Path

from tfdml.command_parser import command
from tfdml.files import sha256_of, written
from tfdml.metrics import Calibration

CALIBRATION = "calibration.json"
"""Name of the file in a run folder."""

_EMBEDDER = "embedder.keras"
_DIGEST = "embedder_sha256"


def write_calibration(embedder: str | PathLike[str], calibration: Calibration) -> None:
    """Write the calibration of an embedder beside it, whole or not at all.

    Args:
        embedder: The file `embedder.keras` of a run.
        calibration: What was chosen for it.

    Raises:
        FileNotFoundError: There is no such embedder.
    """
    file = Path(embedder).parent / CALIBRATION
    values = calibration.to_json() | {_DIGEST: sha256_of(embedder)}
    with written(file) as new:
        new.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def read_calibration(embedder: str | PathLike[str]) -> Calibration | None:
    """Read the calibration of an embedder.

    Args:
        embedder: The `.keras` file. Only `embedder.keras` of a run is calibrated, and
            not `last.keras` beside it.

    Returns:
        The calibration; None where there is none. That of older runs, which does not
        name its embedder, is taken as it is.

    Raises:
        ValueError: The file is damaged, or was chosen for another embedder.
    """
    source = Path(embedder)
    file = source.parent / CALIBRATION
    if source.name != _EMBEDDER or not file.is_file():
        return None
    calibration = Calibration.read(file)
    chosen_for = json.loads(file.read_text("utf-8")).get(_DIGEST)
    if chosen_for is not None and chosen_for != sha256_of(source):
        raise ValueError(
            f"{file} was chosen for another {_EMBEDDER} than the one beside it now. "
            f"Run `{command('training', 'calibrate')}` again, or remove the file to go "
            "without a threshold."
        )
    return calibration
