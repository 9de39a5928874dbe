"""Store embeddings in fewer bytes: float16, or int8 with a scale for each row."""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arrays import as_array
from tfdml.messages import shown

OutputType = Literal["float32", "float16", "int8"]
"""Type of the embeddings that an exported model returns."""

_LARGEST = 127  # of int8; -128 is not used, so that the range is symmetric


def check_output_type(output_dtype: str) -> None:
    """Refuse a type that an embedding cannot be exported in.

    Raises:
        ValueError: It is none of `"float32"`, `"float16"` and `"int8"`.
    """
    if output_dtype not in get_args(OutputType):
        raise ValueError(
            f"`output_dtype` must be one of {get_args(OutputType)}. "
            f"Received: output_dtype={shown(output_dtype)}."
        )


def compact_signature(output_dtype: OutputType) -> str:
    """Return the name of the signature that answers in this type."""
    if output_dtype == "float32":
        return "serving_default"
    return f"embed_{output_dtype}"


def compact_outputs(embedding: Any, output_dtype: OutputType) -> dict[str, Any]:
    """Turn embeddings in a TensorFlow graph into fewer bytes.

    - `"float16"`: every number rounded to the nearest float16.
    - `"int8"`: with `scale = max(|row|) / 127` for each row, `round(row / scale)`. One
      scale for all rows would have to be 1 / 127, of which the numbers of a unit
      vector of 512 dimensions, 0.04 in the mean, are five steps. A scale of its own
      leaves each row 127 steps whatever its dimension, needs no calibration set, and
      cancels out of cosine similarities of one row with all others.

    Args:
        embedding: Tensor, float32 `[batch, dimension]`, finite.
        output_dtype: `"float32"` (nothing changes), `"float16"` or `"int8"`.

    Returns:
        `embedding`, `[batch, dimension]` of the type, and for `"int8"` also `scale`,
        float32 `[batch]`. `restore_embeddings` undoes it. A row of zeros stays one.
    """
    import tensorflow as tf

    check_output_type(output_dtype)
    if output_dtype == "float32":
        return {"embedding": embedding}
    if output_dtype == "float16":
        return {"embedding": tf.cast(embedding, tf.float16)}
    scale = tf.reduce_max(tf.abs(embedding), axis=1) / _LARGEST
    steps = tf.round(tf.math.divide_no_nan(embedding, scale[:, tf.newaxis]))
    return {"embedding": tf.cast(steps, tf.int8), "scale": scale}


def restore_embeddings(
    embedding: ArrayLike, scale: ArrayLike | None = None
) -> NDArray[np.float32]:
    """Turn the output of a compact signature back into unit vectors.

    Rounding changes lengths a little; the result has length 1 again. A row of zeros
    stays one.

    Args:
        embedding: Output `embedding`, float16, int8 or float32 `[batch, dimension]`.
        scale: Output `scale`, `[batch]`, which int8 needs: not for the directions,
            but for telling a row that is NaN.

    Returns:
        float32 `[batch, dimension]`.

    Raises:
        ValueError: int8 without `scale`, or shapes that do not fit.

    Example:
        >>> steps = np.array([[127, 0], [95, 127]], "int8")
        >>> restore_embeddings(steps, [0.01, 0.01]).round(3).tolist()
        [[1.0, 0.0], [0.5989999771118164, 0.8009999990463257]]
    """
    rows = as_array("embedding", embedding)
    if rows.ndim != 2:
        raise ValueError(
            "`embedding` must have the shape [batch, dimension]. "
            f"Received: shape={rows.shape}."
        )
    if rows.dtype == np.int8 and scale is None:
        raise ValueError("`scale` must be given with an `embedding` of int8.")
    numbers = rows.astype(np.float32)
    if scale is not None:
        factors = np.asarray(scale, dtype=np.float32)
        if factors.shape != rows.shape[:1]:
            raise ValueError(
                f"`scale` must have the shape [{len(rows)}], one for each row. "
                f"Received: shape={factors.shape}."
            )
        numbers *= factors[:, np.newaxis]
    lengths = np.sqrt(np.square(numbers).sum(axis=1, keepdims=True))
    return (numbers / np.where(lengths == 0, 1, lengths)).astype(np.float32)
