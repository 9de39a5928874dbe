"""Join rows of several requests into one batch, and split the rows of its outputs."""

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from ..models.servable import Signature, TensorSpec

Arrays = Mapping[str, np.ndarray]

_MOST_PADDED = 4
_ALWAYS_PADDED = 2**20


def mergeable(
    signature: Signature | None, inputs: Arrays, *, any_length: bool
) -> tuple[int | None, Hashable]:
    """Return the rows of a request, and what others in its batch must share with it.

    Args:
        signature: The signature that it is for; None if there is none.
        inputs: One array for each input.
        any_length: Whether lengths that the signature leaves open may differ.

    Returns:
        Rows and a key: equal in requests for the same signature that can be merged.
        The rows are None for a request that is run as it is, such as one that does not
        fit the signature: the model says what is wrong with it.
    """
    if (
        signature is None
        or inputs.keys() != signature.inputs.keys()
        or not _is_batch_major(signature)
    ):
        return None, None
    rows = _count_rows(inputs)
    if not rows:
        return None, None
    return rows, tuple(
        (inputs[name].dtype, _fixed_sizes(spec, inputs[name], any_length))
        for name, spec in signature.inputs.items()
    )


def merge_inputs(parts: Sequence[Arrays], padded_rows: int) -> Arrays:
    """Put the rows of several requests into one batch, in their order.

    Args:
        parts: Inputs of each, alike by `mergeable`, at least one row each.
        padded_rows: Rows of the batch, at least those of all parts. The first row of
            the last part fills it up.

    Returns:
        The inputs of the batch: those of the only part if nothing is to be done. Of
        arrays of different lengths, the shorter ones are filled up at the end with
        their own first value, as TF Serving does.
    """
    if len(parts) == 1 and padded_rows == _count_rows(parts[0]):
        return parts[0]
    return {
        name: _stack([part[name] for part in parts], padded_rows) for name in parts[0]
    }


def pads_too_much(parts: Sequence[Arrays]) -> bool:
    """Return whether filling up shorter arrays would make a batch out of proportion.

    One long row among many short ones, or arrays long in different dimensions, would
    become far more than what the clients sent.

    Args:
        parts: Inputs of each request, alike by `mergeable`.

    Returns:
        Whether an input of the batch would have more than four times the values of all
        parts together and another 2**20.
    """
    for name in parts[0]:
        arrays = [part[name] for part in parts]
        rows = sum(map(len, arrays))
        padded = rows * math.prod(_longest(arrays))
        if padded > _MOST_PADDED * sum(a.size for a in arrays) + _ALWAYS_PADDED:
            return True
    return False


def split_outputs(
    outputs: Arrays, counts: Sequence[int], padded_rows: int
) -> list[dict[str, np.ndarray]] | None:
    """Give each request of a batch its own rows.

    Args:
        outputs: Outputs of the batch.
        counts: Rows of each request, in their order.
        padded_rows: Rows of the batch.

    Returns:
        The outputs of each, or None if an output has not one row for each of the batch.
    """
    if any(array.shape[:1] != (padded_rows,) for array in outputs.values()):
        return None
    if list(counts) == [padded_rows]:
        return [dict(outputs)]
    stops = list(itertools.accumulate(counts))
    # Copies: a view would keep the whole batch in memory as long as any of its parts.
    return [
        {name: array[stop - count : stop].copy() for name, array in outputs.items()}
        for count, stop in zip(counts, stops, strict=True)
    ]


def join_outputs(parts: Sequence[Arrays]) -> dict[str, np.ndarray] | None:
    """Put the outputs of one request together that ran in several parts.

    Returns:
        The outputs, or None if those of the parts differ in more than their rows.
    """
    for name in parts[0]:
        if len({(part[name].dtype, part[name].shape[1:]) for part in parts}) != 1:
            return None
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def padded_size(rows: int, allowed_sizes: Sequence[int]) -> int:
    """Return the smallest allowed size that holds the rows; `rows` if there is none."""
    return next((size for size in allowed_sizes if size >= rows), rows)


def _is_batch_major(signature: Signature) -> bool:
    """Return whether the first dimension of every input and output is the batch."""
    return all(
        specs and all(spec.shape and spec.shape[0] is None for spec in specs.values())
        for specs in (signature.inputs, signature.outputs)
    )


def _count_rows(inputs: Arrays) -> int | None:
    """Return the first dimension that all inputs share; None if they share none."""
    sizes = {array.shape[0] if array.ndim else None for array in inputs.values()}
    return sizes.pop() if len(sizes) == 1 else None


def _fixed_sizes(
    spec: TensorSpec, array: np.ndarray, any_length: bool
) -> tuple[int | None, ...]:
    sizes = array.shape[1:]
    # An empty array has no value that could fill it up.
    if not any_length or not array.size or len(spec.shape or ()) != array.ndim:
        return sizes
    wanted = (spec.shape or ())[1:]
    return tuple(
        None if open_size is None else size
        for open_size, size in zip(wanted, sizes, strict=True)
    )


def _stack(arrays: Sequence[np.ndarray], padded_rows: int) -> np.ndarray:
    if len({array.shape[1:] for array in arrays}) > 1:
        lengths = _longest(arrays)
        arrays = [_lengthened(array, lengths) for array in arrays]
    missing = padded_rows - sum(map(len, arrays))
    return np.concatenate([*arrays, np.repeat(arrays[-1][:1], missing, axis=0)])


def _longest(arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
    return tuple(map(max, zip(*(array.shape[1:] for array in arrays), strict=True)))


def _lengthened(array: np.ndarray, lengths: tuple[int, ...]) -> np.ndarray:
    longer = np.full((len(array), *lengths), array.flat[0], array.dtype)
    longer[tuple(map(slice, array.shape))] = array
    return longer
