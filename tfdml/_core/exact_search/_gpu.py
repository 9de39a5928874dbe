"""Compare queries with gallery rows on the GPU of the Keras backend."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from tfdml._core.devices import running_backend


class GpuRows:
    """Rows kept on the GPU, to be compared with many queries.

    Products are computed in full float32, never in the shorter formats that GPUs
    substitute for it.

    Args:
        rows: float32 `[N, D]`.
        offsets: float32 `[N]`, subtracted from twice the product with each row;
            `None`: the product alone counts.
    """

    def __init__(
        self, rows: NDArray[np.float32], offsets: NDArray[np.float32] | None
    ) -> None:
        from keras import ops

        self._rows = ops.transpose(ops.convert_to_tensor(rows))
        self._offsets = None if offsets is None else ops.convert_to_tensor(offsets)

    def best(
        self, queries: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the `count` largest numbers of each query, and the rows they are of.

        Args:
            queries: float32 `[Q, D]`.
            count: From 1 to N.

        Returns:
            Numbers in falling order and row numbers, `[Q, count]`.
        """
        from keras import ops

        with _full_precision():
            numbers = ops.matmul(ops.convert_to_tensor(queries), self._rows)
            if self._offsets is not None:
                numbers = 2 * numbers - self._offsets
            values, places = ops.top_k(numbers, count)
        return (
            np.asarray(ops.convert_to_numpy(values)),
            np.asarray(ops.convert_to_numpy(places)).astype(np.int64),
        )


@contextmanager
def _full_precision() -> Iterator[None]:
    """Keep the 10-bit mantissas of NVIDIA's TF32 out of float32 products."""
    backend = running_backend()
    if backend == "jax":
        import jax

        with jax.default_matmul_precision("highest"):
            yield
        return
    if backend == "tensorflow":
        from tensorflow.config import experimental

        allowed = experimental.tensor_float_32_execution_enabled()
        allow = experimental.enable_tensor_float_32_execution
    else:
        from torch.backends.cuda import matmul

        allowed = matmul.allow_tf32

        def allow(value: bool) -> None:
            matmul.allow_tf32 = value

    allow(False)
    try:
        yield
    finally:
        allow(allowed)
