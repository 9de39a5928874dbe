"""Cut a request into pieces for batches, and collect their results."""

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol

import numpy as np

from ...web.status import StatusCode, StatusError
from ..models.servable import Servable
from .costs import ImageCosts

Outputs = dict[str, np.ndarray]


class Waiting(Protocol):
    """A client that waits for an answer; `grpc.ServicerContext` is one."""

    def is_active(self) -> bool:
        """Return whether the client is still there."""

    def time_remaining(self) -> float | None:
        """Return the seconds until its deadline, at least 0; None without one."""


class Request:
    """A request and the state of its pieces. Its pieces may run at the same time.

    Args:
        servable: The version that answers.
        signature_name: Which signature of it.
        inputs: One array for each input; not kept longer than it takes to answer.
        waiting: Knows whether the client still waits.
        sizes: Rows of its pieces, each of which may be put together with those of
            other requests; None for a request that is run as it is.
        costs: What its images take while they are decoded; None where it has none.
        queued_at: When it was made.

    Attributes:
        future: Receives the outputs, or the error.
        inputs: One array for each input; none once it is answered or cancelled.
        costs: As given.
        queued_at: When it was made.
    """

    def __init__(
        self,
        servable: Servable,
        signature_name: str,
        inputs: dict[str, np.ndarray],
        waiting: Waiting,
        sizes: Sequence[int] | None,
        costs: ImageCosts | None,
        queued_at: float,
    ) -> None:
        self.servable = servable
        self.signature_name = signature_name
        self.inputs = dict(inputs)
        self.is_batched = sizes is not None
        self.future: Future[Outputs] = Future()
        # Not a method: the future would hold the request, which holds the future. That
        # circle would keep the version in memory after it was unloaded.
        held = self.inputs
        self.future.add_done_callback(lambda _: held.clear())
        self.costs = costs
        self.queued_at = queued_at
        self._waiting = waiting
        self._lock = threading.Lock()
        self._is_taken: bool | None = None
        self._sizes = sizes
        self._fails_at = self._left = 1 if sizes is None else len(sizes)
        self._outcomes: list[Outputs | BaseException | None] = [None] * self._left

    def pieces(self) -> "Iterator[Piece]":
        """Yield the request in pieces; once for each.

        They hold the request, not the other way round: a circle would keep the version
        in memory after it was unloaded.
        """
        if self._sizes is None:
            yield Piece(self, 0, 0, 0)
            return
        starts = itertools.accumulate(self._sizes, initial=0)
        for place, (start, size) in enumerate(zip(starts, self._sizes, strict=False)):
            yield Piece(self, place, start, size)

    def is_over(self) -> bool:
        """Return whether what is left of it need not be run."""
        with self._lock:
            return self.future.done() or self._fails_at < len(self._outcomes)

    def is_needed(self, place: int) -> bool:
        """Return whether a piece is to be run.

        It is not where the request was cancelled or answered, or a piece before it has
        failed.
        """
        with self._lock:
            if self._is_taken is None:
                self._is_taken = self.future.set_running_or_notify_cancel()
            return self._is_taken and place < self._fails_at and not self.future.done()

    def missed(self) -> StatusError | None:
        """Return the error for a client that no longer waits; None if it does."""
        remaining = self._waiting.time_remaining()
        if remaining is not None and remaining <= 0:
            return StatusError(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        if not self._waiting.is_active():
            return StatusError(StatusCode.CANCELLED, "Cancelled")
        return None

    def settle(
        self, place: int, outcome: Outputs | BaseException | None
    ) -> Sequence[Outputs | BaseException | None] | None:
        """Take in what became of a piece.

        Args:
            place: Which piece.
            outcome: Its outputs, its error, or None if it was not run or its outputs
                are not rows.

        Returns:
            The outcomes of all pieces if this was the last one, else None.
        """
        with self._lock:
            self._outcomes[place] = outcome
            if not isinstance(outcome, dict):
                self._fails_at = min(self._fails_at, place)
            self._left -= 1
            # A failure may have been found after a later piece had run.
            return self._outcomes[: self._fails_at + 1] if not self._left else None


class Piece:
    """Rows of a request that run in one batch.

    Attributes:
        request: The request.
        place: Which of its pieces, from 0.
        start: Its first row in the request.
        rows: Number of its rows; 0 if the request is run as it is.
    """

    __slots__ = ("place", "request", "rows", "start")

    def __init__(self, request: Request, place: int, start: int, rows: int) -> None:
        self.request = request
        self.place = place
        self.start = start
        self.rows = rows

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Its rows of the inputs; all of them if the request is run as it is."""
        stop = self.start + self.rows
        return {
            name: array[self.start : stop] if self.rows else array
            for name, array in self.request.inputs.items()
        }

    def costs(self, start: int = 0, stop: int | None = None) -> list[int]:
        """Return what its largest images take while they are decoded.

        Args:
            start: The first of its rows that counts.
            stop: The row before which counting stops; None for all of them.
        """
        costs = self.request.costs
        if costs is None:
            return []
        if not self.rows:
            return costs.largest(start, stop)
        last = self.rows if stop is None else stop
        return costs.largest(self.start + start, self.start + last)
