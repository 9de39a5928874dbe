"""Compare queries with gallery rows on the GPU of the Keras backend.

What runs there is written in Keras operations that TensorFlow, JAX and PyTorch have on
the GPU. TensorFlow computes with int32 on the CPU: counts are whole numbers in float32.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml._core.devices import running_backend
from tfdml._core.parallel import in_threads

COLUMN_STEP = 256
"""The padded gallery has a multiple of so many rows."""
POSITIVES = 16
"""Positives of a query that are compared with the gallery in one pass."""
_MOST_ROWS = 2**24  # float32 counts to this
_WORTH_A_THREAD = 2**20  # numbers to copy
_WIDENED = 2**26  # numbers gathered in float64 at once: 512 MiB


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

        self._factor = 1 if offsets is None else 2
        # A coordinate that is 1 in queries holds the offset, or puts what fills up
        # behind everything. Rows of a multiple of 8 numbers are read faster.
        count, dimension = rows.shape
        self.padded = (count // COLUMN_STEP + 1) * COLUMN_STEP
        self._width = (dimension // 8 + 1) * 8
        wide = np.zeros((self.padded, self._width), np.float32)

        def copy(part: slice) -> None:
            wide[part, :dimension] = rows[part]

        in_threads(copy, count, least=max(1, _WORTH_A_THREAD // dimension))
        if offsets is not None:
            wide[:count, dimension] = -offsets
        wide[count:, dimension] = -np.finfo(np.float32).max / 2
        self._rows = ops.transpose(ops.convert_to_tensor(wide))
        self.count = count

    @staticmethod
    def can_hold(count: int, queries: int) -> bool:
        """Return whether so many rows and queries at once can be numbered there."""
        padded = count + COLUMN_STEP
        return padded <= _MOST_ROWS and padded * queries < 2**31

    def best(self, queries: NDArray[np.float32], count: int, size: int) -> "Best":
        """Start to find the `count` largest numbers of each query.

        Args:
            queries: float32 `[Q, D]`.
            count: From 1 to N.
            size: At least Q: to so many queries they are filled up. JAX compiles anew
                for each other size.
        """
        chunk = COLUMN_STEP
        while chunk > 32 and chunk * chunk * count > self.padded:
            chunk //= 2
        if count * chunk >= self.padded // 2:
            chunk = 0
        with _full_precision():
            found = _compiled(_best, "count", "chunk")(
                self._rows, self._prepared(queries, size), count=count, chunk=chunk
            )
        return Best(*found)

    def numbers(self, queries: NDArray[np.float32], size: int) -> Any:
        """Start to compute the numbers of all rows, and leave them on the GPU."""
        with _full_precision():
            return _compiled(_numbers)(self._rows, self._prepared(queries, size))

    def around(
        self,
        numbers: Any,
        positives: NDArray[np.int64],
        exclude: NDArray[np.int64],
        slack: NDArray[np.float32],
    ) -> "Around":
        """Start to count what comes before some rows, and to find what may tie.

        Args:
            numbers: What `numbers` returned for Q queries.
            positives: Those rows, `[Q, R]`, at most `POSITIVES`.
            exclude: Rows that do not count, `[Q, m]`, -1 for none.
            slack: What numbers must differ by to count, `[Q]`.
        """
        from keras import ops

        size, last = int(numbers.shape[0]), self.padded - 1
        # The last row only fills up: it comes after all others.
        exclude = np.where(exclude < 0, last, exclude)
        most, width = positives.shape[1], max(1, exclude.shape[1])
        if running_backend() == "jax":
            most, width = POSITIVES, 1 << (width - 1).bit_length()
        exclude = _filled(exclude, (size, width), constant_values=last)
        positives = _filled(positives, (size, most), mode="edge")
        firsts, dtype = np.arange(size)[:, None] * self.padded, _index_dtype()
        found = _compiled(_around)(
            numbers,
            ops.convert_to_tensor((positives + firsts).astype(dtype)),
            ops.convert_to_tensor((exclude + firsts).astype(dtype)),
            ops.convert_to_tensor(_filled(slack[:, None], (size, 1), mode="edge")),
        )
        return Around(found)

    def _prepared(self, queries: NDArray[np.float32], size: int) -> Any:
        from keras import ops

        count, dimension = queries.shape
        wide = np.zeros((size, self._width), np.float32)
        np.multiply(queries, np.float32(self._factor), out=wide[:count, :dimension])
        wide[:, dimension] = 1
        return ops.convert_to_tensor(wide)


class Best:
    """The largest numbers of some queries, once they are there."""

    def __init__(self, numbers: Any, columns: Any) -> None:
        self._numbers = numbers
        self.columns = columns
        """Their rows, on the GPU."""

    def fetch(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Wait for them and return them in falling order, and their rows."""
        return _array(self._numbers), _array(self.columns).astype(np.int64)


