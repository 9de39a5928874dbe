"""Run one batch and answer each request in it.

A request that the model refuses is found by running halves, so that it fails alone.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...web.image_memory import ImageMemory
from ...web.status import StatusCode, StatusError
from .costs import peak_bytes
from .request import Outputs, Piece, Request
from .rows import (
    join_outputs,
    merge_inputs,
    padded_size,
    pads_too_much,
    split_outputs,
)

_log = logging.getLogger(__name__)

_NO_MEMORY = contextlib.nullcontext()

Costs = Sequence[Sequence[int]]


@dataclass(frozen=True)
class RunLimits:
    """Bounds on what runs.

    Attributes:
        allowed_sizes: Sizes to which a batch is filled up; empty for any.
        memory: For the images of all batches that run.
    """

    allowed_sizes: Sequence[int]
    memory: ImageMemory


# Receives the pieces of a batch and the seconds of their run, before any halves.
OnRun = Callable[[Sequence[Piece], float], None]


def run_batch(
    pieces: Sequence[Piece],
    limits: RunLimits,
    on_run: OnRun,
    clock: Callable[[], float],
) -> None:
    """Run a batch and answer the requests whose last piece it held.

    What goes wrong reaches the requests, not the caller. Pieces of which the lengths
    differ so much that filling them up would take far more memory than they do are run
    one by one.

    Args:
        pieces: Pieces of requests for one signature, alike by `mergeable`; or the only
            piece of a request that is run as it is.
        limits: Bounds on size and memory.
        on_run: Called after each of these runs, before the answers. It must not raise.
        clock: Returns the time in seconds.
    """
    pieces = _still_needed(pieces, limits)
    batches = [pieces] if pieces else []
    if len(pieces) > 1 and pads_too_much([piece.inputs for piece in pieces]):
        batches = [[piece] for piece in pieces]
    for batch in batches:
        needed = batch if batch is pieces else _still_needed(batch, limits)
        if needed:
            started = clock()
            outcome = _run_together(needed, limits)
            on_run(needed, clock() - started)
            _answer(needed, outcome, limits)


def _still_needed(pieces: Sequence[Piece], limits: RunLimits) -> list[Piece]:
    needed = []
    for piece in pieces:
        if not piece.request.is_needed(piece.place):
            settle(piece, None, limits)
        elif (error := _missed(piece.request)) is not None:
            settle(piece, error, limits)
        else:
            needed.append(piece)
    return needed


def _missed(request: Request) -> BaseException | None:
    try:
        return request.missed()
    except Exception as error:
        return _logged(error)


def _run_halves(pieces: list[Piece], limits: RunLimits) -> None:
    """Run pieces that failed together in halves, down to each that fails alone."""
    middle = len(pieces) // 2
    first = _still_needed(pieces[:middle], limits)
    first_failed = False
    if first:
        outcome = _run_together(first, limits)
        first_failed = isinstance(outcome, StatusError)
        _answer(first, outcome, limits)
    second = _still_needed(pieces[middle:], limits)
    if not first_failed and len(second) > 1:
        # The culprit is in here: a run of this half as a whole would reveal nothing.
        _run_halves(second, limits)
    elif second:
        _answer(second, _run_together(second, limits), limits)


def _answer(
    pieces: list[Piece],
    outcome: Sequence[Outputs | None] | BaseException,
    limits: RunLimits,
) -> None:
    if not isinstance(outcome, BaseException):
        for piece, outputs in zip(pieces, outcome, strict=True):
            settle(piece, outputs, limits)
    elif not isinstance(outcome, StatusError):
        for piece in pieces:
            settle(piece, outcome, limits)
    elif len(pieces) > 1:
        _run_halves(pieces, limits)
    else:
        settle(pieces[0], _with_row(pieces[0], outcome, limits), limits)


def settle(
    piece: Piece,
    outcome: Outputs | BaseException | None,
    limits: RunLimits,
) -> None:
    """Take in what became of a piece; answer its request if it was the last one.

    Args:
        piece: The piece.
        outcome: Its outputs, its error, or None if it was not run or its outputs are
            not rows.
        limits: Bounds on a request that is run once more, as it is.
    """
    request = piece.request
    outcomes = request.settle(piece.place, outcome)
    if outcomes is None or request.future.done():
        return
    result: Outputs | BaseException | None = outcomes[-1]
    if len(outcomes) > 1 and isinstance(result, dict):
        result = _joined([part for part in outcomes if isinstance(part, dict)])
    if result is None:
        result = _run_whole(request, limits)
    if isinstance(result, BaseException):
        request.future.set_exception(result)
    else:
        request.future.set_result(result)


def _joined(parts: Sequence[Outputs]) -> Outputs | BaseException | None:
    try:
        return join_outputs(parts)
    except MemoryError:
        return _too_little_memory()
    except Exception as error:
        return _logged(error)


def _run_whole(request: Request, limits: RunLimits) -> Outputs | BaseException:
    """Run a request whose outputs are not rows, whatever its signature says."""
    if (error := _missed(request)) is not None:
        return error
    whole = Piece(request, 0, 0, 0)
    outcome = _predict(request, whole.inputs, [whole.costs()], limits)
    if isinstance(outcome, StatusError):
        return _with_row(whole, outcome, limits)
    return outcome


def _run_together(
    pieces: Sequence[Piece], limits: RunLimits
) -> Sequence[Outputs | None] | BaseException:
    """Run pieces as one batch.

    Returns:
        The outputs of each piece, None where they are not rows; or the error.
    """
    request = pieces[0].request
    costs = [piece.costs() for piece in pieces]
    if request.is_batched:
        return _run_rows(
            request,
            [piece.inputs for piece in pieces],
            [piece.rows for piece in pieces],
            costs,
            pieces[-1].costs(0, 1),
            limits,
        )
    outcome = _predict(request, request.inputs, costs, limits)
    return outcome if isinstance(outcome, BaseException) else [outcome]


def _run_rows(
    request: Request,
    parts: Sequence[Mapping[str, np.ndarray]],
    counts: Sequence[int],
    costs: Costs,
    cost_of_copy: Sequence[int],
    limits: RunLimits,
) -> Sequence[Outputs | None] | BaseException:
    """Run rows as one batch.

    Args:
        request: One of the requests that they are of.
        parts: Inputs of each part.
        counts: Rows of each part.
        costs: What the largest images of each part take.
        cost_of_copy: What those of the row take of which copies fill up the batch.
        limits: Bounds on size and memory.
    """
    rows = sum(counts)
    size = padded_size(rows, limits.allowed_sizes)
    padded = [*costs, *[cost_of_copy] * (size - rows)]
    if _peak_bytes(request, padded) > limits.memory.most_bytes:
        size, padded = rows, list(costs)
    try:
        inputs = merge_inputs(parts, size)
        outcome = _predict(request, inputs, padded, limits)
        if isinstance(outcome, BaseException):
            return outcome
        outputs = split_outputs(outcome, counts, size)
    except MemoryError:
        return _too_little_memory()
    except Exception as error:
        return _logged(error)
    return [None for _ in parts] if outputs is None else outputs


def _peak_bytes(request: Request, costs: Costs) -> int:
    return 0 if request.costs is None else peak_bytes(costs, request.costs.at_once)


def _too_little_memory() -> StatusError:
    return StatusError(
        StatusCode.RESOURCE_EXHAUSTED, "There is too little memory for the batch."
    )


def _predict(
    request: Request,
    inputs: Mapping[str, np.ndarray],
    costs: Costs,
    limits: RunLimits,
) -> Outputs | BaseException:
    size = _peak_bytes(request, costs)
    # Others give it back as soon as their batches have run.
    memory = limits.memory.hold(size, threading.TIMEOUT_MAX) if size else _NO_MEMORY
    try:
        with memory:
            return request.servable.predict(inputs, request.signature_name)
    except StatusError as error:
        return StatusError(error.code, error.message)
    except BaseException as error:  # a worker must live, and the client must know
        return _logged(error)


def _logged(error: BaseException) -> BaseException:
    """Log an unexpected error and take off it where it happened.

    Its traceback holds all frames up to the worker's, and so the request whose future
    holds the error. That circle would keep an unloaded version in memory.
    """
    _log.error("A batch failed.", exc_info=error)
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


def _with_row(piece: Piece, error: StatusError, limits: RunLimits) -> StatusError:
    """Name the row that the model refused, where rows are encoded images.

    TensorFlow does not say it. Halves are run until one row is left: together about as
    much as the whole again, and only for requests that failed.
    """
    if error.code != StatusCode.INVALID_ARGUMENT or len(piece.inputs) != 1:
        return error
    ((alias, rows),) = piece.inputs.items()
    request = piece.request
    signature = request.servable.signatures.get(request.signature_name)
    spec = signature.inputs.get(alias) if signature else None
    if spec is None or spec.shape not in (None, (None,)):
        return error
    if rows.dtype != object or rows.ndim != 1 or not len(rows):
        return error

    def refused(start: int, stop: int) -> StatusError | None:
        part = {alias: rows[start:stop]}
        costs = [piece.costs(start, stop)]
        outcome: object
        if request.is_batched:
            copy = piece.costs(start, start + 1)
            outcome = _run_rows(request, [part], [stop - start], costs, copy, limits)
        else:
            outcome = _predict(request, part, costs, limits)
        if not isinstance(outcome, StatusError):
            return None
        return outcome if outcome.code == StatusCode.INVALID_ARGUMENT else None

    start, stop = 0, len(rows)
    found = error if stop == 1 else None
    while stop - start > 1 and _missed(request) is None:
        middle = (start + stop) // 2
        found = refused(start, middle)
        start, stop = (start, middle) if found else (middle, stop)
    if stop - start > 1:
        return error
    found = found or refused(start, stop)
    if found is None:  # the model does not answer row by row
        return error
    return StatusError(
        found.code, f'Input "{alias}", row {piece.start + start}: {found.message}'
    )
