"""Read and write the calibration that an exported model carries.

It lies at `VERSION/assets.extra/calibration.json`: `assets.extra` is where TF Serving
looks for files of others and loads none of its own from but warm-up requests. The
description of the model (`tfdml.export`) repeats it for those who ask the
server.
"""

import json
from os import PathLike
from pathlib import Path

from tfdml.files import written
from tfdml.metrics import Calibration
from tfdml.model_version import read_description, update_description

_NAME = "calibration.json"
_FOLDER = "assets.extra"


def save_calibration(
    model_folder: str | PathLike[str], calibration: Calibration
) -> None:
    """Add a calibration to an exported model, whole or not at all.

    The description of the model, where it has one, holds it too. The fingerprint of
    the model stays what it was.

    Args:
        model_folder: Folder of one version.
        calibration: What to keep.
    """
    folder = Path(model_folder) / _FOLDER
    folder.mkdir(exist_ok=True)
    with written(folder / _NAME) as new:
        text = json.dumps(calibration.to_json(), indent=2) + "\n"
        new.write_text(text, encoding="utf-8")
    if read_description(model_folder) is not None:
        update_description(model_folder, calibration=calibration.to_json())


def calibration_of_model(model_folder: str | PathLike[str]) -> Calibration | None:
    """Read the calibration that an exported model carries.

    Args:
        model_folder: Folder of one version.

    Returns:
        The calibration, or None where there is none.

    Raises:
        ValueError: The file is damaged.
    """
    file = Path(model_folder) / _FOLDER / _NAME
    return Calibration.read(file) if file.is_file() else None
