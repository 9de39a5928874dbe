"""Read models from `.keras` files."""

import re
import zipfile
from pathlib import Path

import keras

from tfdml.messages import cut, shown


def read_keras_file(file: Path, argument: str, writer: str) -> keras.Model:
    """Read a model, not compiled.

    Args:
        file: The file.
        argument: What messages call the argument that names it.
        writer: What writes such a file.

    Raises:
        ValueError: The file does not exist, or Keras cannot load it.
        MissingPackageError: It holds layers of KerasHub, which is not installed.
    """

    def refused(reason: str) -> ValueError:
        return ValueError(
            f"{argument} must be a `.keras` file that `{writer}` wrote. "
            f"Received: {shown(str(file))}, {reason}."
        )

    if not file.exists():
        raise refused("which does not exist")
    if not zipfile.is_zipfile(file):
        raise refused("which is damaged or of another format")
    if _has_hub_layers(file):
        # Keras would import only the modules of its classes, and not say which
        # extra brings them.
        import keras_hub  # noqa: F401
    try:
        return keras.saving.load_model(file, compile=False)
    except MemoryError:
        raise
    except Exception as error:  # Keras lets through what zipfile, json and h5py raise
        reason = f"which Keras cannot load ({type(error).__name__}: {gist(error)})"
        raise refused(reason) from error


def _has_hub_layers(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return b'"keras_hub' in archive.read("config.json")
    except (KeyError, OSError, zipfile.BadZipFile):
        return False  # Keras says what is wrong


def gist(error: Exception) -> str:
    """Return the first sentence of the innermost error: Keras prints pages."""
    message = str(error).rpartition("Exception encountered: ")[2]
    # Before the reason Keras says what was called, and after it with which arguments.
    message = re.sub(r"^Exception encountered when calling .*?\.\n\n", "", message)
    message = re.sub(r"\x1b\[\d*m", "", message).partition("Arguments received by")[0]
    return cut(" ".join(message.split()).split(". ")[0].removesuffix("."), 200)
