"""Call the text tower of an embedder: texts in, rows out."""

from typing import Any

import keras

from tfdml.messages import shortened, shown

_PROBES = ["a red shoe", ""]


def outputs_of_texts(tower: keras.Model, texts: Any) -> Any:
    """Return what a text tower makes of texts, a string tensor `[batch]`."""
    import tensorflow as tf

    shape = getattr(tower, "input_shape", None)
    has_columns = isinstance(shape, tuple) and len(shape) == 2
    return tower(texts[:, tf.newaxis] if has_columns else texts, training=False)


def check_text_tower(tower: keras.Model, dimension: int) -> None:
    """Check that a model makes embeddings of texts, also of an empty one.

    Args:
        tower: The model.
        dimension: That of the embeddings of images.

    Raises:
        ValueError: It does not.
    """
    import tensorflow as tf

    rule = (
        "`text` must be a Keras model from strings [batch] or [batch, 1] to embeddings "
        f"[batch, {dimension}], as long as those of images"
    )
    if not isinstance(tower, keras.Model):
        raise ValueError(f"{rule}. Received: {shown(tower)}.")
    try:
        found = tuple(outputs_of_texts(tower, tf.constant(_PROBES)).shape)
    except Exception as error:  # Keras lets through whatever its layers raise
        reason = f"{type(error).__name__}: {shortened(error, 150)}"
        raise ValueError(f"{rule}. Received: a model that fails ({reason}).") from error
    if found != (len(_PROBES), dimension):
        raise ValueError(
            f"{rule}. Received: the shape {found} for {len(_PROBES)} texts."
        )
