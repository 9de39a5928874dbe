"""Show how far a long job is: a bar in a terminal, plain lines elsewhere."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from rich.progress import TaskID

_FIRST = 10.0  # seconds to the first line: a short job prints none
_EVERY = 30.0  # seconds between lines
_LOOK = 1.0  # seconds between two looks at the clock
_REDRAWN = 4  # times per second, in a terminal

Item = TypeVar("Item")


class Progress:
    """Show how far a job is, from the beginning of a `with` block to its end.

    A terminal shows a bar, which the end of the job removes. In a file or a pipe the
    first line comes after 10 seconds and then one every 30, also while the job waits:

        embedding: 1,200 of 5,000 images, 40 images per second, 1:35 left

    All of it goes to the standard error. Jobs may be nested; lines are about the
    innermost. Any thread may call the methods.

    Args:
        what: What is done, such as "embedding".
        total: How many units there are; None where nobody knows, or nothing is
            counted. It may be changed.
        unit: What is counted, in the plural.
        done: How many units were done before; they are not in the speed.
        shown: False shows nothing.

    Attributes:
        what: As given; it may be changed.
        note: What else a line says, such as "loss 0.31".
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        unit: str = "images",
        *,
        done: int = 0,
        shown: bool = True,
    ) -> None:
        self.what = what
        self.total = total
        self.note = ""
        self.done = done
        self.has_spoken = False
        self._unit = unit
        self._shown = shown
        self._display: _Display | None = None
        self._started = time.monotonic()
        # The first units may have been compiled: the speed is that of all others.
        self._first: tuple[float, int] | None = None

    def __enter__(self) -> Self:
        """Begin to show the job."""
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        """Show it no longer."""
        self.end()

    def begin(self) -> None:
        """Begin to show the job, until `end`."""
        self._started = time.monotonic()
        if self._shown and sys.stderr is not None:
            self._display = _BARS if in_terminal() else _LINES
            self._display.begin(self)

    def end(self) -> None:
        """Remove the bar, or print the last line of a job that has printed others."""
        display, self._display = self._display, None
        if display is not None:
            display.end(self)

    def update(self, count: int = 1) -> None:
        """Count units that are done."""
        self.done += count
        if self._first is None:
            self._first = (time.monotonic(), self.done)

    def say(self, text: str) -> None:
        """Print a line to the standard output, in place of the next line."""
        print(text, flush=True)
        if self._display is not None:
            self._display.has_said()

    def state(self) -> str:
        """Return what is done, the speed and the time left."""
        now = time.monotonic()
        if self.total is None and not self.done:
            parts = [f"{clock(now - self._started)} so far"]
        elif self.total is None:
            parts = [f"{self.done:,} {self._unit}"]
        else:
            parts = [f"{self.done:,} of {self.total:,} {self._unit}"]
        moment, before = self._first or (now, self.done)
        if self.done > before and now > moment:
            rate = (self.done - before) / (now - moment)
            parts.append(_speed(rate, self._unit))
            if self.total is not None:
                left = max(0, self.total - self.done)  # a total may be an estimate
                parts.append(f"{clock(left / rate)} left")
        elif self.total is not None:
            parts.append(f"{clock(now - self._started)} so far")
        return ", ".join([*parts, self.note] if self.note else parts)

    def result(self) -> str:
        """Return what has been done, and in which time."""
        counted = f"{self.done:,} {self._unit} in " if self.done else ""
        return f"{counted}{clock(time.monotonic() - self._started)}"


def tracked(
    items: Iterable[Item],
    what: str,
    total: int | None = None,
    unit: str = "images",
    *,
    shown: bool = True,
) -> Iterator[Item]:
    """Yield items and show how many have been.

    Args:
        items: The items.
        what: What is done with them.
        total: How many there are.
        unit: What they are, in the plural.
        shown: False shows nothing.
    """
    with Progress(what, total, unit, shown=shown) as progress:
        for item in items:
            yield item
            progress.update()


def in_terminal() -> bool:
    """Return whether the standard error is a terminal, which shows bars."""
    if sys.stderr is None or os.environ.get("TERM") == "dumb":
        return False
    return sys.stderr.isatty()


def clock(seconds: float) -> str:
    """Write a time as hours, minutes and seconds, such as "1:02:03" or "0:05"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _speed(per_second: float, unit: str) -> str:
    rate, time_unit = next(
        (per_second * seconds, name)
        for seconds, name in ((1, "second"), (60, "minute"), (3600, "hour"))
        if per_second * seconds >= 1 or name == "hour"
    )
    return f"{rate:,.{0 if rate >= 10 else 1}f} {unit} per {time_unit}"


class _Display(Protocol):
    """What shows the jobs of this process: there is one standard error."""

    def begin(self, job: Progress) -> None: ...

    def end(self, job: Progress) -> None: ...

    def has_said(self) -> None: ...


class _Lines:
    """Print a line about the innermost job when it is due."""

    def __init__(self) -> None:
        self._jobs: list[Progress] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._last = 0.0

    def begin(self, job: Progress) -> None:
        with self._lock:
            self._jobs.append(job)
            if len(self._jobs) > 1:
                return
            self._last = time.monotonic() - _EVERY + _FIRST
            self._over = threading.Event()
            threading.Thread(
                target=self._look, args=(self._over,), name="progress", daemon=True
            ).start()

    def end(self, job: Progress) -> None:
        with self._lock:
            self._jobs.remove(job)
            if not self._jobs:
                self._over.set()
            if job.has_spoken:
                self._print(job, job.result())

    def has_said(self) -> None:
        self._last = time.monotonic()

    def report(self) -> None:
        """Print a line if it is due."""
        with self._lock:
            if self._jobs and time.monotonic() - self._last >= _EVERY:
                self._print(self._jobs[-1], self._jobs[-1].state())

    def _look(self, over: threading.Event) -> None:
        while not over.wait(_LOOK):
            self.report()

    def _print(self, job: Progress, state: str) -> None:
        job.has_spoken = True
        self._last = time.monotonic()
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            print(f"{job.what}: {state}", file=sys.stderr, flush=True)


class _Bars:
    """Draw a bar for each job, the innermost last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bars: Any = None
        self._tasks: dict[Progress, TaskID] = {}

    def begin(self, job: Progress) -> None:
        with self._lock:
            if self._bars is None:
                self._bars = _new_bars()
                self._bars.start()
            self._tasks[job] = self._bars.add_task("", total=job.total, job=job)

    def end(self, job: Progress) -> None:
        with self._lock:
            self._bars.refresh()  # with all that was done
            self._bars.remove_task(self._tasks.pop(job))
            if not self._tasks:
                self._bars.stop()
                self._bars = None

    def has_said(self) -> None:
        """Do nothing: a bar goes on below what is printed."""


def _new_bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task
    from rich.progress import Progress as Bars
    from rich.text import Text

    class What(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(task.fields["job"].what)

    class Bar(BarColumn):
        def render(self, task: Task) -> Any:
            job: Progress = task.fields["job"]
            task.total, task.completed = job.total, job.done
            return super().render(task)

    class State(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(task.fields["job"].state(), no_wrap=True, overflow="ellipsis")

    return Bars(
        What(),
        Bar(bar_width=20),
        State(),
        console=Console(stderr=True, force_terminal=True),
        transient=True,
        refresh_per_second=_REDRAWN,
        # What is printed to a file must go on going there.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
    )


_LINES = _Lines()
_BARS = _Bars()
