"""Stop an action at each of its steps, by an error or by a kill; damage files.

A step is something that is done with files, or a line of code.

Python reports what it does with files before it does it (`sys.addaudithook`), all but
`fsync`, which is wrapped here.
"""

import contextlib
import linecache
import os
import sys
import threading
from unittest import mock

_EVENTS = ("open", "os", "shutil", "fcntl")


class _Step:
    """Counts the steps of one thread, and stops it at one of them."""

    def __init__(self):
        self.thread, self.events = None, _EVENTS
        sys.addaudithook(lambda event, _: self.come(event))

    def arm(self, left, stop):
        self.left, self.stop = left, stop
        self.thread = threading.get_ident()

    def come(self, event):
        if self.thread == threading.get_ident() and event.split(".")[0] in self.events:
            self.count()

    def count(self):
        self.left -= 1
        if self.left == -1:
            self.stop()


_step = None  # a hook cannot be taken out again


def each_step(prepare, action, stop, *, code=None, every=1):
    """Run an action until it is no longer stopped, at a later step each time.

    Args:
        prepare: Called before each run; what it returns is given to the action.
        action: What is stopped.
        stop: An exception to raise at the step, or "kill": the action runs in a forked
            process, which ends there.
        code: A folder. The steps are the lines that run in its files, where nothing is
            being cleaned up. Default: the steps are what is done with files.
        every: Of so many steps, the action is stopped at one.

    Yields:
        After each run, whether it was stopped. The last one was not.
    """
    global _step
    if _step is None:
        _step = _Step()
    step, was_stopped = 0, True
    while was_stopped:
        given = prepare()
        run = _killed if stop == "kill" else _failed
        was_stopped = run(lambda: action(given), step, stop, code)  # noqa: B023
        yield was_stopped
        step += every


def _failed(action, step, stop, code):
    def fail():
        raise type(stop)(*stop.args)  # a new one: its traceback keeps objects alive

    try:
        with _armed(step, fail), _traced(code):
            action()
    except type(stop):
        return True
    # A step whose failure is no failure of the action, as a look for leavings.
    return _step.left < 0


def _killed(action, step, stop, code):
    child = os.fork()
    if child == 0:
        with _armed(step, lambda: os._exit(9)), _traced(code):
            action()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), status
    return status == 9


# What runs from here on cleans up, or is Python's own.
_CLEANING = {"_take_back", "cut", "restore", "reset", "close", "made", "<lambda>"}


@contextlib.contextmanager
def _traced(folder):
    """Count the lines that run in the files of a folder, instead of steps on files."""
    if folder is None:
        yield
        return

    def enter(frame, event, argument):
        code = frame.f_code
        if not code.co_filename.startswith(folder) or code.co_name in _CLEANING:
            return None
        last = None

        def trace(frame, event, argument):
            nonlocal last
            if event != "line":
                return trace
            before, last = last, frame.f_lineno
            line = linecache.getline(code.co_filename, last)
            # CPython leaves a lock with its holder in two cases. At the end of a
            # `with`, 3.11 reports the line before it lets go. From 3.12 on, where a
            # loop jumps back to the line that it is on, what a trace function raises
            # passes each `finally` and `with` of that frame.
            if last != before and not line.lstrip().startswith("with "):
                _step.count()
            return trace

        return trace

    _step.events = ()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(None)
        _step.events = _EVENTS


@contextlib.contextmanager
def _armed(left, stop):
    fsync = os.fsync

    def counted(handle):
        _step.come("os.fsync")
        fsync(handle)

    with mock.patch.object(os, "fsync", counted):
        _step.arm(left, stop)
        try:
            yield
        finally:
            _step.thread = None


def flipped(path, places):
    """Flip one bit of a file at each place in turn, and restore it at the end."""
    whole = path.read_bytes()
    for number, place in enumerate(places):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << number % 8
        path.write_bytes(damaged)
        yield place
    path.write_bytes(whole)
