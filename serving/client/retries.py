"""Make a request again: after which failures, how often and after what wait.

tenacity 9 would bring the schedule, a random exponential wait, in about 15 lines less.
The rest would stay: `Retry-After` as the lower bound, no attempt whose wait would end
after the limit, and waits that a part of the work or the whole client can end.
"""

import enum
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Self, TypeVar

from tfdml.messages import bounded, shown

T = TypeVar("T")

# Uncertain on purpose, so that clients that failed together do not return together;
# drawn from the system, because a seed would have them return together again.
_random = random.SystemRandom()


class Failure(enum.Enum):
    """Why a request to an endpoint failed."""

    UNREACHABLE = "it is down, not there, or not ready"
    LATE = "it did not answer in time"
    REFUSED = "it refused the request; the status says why"
    UNEXPECTED = "its answer is not what was asked for"
    OTHER_MODEL = "it serves another model than before, or than is needed"


class EndpointError(RuntimeError):
    """The endpoint is down, refused the request or answered something else.

    Attributes:
        failure: Which of these it was.
        status: HTTP status (503) or gRPC code ("UNAVAILABLE") of a refusal; None where
            the endpoint did not answer, or with something else than was asked for.
        may_pass: Whether the same request may succeed later.
        retry_after: Seconds after which the endpoint wants to be asked again, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        failure: Failure = Failure.UNEXPECTED,
        status: int | str | None = None,
        may_pass: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(bounded(message))
        self.failure = failure
        self.status = status
        self.may_pass = may_pass
        self.retry_after = retry_after


def unexpected(url: str, reason: str) -> EndpointError:
    """Return the error for an answer that is not what was asked for."""
    return EndpointError(
        f"The embedding endpoint {url} gave an unexpected answer: {reason}."
    )


@dataclass(frozen=True)
class Retries:
    """Bounds on how often and how long a request is made again.

    The wait before the n-th retry is drawn between half and the whole of
    `first_wait * 2^(n-1)`, or of `longest_wait` where that is less. If the endpoint
    says how long to wait (`Retry-After`), the wait is no shorter than that.

    Args:
        count: Retries after the first attempt, at least 0; 0 for none.
        seconds: Time since the beginning of the first attempt after which no further
            one begins, at least 0. Where the wait would last longer, there is none.
        first_wait: Seconds, above 0.
        longest_wait: Seconds, at least `first_wait`.

    Raises:
        ValueError: An argument is out of its range.
    """

    count: int = 4
    seconds: float = 30.0
    first_wait: float = 0.1
    longest_wait: float = 5.0

    def __post_init__(self) -> None:
        for name in ("count", "seconds", "first_wait", "longest_wait"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ValueError(
                    f"`{name}` of retries must be a number. "
                    f"Received: {name}={shown(value)}."
                )
        if not self.count >= 0:
            raise ValueError(
                "`count` of retries must be at least 0. "
                f"Received: count={shown(self.count)}."
            )
        if not self.seconds >= 0:
            raise ValueError(
                "`seconds` of retries must be at least 0. "
                f"Received: seconds={self.seconds}."
            )
        if not 0 < self.first_wait <= self.longest_wait:
            raise ValueError(
                "`first_wait` must be above 0 and at most `longest_wait`. Received: "
                f"first_wait={self.first_wait}, longest_wait={self.longest_wait}."
            )


class Waits:
    """The waits of a client, or of a part of its work, which can be ended early.

    Args:
        whole: That of which this is a part: the part ends with it, it not with the
            part.
    """

    def __init__(self, whole: Self | None = None) -> None:
        self._whole = whole
        self._has_ended = False
        # One for all parts, so that the end of the whole wakes each of them.
        self._changed: threading.Condition = (
            threading.Condition() if whole is None else whole._changed
        )

    def wait(self, seconds: float) -> bool:
        """Wait so many seconds; true at once where it has ended, or when it does."""
        with self._changed:
            return self._changed.wait_for(self._is_over, seconds)

    def end(self) -> None:
        """End all waits, those to come too."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _is_over(self) -> bool:
        return self._has_ended or (self._whole is not None and self._whole._is_over())


def ask(
    attempt: Callable[[], T],
    retries: Retries,
    *,
    wait: Callable[[float], bool | None],
    clock: Callable[[], float] = time.monotonic,
    draw: Callable[[float, float], float] = _random.uniform,
) -> T:
    """Make a request, and make it again while it fails in a way that may pass.

    Args:
        attempt: Makes the request once.
        retries: The bounds.
        wait: Waits so many seconds; true if no further attempt is wanted.
        clock: Seconds that pass.
        draw: A random number between two.

    Returns:
        What `attempt` returned.

    Raises:
        EndpointError: The last failure; it counts the attempts, if several.
    """
    start = clock()
    tried = 0
    while True:
        try:
            return attempt()
        except EndpointError as error:
            tried += 1
            passed = clock() - start
            if error.may_pass and tried <= retries.count:
                longest = min(
                    retries.longest_wait, retries.first_wait * 2.0 ** (tried - 1)
                )
                pause = max(draw(longest / 2, longest), error.retry_after or 0.0)
                if passed + pause <= retries.seconds and not wait(pause):
                    continue
            if tried == 1:
                raise
            raise EndpointError(
                f"{error} (Tried {tried} times in {passed:.1f} seconds.)",
                failure=error.failure,
                status=error.status,
                may_pass=error.may_pass,
                retry_after=error.retry_after,
            ) from error
