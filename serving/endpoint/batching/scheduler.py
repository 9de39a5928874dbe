"""Run requests that arrive at the same time together: dynamic batching.

Requests for the same signature of the same version wait in one queue. A few threads
take batches from all queues, first from the one whose first request has waited
longest. Without a batch timeout a batch is what queued up while the threads were busy:
the only client of a signature never waits, and under load batches grow by themselves.

A request that is longer than a batch gets one batch a turn, and then stands behind the
others. In a full queue it counts as a few batches, however long it is, and a quarter of
the queue is for requests that are no longer than a batch. The images of a
batch are decoded within a budget of memory, which all batches share. Where nothing is
put together or cut, long requests leave one of the threads to short ones.

The parameters and the text for a full queue are those of TF Serving. It differs here:

- A request is never refused for its size; one longer than a batch is always split.
- A request that the model refuses fails alone, not the whole batch, and one whose
  client has gone is left out of its batch.
- Requests that do not fit into one batch (other shapes, or a signature of which an
  output is not one row for each row of the input) run by themselves.
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from types import TracebackType

import numpy as np

from ...web.image_memory import ImageMemory
from ...web.status import StatusCode, StatusError
from ..models.servable import Servable
from .costs import ImageCosts, even_pieces
from .pace import Pace, WaitLimits, first_pace, next_pace
from .parameters import BatchingParameters
from .request import Piece, Request, Waiting
from .rows import mergeable, padded_size
from .run import RunLimits, run_batch, settle
from .turns import TurnQueue

OnBatch = Callable[[Servable, Sequence[int], int, Sequence[float], float], None]
"""Called with each batch: the version, the rows of each request in it (or piece of a
long one), the rows that fill it up, the seconds that each waited in the queue, and the
seconds of its run. A request that ran alone as it was has waited, but has no rows: they
may be any number, and a batch has at most `max_batch_size`."""

_MOST_COUNTED_BATCHES = 4
_LONG_ALONE = 16  # more rows make a request long that is run as it is
_LONG = "long"

_log = logging.getLogger(__name__)


class BatchScheduler:
    """Runs requests in batches, on threads of its own, until it is closed.

    Args:
        parameters: When a batch is closed, how large it may be and how many may wait.
        on_batch: Called with each batch after its run, before its requests are
            answered; on a thread of the scheduler. What it raises is logged.
        memory: For the images that all batches decode at one time; by default as
            `ImageMemory` finds it.
        waits: How long a batch waits where the parameters do not say.
        clock: Returns the time in seconds, which never goes back.

    Attributes:
        memory: As given.

    Example:
        >>> with BatchScheduler(BatchingParameters(max_batch_size=8)) as scheduler:
        ...     pass
    """

    def __init__(
        self,
        parameters: BatchingParameters,
        on_batch: OnBatch | None = None,
        *,
        memory: ImageMemory | None = None,
        waits: WaitLimits = WaitLimits(),  # noqa: B008  (frozen)
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parameters = parameters
        self._waits = waits
        self._clock = clock
        self._on_batch = on_batch
        self.memory = memory or ImageMemory()
        self._limits = RunLimits(parameters.allowed_batch_sizes, self.memory)
        self._capacity = parameters.max_enqueued_batches * parameters.max_batch_size
        # What a long request counts in a queue, so that it leaves room for others.
        self._most_counted = min(
            _MOST_COUNTED_BATCHES * parameters.max_batch_size, self._capacity
        )
        self._most_cut = max(self._capacity * 3 // 4, self._most_counted)
        self._first_pace = first_pace(parameters)
        # By version, which they must not keep in memory, and signature.
        self._paces: weakref.WeakKeyDictionary[Servable, dict[str, Pace]] = (
            weakref.WeakKeyDictionary()
        )
        self._queues: dict[Hashable, TurnQueue] = {}
        self._sizes: dict[Hashable, int] = {}
        self._long_running = 0
        self._most_long = max(parameters.num_batch_threads - 1, 1)
        self._is_closed = False
        # Guards all of these; notified when a worker may have something to do.
        self._changed = threading.Condition(threading.Lock())
        self._workers = [
            threading.Thread(
                target=self._work,
                name=f"{parameters.thread_pool_name}_{number}",
                daemon=True,
            )
            for number in range(parameters.num_batch_threads)
        ]
        for worker in self._workers:
            worker.start()

    def __enter__(self) -> "BatchScheduler":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def submit(
        self,
        servable: Servable,
        signature_name: str,
        inputs: dict[str, np.ndarray],
        waiting: Waiting,
        costs: ImageCosts | None = None,
    ) -> Future[dict[str, np.ndarray]]:
        """Put a request into its queue.

        Args:
            servable: The version that answers.
            signature_name: Which signature of it.
            inputs: One array for each input of the signature.
            waiting: Knows whether the client still waits. Else the request is not run:
                DEADLINE_EXCEEDED or CANCELLED.
            costs: What the images of its rows take while they are decoded; None where
                it has none.

        Returns:
            The outputs, once they are there, or what `servable.predict` raised for this
            request. Where it refused one of several encoded images, the error names
            the row. A future that is cancelled before its turn is not run.

        Raises:
            StatusError: The queue is full, the scheduler is closed, or an image takes
                more memory than there is for all.
        """
        parameters = self._parameters
        rows: int | None = None
        alike: Hashable = None
        if parameters.runs_alone:
            is_long = any(a.ndim and len(a) > _LONG_ALONE for a in inputs.values())
            alike = _LONG if is_long else None
        else:
            rows, alike = mergeable(
                servable.signatures.get(signature_name),
                inputs,
                any_length=parameters.pad_variable_length_inputs,
            )
        sizes = None if rows is None else self._cut(rows, costs)
        if costs is not None:
            # Of rows that are decoded one after the other if need be, the largest.
            largest = costs.largest()
            self.memory.check(sum(largest) if rows is None else max(largest))
        now = self._clock()
        request = Request(servable, signature_name, inputs, waiting, sizes, costs, now)
        group: tuple[Hashable, ...] = (id(servable), signature_name)
        if alike == _LONG:
            group = (*group, alike)  # which leaves room for the short ones
        key = (*group, alike)
        with self._changed:
            if self._is_closed:
                raise _stopped()
            queued = self._sizes.get(group, 0)
            queue = self._queues.get(key)
            was_waiting = queue is not None
            if queue is None:
                queue = TurnQueue(
                    key, group, parameters.max_batch_size, self._most_counted
                )
            size = queue.count(rows)
            is_cut = size > parameters.max_batch_size
            if queued + size > (self._most_cut if is_cut else self._capacity):
                raise _full_queue(queued, parameters)
            self._queues[key] = queue
            self._sizes[group] = queued + size
            queue.add(request, rows, now)
            # A worker that takes a batch wakes the next one if anything is left.
            enough = self._pace(queue).enough
            if not was_waiting or queue.size - size < enough <= queue.size:
                self._changed.notify()
        return request.future

    def _cut(self, rows: int, costs: ImageCosts | None) -> list[int]:
        most = self._parameters.max_batch_size
        if costs is None:
            return even_pieces(rows, most)
        return costs.cut(most, self._most_bytes())

    def _most_bytes(self) -> int:
        """Return the memory for one batch, so that all threads can have one."""
        return self.memory.most_bytes // self._parameters.num_batch_threads

    def close(self, seconds: float | None = None) -> bool:
        """Refuse further requests, run those in the queues and end the threads.

        Args:
            seconds: How long to wait for that, at least 0; then what is still in the
                queues is refused, and what runs is left alone. None for as long as it
                takes.

        Returns:
            Whether all threads have ended.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        until = None if seconds is None else time.monotonic() + seconds
        for worker in self._workers:
            if worker is not threading.current_thread():
                worker.join(None if until is None else max(until - time.monotonic(), 0))
        with self._changed:
            left = [piece for queue in self._queues.values() for piece in queue.rest()]
            self._queues.clear()
            self._sizes.clear()
        for piece in left:
            is_needed = piece.request.is_needed(piece.place)
            settle(piece, _stopped() if is_needed else None, self._limits)
        return not any(worker.is_alive() for worker in self._workers)

    def _work(self) -> None:
        while (taken := self._next_batch()) is not None:
            pieces, taken_at, is_long = taken
            try:
                self._run(pieces, taken_at)
            except BaseException:  # a fault of ours, of which a worker must not die
                _log.exception("A batch failed.")
                for piece in pieces:
                    if not piece.request.future.done():
                        piece.request.future.set_exception(
                            StatusError(StatusCode.INTERNAL, "The batch failed.")
                        )
            finally:
                if is_long:
                    with self._changed:
                        self._long_running -= 1
            # An idle worker must not keep a version in memory that is to be unloaded.
            del taken, pieces

    def _run(self, pieces: Sequence[Piece], taken_at: float) -> None:
        sizes = self._parameters.allowed_batch_sizes

        def on_run(needed: Sequence[Piece], seconds: float) -> None:
            request = needed[0].request
            rows = [piece.rows for piece in needed if piece.rows]
            total = sum(rows)
            if rows:
                now = self._clock()
                pace = next_pace(self._parameters, self._waits, total, seconds, now)
                with self._changed:
                    paces = self._paces.setdefault(request.servable, {})
                    paces[request.signature_name] = pace
            if self._on_batch is None:
                return
            padding = padded_size(total, sizes) - total if rows else 0
            waits = [taken_at - piece.request.queued_at for piece in needed]
            try:
                self._on_batch(request.servable, rows, padding, waits, seconds)
            except Exception:
                _log.exception("`on_batch` failed.")

        run_batch(pieces, self._limits, on_run, self._clock)

    def _next_batch(self) -> tuple[list[Piece], float, bool] | None:
        """Wait for a batch that is ready; None when the scheduler is closed.

        Returns:
            Its pieces, the time, and whether it is a long request.
        """
        with self._changed:
            while True:
                now = self._clock()
                queue = self._oldest_ready(now)
                if queue is not None:
                    pieces = self._take(queue, now)
                    if self._queues:
                        self._changed.notify()
                    is_long = _is_long(queue)
                    self._long_running += is_long
                    return pieces, now, is_long
                if self._is_closed:
                    return None
                self._changed.wait(self._seconds_to_wait(now))

    def _oldest_ready(self, now: float) -> TurnQueue | None:
        oldest, since = None, float("inf")
        for queue in self._that_may_run():
            if queue.turn_at < since and (
                queue.size >= self._pace(queue).enough
                or now >= self._closes_at(queue)
                or self._is_closed
            ):
                oldest, since = queue, queue.turn_at
        return oldest

    def _that_may_run(self) -> list[TurnQueue]:
        has_room = self._long_running < self._most_long
        return [q for q in self._queues.values() if has_room or not _is_long(q)]

    def _closes_at(self, queue: TurnQueue) -> float:
        return self._pace(queue).closes_at(queue.first.queued_at)

    def _pace(self, queue: TurnQueue) -> Pace:
        request = queue.first
        paces = self._paces.get(request.servable, {})
        return paces.get(request.signature_name, self._first_pace)

    def _seconds_to_wait(self, now: float) -> float | None:
        queues = self._that_may_run()
        if not queues:
            return None
        closes_at = min(map(self._closes_at, queues))
        return min(max(closes_at - now, 0), threading.TIMEOUT_MAX)

    def _take(self, queue: TurnQueue, now: float) -> list[Piece]:
        """Take the pieces of the next batch out of a queue, in their order."""
        before = queue.size
        pieces = queue.take(self._most_bytes(), now)
        self._sizes[queue.group] -= before - queue.size
        if queue.is_empty:
            del self._queues[queue.key]
            if not self._sizes[queue.group]:
                del self._sizes[queue.group]
        return pieces


def _is_long(queue: TurnQueue) -> bool:
    return isinstance(queue.key, tuple) and queue.key[-1] == _LONG


def _stopped() -> StatusError:
    return StatusError(
        StatusCode.UNAVAILABLE, "The server stops and takes no requests."
    )


def _full_queue(queued: int, parameters: BatchingParameters) -> StatusError:
    batches = -(-queued // parameters.max_batch_size)
    return StatusError(
        StatusCode.UNAVAILABLE,
        "The batch scheduling queue to which this task was submitted is full; "
        f"currently {batches} batches enqueued and max_enqueued_batches is "
        f"{parameters.max_enqueued_batches}",
    )
