"""Load the text tower of an embedder: a model from texts to embeddings."""

from os import PathLike
from pathlib import Path

import keras

from tfdml.files import short_names
from tfdml.messages import shown
from tfdml.models._keras_file import read_keras_file


@short_names()
def load_text_tower(path: str | PathLike[str]) -> keras.Model:
    """Load a text tower from a `.keras` file, for `tfdml.export.export_embedder`.

    Args:
        path: `.keras` file of a model from strings `[batch]` or `[batch, 1]`, such as
            one that begins with a `TextVectorization`, to `[batch, dimension]`.

    Returns:
        The model, not compiled.

    Raises:
        ValueError: The file does not exist, Keras cannot load it, or the model does not
            take texts and return one row for each.
        MissingPackageError: It has layers of KerasHub, which is not installed.
    """
    file = Path(path)
    tower = read_keras_file(file, "`path`", "model.save")
    inputs = getattr(tower, "inputs", None) or [None]
    shape = getattr(tower, "output_shape", None)
    is_text = len(inputs) == 1 and getattr(inputs[0], "dtype", None) == "string"
    match shape:
        case (_, int()) if is_text:
            return tower
    raise ValueError(
        "`path` must hold a text tower, from strings (None,) or (None, 1) to (None, "
        f"dimension). Received: {shown(str(file))}, from {shown(inputs)} to "
        f"{shown(shape)}."
    )