class GpuOriginals:
    """Gallery rows as they were given, on the GPU, to be compared in float64.

    Args:
        rows: float32 `[N, D]`.
        is_distance: Whether squared differences are added up, not products.
    """

    def __init__(self, rows: NDArray[np.float32], *, is_distance: bool) -> None:
        from keras import ops

        self._rows = ops.convert_to_tensor(rows)
        self._is_distance = is_distance

    def with_sums(self, best: Best, queries: NDArray[Any]) -> "Sums":
        """Start to compare queries with their best rows.

        Args:
            best: What `GpuRows.best` returned for them.
            queries: The queries as they were given, float32 `[Q, D]`; or the gallery
                rows that they are, int64 `[Q]`.
        """
        from keras import ops

        size, count = best.columns.shape
        shape = (int(size), *queries.shape[1:])
        given = np.zeros(shape, np.float32 if queries.ndim == 2 else _index_dtype())
        given[: len(queries)] = queries
        numbers = int(size) * int(self._rows.shape[1])
        with _float64():
            sums = _compiled(_sums, "step", "is_distance")(
                self._rows,
                ops.convert_to_tensor(given),
                best.columns,
                step=min(int(count), max(1, _WIDENED // numbers)),
                is_distance=self._is_distance,
            )
        return Sums(best, sums)


class Sums:
    """The best rows of some queries with their sums, once they are there."""

    def __init__(self, best: Best, sums: Any) -> None:
        self._best = best
        self._sums = sums

    def fetch(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float64]]:
        """Wait for them and return what `Best.fetch` does, and the sums."""
        numbers, columns = self._best.fetch()
        return numbers, columns, _array(self._sums)


class Around:
    """What comes before the positives of some queries, once it is there."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def fetch(
        self,
    ) -> tuple[
        NDArray[np.float32],
        NDArray[np.float32],
        NDArray[np.float32],
        NDArray[np.uint8],
    ]:
        """Wait for it and return it.

        Returns:
            `own [Q, R]`, the numbers of the positives; `above [Q, R]`, how many rows
            surely come before each and are not open; `sizes [Q]`, how many rows are
            open, those that may tie with some positive of the query, itself among them;
            and these, `[Q, padded // 8]`: bit `j` of byte `i` is row `j * (padded // 8)
            + i`.
        """
        own, above, sizes, bits = map(_array, self._found)
        return own, above, sizes, bits


def _filled(array: NDArray[Any], shape: tuple[int, int], **how: Any) -> NDArray[Any]:
    """Return the array with rows and columns added up to a shape."""
    added = [(0, to - size) for size, to in zip(array.shape, shape, strict=True)]
    return np.pad(array, added, **how)


def _array(tensor: Any) -> NDArray[Any]:
    from keras import ops

    return np.asarray(ops.convert_to_numpy(tensor))


def _index_dtype() -> str:
    return "int32" if running_backend() == "jax" else "int64"


@functools.cache
def _compiled(function: Callable[..., Any], *static: str) -> Callable[..., Any]:
    """Return the function; compiled on JAX, for each value of the static arguments."""
    if running_backend() != "jax":
        return function
    import jax

    return jax.jit(function, static_argnames=static)


def _numbers(rows: Any, queries: Any) -> Any:
    from keras import ops

    return ops.matmul(queries, rows)


def _best(rows: Any, queries: Any, *, count: int, chunk: int) -> tuple[Any, ...]:
    """Return the largest numbers and their rows.

    The best numbers lie in the chunks with the highest maxima: a sort of few maxima
    and few chunks takes the place of one of the whole row.
    """
    from keras import ops

    numbers = ops.matmul(queries, rows)
    if not chunk:
        return ops.top_k(numbers, count)
    size, chunks = queries.shape[0], rows.shape[1] // chunk
    maxima = ops.max(ops.reshape(numbers, (size, chunks, chunk)), axis=2)
    _, best = ops.top_k(maxima, count)
    dtype = _index_dtype()
    best, queries_of = ops.cast(best, dtype), ops.arange(size, dtype=dtype)[:, None]
    flat = ops.reshape(best + queries_of * chunks, (-1,))
    near = ops.take(ops.reshape(numbers, (size * chunks, chunk)), flat, axis=0)
    values, places = ops.top_k(ops.reshape(near, (size, count * chunk)), count)
    places = ops.cast(places, dtype)
    which = ops.floor_divide(places, chunk)
    flat = ops.reshape(which + queries_of * count, (-1,))
    chunk_of = ops.reshape(ops.take(ops.reshape(best, (-1,)), flat), (size, count))
    return values, (chunk_of - which) * chunk + places


def _sums(
    rows: Any, queries: Any, columns: Any, *, step: int, is_distance: bool
) -> Any:
    """Return sums over the dimensions in float64, `[Q, columns]`."""
    from keras import ops

    if len(queries.shape) == 1:
        queries = ops.take(rows, queries, axis=0)
    (size, count), (total, dimension) = columns.shape, rows.shape
    queries = ops.expand_dims(ops.cast(queries, "float64"), 1)
    # The rows that fill up have no original.
    columns = ops.minimum(ops.cast(columns, _index_dtype()), total - 1)
    sums = []
    for start in range(0, count, step):
        some = columns[:, start : start + step]
        near = ops.take(rows, ops.reshape(some, (-1,)), axis=0)
        near = ops.reshape(ops.cast(near, "float64"), (size, -1, dimension))
        if is_distance:
            near = near - queries
        sums.append(ops.sum(near * (near if is_distance else queries), axis=2))
    return ops.concatenate(sums, axis=1)


def _around(
    numbers: Any, positives: Any, exclude: Any, slack: Any
) -> tuple[Any, Any, Any, Any]:
    """Return numbers, counts and open rows as `Around` holds them."""
    from keras import ops

    flat = ops.reshape(numbers, (-1,))
    own, others = ops.take(flat, positives, axis=0), ops.take(flat, exclude, axis=0)
    low, high = own - slack, own + slack
    ranges = [
        (low[:, r : r + 1], high[:, r : r + 1]) for r in range(positives.shape[1])
    ]
    is_open, is_other_open = (
        functools.reduce(
            ops.logical_or,
            (ops.logical_and(side >= low, side <= high) for low, high in ranges),
        )
        for side in (numbers, others)
    )
    least = -float(np.finfo(np.float32).max)
    numbers = ops.where(is_open, least, numbers)
    others = ops.where(is_other_open, least, others)
    above = ops.stack([_count(numbers > high) for _, high in ranges], axis=1)
    above -= ops.stack([_count(others > high) for _, high in ranges], axis=1)
    slab = numbers.shape[1] // 8
    bits = sum(
        ops.cast(is_open[:, j * slab : (j + 1) * slab], "float32") * float(2**j)
        for j in range(8)
    )
    return own, above, _count(is_open), ops.cast(bits, "uint8")


def _count(are: Any) -> Any:
    from keras import ops

    return ops.sum(ops.cast(are, "float32"), axis=1)


def _float64() -> AbstractContextManager[Any]:
    """Let JAX compute in float64, as the others do."""
    if running_backend() != "jax":
        return nullcontext()
    import jax
    from jax import experimental

    where: Any = jax if hasattr(jax, "enable_x64") else experimental  # before JAX 0.8
    switch: AbstractContextManager[Any] = where.enable_x64(True)
    return switch


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
