"""Stop an action at each of its steps on files, by an error or by a kill.

Python reports what it does with files before it does it (`sys.addaudithook`), all but
`fsync`, which is wrapped here.
"""

import contextlib
import os
import sys
import threading
from unittest import mock

_EVENTS = ("open", "os", "shutil", "fcntl")


class _Step:
    """Counts the steps of one thread, and stops it at one of them."""

    def __init__(self):
        self.thread = None
        sys.addaudithook(lambda event, _: self.come(event))

    def arm(self, left, stop):
        self.left, self.stop = left, stop
        self.thread = threading.get_ident()

    def come(self, event):
        if self.thread != threading.get_ident():
            return
        if event.split(".")[0] in _EVENTS:
            self.left -= 1
            if self.left == -1:
                self.stop()


_step = None  # a hook cannot be taken out again


def each_step(prepare, action, stop):
    """Run an action until it is no longer stopped, one step later each time.

    Args:
        prepare: Called before each run; what it returns is given to the action.
        action: What is stopped.
        stop: An exception to raise at the step, or "kill": the action runs in a forked
            process, which ends there.

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
        was_stopped = run(lambda: action(given), step, stop)  # noqa: B023
        yield was_stopped
        step += 1


def _failed(action, step, stop):
    def fail():
        raise type(stop)(*stop.args)  # a new one: its traceback keeps objects alive

    try:
        with _armed(step, fail):
            action()
    except type(stop):
        return True
    # A step whose failure is no failure of the action, as a look for leavings.
    return _step.left < 0


def _killed(action, step, stop):
    child = os.fork()
    if child == 0:
        with _armed(step, lambda: os._exit(9)):
            action()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), status
    return status == 9


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
