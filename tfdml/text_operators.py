"""Load the operators of TensorFlow Text, before a model that splits texts is loaded.

TensorFlow knows an operator once its library was loaded into the process. TensorFlow
Serving has those of TensorFlow Text built in.
"""

from os import PathLike
from pathlib import Path

from tfdml.messages import shortened

_OPERATORS = (b"SentencepieceTokenizeOp", b"RegexSplitWithOffsets")


def register_text_operators(folder: str | PathLike[str]) -> None:
    """Make the operators known if a SavedModel may have one of them.

    Args:
        folder: Folder of one version, with `saved_model.pb`.

    Raises:
        RuntimeError: It has one, and they cannot be had here.
        OSError: The file cannot be read.
    """
    graph = (Path(folder) / "saved_model.pb").read_bytes()
    if not any(name in graph for name in _OPERATORS):
        return
    try:
        import tensorflow_text  # type: ignore[import-untyped]  # noqa: F401
    except Exception as error:
        # Not only ImportError: beside another TensorFlow its library cannot be loaded.
        raise RuntimeError(
            "its text tower needs TensorFlow Text (pip install tensorflow-text), which "
            f"cannot be loaded here ({type(error).__name__}: {shortened(error)})"
        ) from error
