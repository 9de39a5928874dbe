"""Run one batch and answer each request in it.

A request that the model refuses is found by running halves, so that it fails alone.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from serving.endpoint.batching.request import Outputs, Piece, Request
from serving.endpoint.batching.rows import (
    join_outputs,
    merge_inputs,
    padded_size,
    pads_too_much,
    split_outputs,
)
from serving.endpoint.models.servable import Servable
from serving.web.status import StatusCode, StatusError

_log = logging.getLogger(__name__)

# Receives the pieces of a batch and the seconds of their run, before any halves.
OnRun = Callable[[Sequence[Piece], float], None]


def run_batch(
    pieces: Sequence[Piece],
    allowed_sizes: Sequence[int],
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
        allowed_sizes: Sizes to which a batch is filled up; empty for any.
        on_run: Called after each of these runs, before the answers. It must not raise.
        clock: Returns the time in seconds.
    """
    pieces = _still_needed(pieces)
    batches = [pieces] if pieces else []
    if len(pieces) > 1 and pads_too_much([piece.inputs for piece in pieces]):
        batches = [[piece] for piece in pieces]
    for batch in batches:
        needed = batch if batch is pieces else _still_needed(batch)
        if needed:
            started = clock()
            outcome = _run_together(needed, allowed_sizes)
            on_run(needed, clock() - started)
            _answer(needed, outcome, allowed_sizes)


def _still_needed(pieces: Sequence[Piece]) -> list[Piece]:
    needed = []
    for piece in pieces:
        if not piece.request.is_needed(piece.place):
            settle(piece, None)
        elif (error := _missed(piece.request)) is not None:
            settle(piece, error)
        else:
            needed.append(piece)
    return needed


def _missed(request: Request) -> BaseException | None:
    try:
        return request.missed()
    except Exception as error:
        return _logged(error)


def _run_halves(pieces: list[Piece], allowed_sizes: Sequence[int]) -> None:
    """Run pieces that failed together in halves, down to each that fails alone."""
    middle = len(pieces) // 2
    first = _still_needed(pieces[:middle])
    first_failed = False
    if first:
        outcome = _run_together(first, allowed_sizes)
        first_failed = isinstance(outcome, StatusError)
        _answer(first, outcome, allowed_sizes)
    second = _still_needed(pieces[middle:])
    if not first_failed and len(second) > 1:
        # The culprit is in here: a run of this half as a whole would reveal nothing.
        _run_halves(second, allowed_sizes)
    elif second:
        _answer(second, _run_together(second, allowed_sizes), allowed_sizes)


def _answer(
    pieces: list[Piece],
    outcome: Sequence[Outputs | None] | BaseException,
    allowed_sizes: Sequence[int],
) -> None:
    if not isinstance(outcome, BaseException):
        for piece, outputs in zip(pieces, outcome, strict=True):
            settle(piece, outputs)
    elif not isinstance(outcome, StatusError):
        for piece in pieces:
            settle(piece, outcome)
    elif len(pieces) > 1:
        _run_halves(pieces, allowed_sizes)
    else:
        settle(pieces[0], _with_row(pieces[0], outcome, allowed_sizes))


def settle(piece: Piece, outcome: Outputs | BaseException | None) -> None:
    """Take in what became of a piece; answer its request if it was the last one.

    Args:
        piece: The piece.
        outcome: Its outputs, its error, or None if it was not run or its outputs are
            not rows.
    """
    request = piece.request
    outcomes = request.settle(piece.place, outcome)
    if outcomes is None or request.future.done():
        return
    result: Outputs | BaseException | None = outcomes[-1]
    if len(outcomes) > 1 and isinstance(result, dict):
        result = _joined([part for part in outcomes if isinstance(part, dict)])
    if result is None:
        result = _run_whole(request)
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


def _run_whole(request: Request) -> Outputs | BaseException:
    """Run a request whose outputs are not rows, whatever its signature says."""
    if (error := _missed(request)) is not None:
        return error
    outcome = _predict(request.servable, request.signature_name, request.inputs)
    if isinstance(outcome, StatusError):
        return _with_row(Piece(request, 0, 0, 0), outcome, ())
    return outcome


def _run_together(
    pieces: Sequence[Piece], allowed_sizes: Sequence[int]
) -> Sequence[Outputs | None] | BaseException:
    """Run pieces as one batch.

    Returns:
        The outputs of each piece, None where they are not rows; or the error.
    """
    request = pieces[0].request
    if request.is_batched:
        return _run_rows(
            request.servable,
            request.signature_name,
            [piece.inputs for piece in pieces],
            [piece.rows for piece in pieces],
            allowed_sizes,
        )
    outcome = _predict(request.servable, request.signature_name, request.inputs)
    return outcome if isinstance(outcome, BaseException) else [outcome]


def _run_rows(
    servable: Servable,
    signature_name: str,
    parts: Sequence[Mapping[str, np.ndarray]],
    counts: Sequence[int],
    allowed_sizes: Sequence[int],
) -> Sequence[Outputs | None] | BaseException:
    size = padded_size(sum(counts), allowed_sizes)
    try:
        inputs = merge_inputs(parts, size)
        outcome = _predict(servable, signature_name, inputs)
        if isinstance(outcome, BaseException):
            return outcome
        outputs = split_outputs(outcome, counts, size)
    except MemoryError:
        return _too_little_memory()
    except Exception as error:
        return _logged(error)
    return [None for _ in parts] if outputs is None else outputs


def _too_little_memory() -> StatusError:
    return StatusError(
        StatusCode.RESOURCE_EXHAUSTED, "There is too little memory for the batch."
    )


def _predict(
    servable: Servable, signature_name: str, inputs: Mapping[str, np.ndarray]
) -> Outputs | BaseException:
    try:
        return servable.predict(inputs, signature_name)
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


def _with_row(
    piece: Piece, error: StatusError, allowed_sizes: Sequence[int]
) -> StatusError:
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
        outcome: object
        if request.is_batched:
            outcome = _run_rows(
                request.servable,
                request.signature_name,
                [part],
                [stop - start],
                allowed_sizes,
            )
        else:
            outcome = _predict(request.servable, request.signature_name, part)
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
