"""Decide how long a batch that is not full waits for more rows."""

from dataclasses import dataclass

from .parameters import BatchingParameters


@dataclass(frozen=True)
class WaitLimits:
    """The longest wait of a batch where `batch_timeout_micros` is None.

    Attributes:
        part_of_run: Of the seconds of the run before.
        seconds: At most so many.
    """

    part_of_run: float = 0.25
    seconds: float = 0.005


@dataclass(frozen=True)
class Pace:
    """The rule that closes a batch of one signature of one version.

    Attributes:
        enough: Number of rows at which a batch stops waiting.
        timeout: Seconds that a smaller one waits.
        last_run: Seconds of the run before; 0 if there is none.
        last_end: When it ended.
    """

    enough: int
    timeout: float
    last_run: float = 0.0
    last_end: float = 0.0

    def closes_at(self, queued_at: float) -> float:
        """Return when a queue is done waiting for more rows.

        A first request that came while a batch ran waits from the end of that run on.
        Else it would leave alone, just before all those that the run has answered come
        back, and they after it, and so on: half of the batches would be of one row. It
        does so only once: later runs must not hold it up again and again.

        Args:
            queued_at: When the first request in the queue came.
        """
        last_end = min(self.last_end, queued_at + self.last_run)
        return max(queued_at, last_end) + self.timeout


def first_pace(parameters: BatchingParameters) -> Pace:
    """Return the pace of a signature that has not run yet."""
    timeout = (parameters.batch_timeout_micros or 0) / 1e6
    return Pace(parameters.max_batch_size, timeout)


def next_pace(
    parameters: BatchingParameters,
    limits: WaitLimits,
    rows: int,
    seconds: float,
    end: float,
) -> Pace:
    """Return the pace after a run.

    Args:
        parameters: Those of the scheduler.
        limits: Those of the scheduler.
        rows: Rows of the batch.
        seconds: Time of its run.
        end: When the run ended.
    """
    if parameters.batch_timeout_micros is not None:
        return first_pace(parameters)
    timeout = min(limits.part_of_run * seconds, limits.seconds)
    return Pace(rows, timeout, seconds, end)
