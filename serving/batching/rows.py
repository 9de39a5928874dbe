"""Rows of several requests as one batch, and the rows of its outputs given back."""

import itertools
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from serving.models.servable import Signature, TensorSpec

__all__ = [
    "count_rows",
    "is_batch_major",
    "join_outputs",
    "likeness",
    "merge_inputs",
    "padded_size",
    "split_outputs",
]

Arrays = Mapping[str, np.ndarray]


def is_batch_major(signature: Signature) -> bool:
    """Tell whether the first dimension of every input and output is the batch."""
    return all(
        specs and all(spec.shape and spec.shape[0] is None for spec in specs.values())
        for specs in (signature.inputs, signature.outputs)
    )


def count_rows(inputs: Arrays) -> int | None:
    """Return the first dimension that all inputs share; None if they share none."""
    sizes = {array.shape[0] if array.ndim else None for array in inputs.values()}
    return sizes.pop() if len(sizes) == 1 else None


def likeness(signature: Signature, inputs: Arrays, *, any_length: bool) -> Hashable:
    """Return what must be equal in two requests that share a batch.

    Args:
        signature: The signature of both.
        inputs: One array for each input of the signature.
        any_length: Whether lengths that the signature leaves open may differ.

    Returns:
        Dtypes and sizes of the inputs without their rows.
    """
    return tuple(
        (inputs[name].dtype, _fixed_sizes(spec, inputs[name], any_length))
        for name, spec in signature.inputs.items()
    )


def merge_inputs(parts: Sequence[Arrays], padded_rows: int) -> Arrays:
    """Put the rows of several requests into one batch, in their order.

    Args:
        parts: Inputs of each, alike by `likeness`, at least one row each.
        padded_rows: Rows of the batch, at least those of all parts. The first row of
            the last part fills it up.

    Returns:
        The inputs of the batch: those of the only part if nothing is to be done. Of
        arrays of different lengths, the shorter ones are filled up at the end with
        their own first value, as TF Serving does.
    """
    if len(parts) == 1 and padded_rows == count_rows(parts[0]):
        return parts[0]
    return {
        name: _stack([part[name] for part in parts], padded_rows) for name in parts[0]
    }


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
        lengths = tuple(
            map(max, zip(*(array.shape[1:] for array in arrays), strict=True))
        )
        arrays = [_lengthened(array, lengths) for array in arrays]
    missing = padded_rows - sum(map(len, arrays))
    return np.concatenate([*arrays, np.repeat(arrays[-1][:1], missing, axis=0)])


def _lengthened(array: np.ndarray, lengths: tuple[int, ...]) -> np.ndarray:
    longer = np.full((len(array), *lengths), array.flat[0], array.dtype)
    longer[tuple(map(slice, array.shape))] = array
    return longer
