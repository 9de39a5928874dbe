"""Multiply, compare and count tensors of any backend, in types that can count."""

from typing import Any

import keras
from keras import ops

Tensor = Any
"""A tensor of whichever backend Keras runs on."""


def products(anchors: Tensor, gallery: Tensor) -> Tensor:
    """Compute the dot product of every anchor with every gallery item, `[A, G]`."""
    result = ops.matmul(anchors, ops.transpose(gallery))
    if keras.backend.backend() == "jax":
        import jax

        # JAX 0.11 on GPUs copies the gradient of this matrix for each of the two
        # products that follow, if its last step is only a factor. With a barrier that
        # step is fused with the others: a quarter of the passes of some losses.
        result = jax.lax.optimization_barrier(result)
    return result


def same_labels(labels: Tensor, others: Tensor) -> Tensor:
    """Compare all labels `[A]` with all others `[G]`: boolean `[A, G]`."""
    return ops.equal(ops.expand_dims(labels, 1), ops.expand_dims(others, 0))


def count(mask: Tensor, dtype: Any, axis: int | None = None) -> Tensor:
    """Count the True values of a mask.

    Args:
        mask: Boolean tensor `[A]` or `[A, G]`.
        dtype: Float type of the numbers that are divided by the count.
        axis: 1 to count per row of `[A, G]`; None for the whole mask.

    Returns:
        Scalar, or `[A]`, in float32 or float64: half precision cannot count, as adding
        1 to 256 gives 256 in bfloat16.
    """
    kind = wide(dtype)
    counts = ops.sum(ops.cast(mask, kind), axis=-1)
    if axis is None and len(mask.shape) == 2:
        # A float32 is exact for a row but not for a sum above 2^24.
        return ops.cast(ops.sum(ops.cast(counts, "int32")), kind)
    return counts


def at_least_float32(x: Tensor) -> Tensor:
    """Widen half precision, which cannot hold the counts of a large batch."""
    return ops.cast(x, wide(x.dtype))


def wide(dtype: Any) -> str:
    """Return a type to count in: float16 ends at 65504, bfloat16 counts to 256."""
    return (
        "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"
    )
