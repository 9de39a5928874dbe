import threading
import time

import pytest

from serving.endpoint.rpc.message_memory import MessageMemory
from serving.web.status import StatusCode, StatusError
from tests.support.clock import Clock

LONG = 60.0


class Call:
    """A call that lasts until it is cancelled."""

    def __init__(self):
        self.is_cancelled = False

    def is_active(self):
        return not self.is_cancelled

    def cancel(self):
        self.is_cancelled = True


def until(condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Holder:
    """Holds memory for a call in a thread of its own, until it is told to end."""

    def __init__(self, memory):
        self.call, self.refusal = Call(), None
        self.has_memory, self._end = threading.Event(), threading.Event()
        self._memory = memory
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self._thread.start()

    def _hold(self):
        try:
            with self._memory.hold(self.call):
                self.has_memory.set()
                while not self._end.is_set() and not self.call.is_cancelled:
                    time.sleep(0.001)
        except StatusError as error:
            self.refusal = error.code

    def arrived(self, length):
        self._memory.arrived(self.call, length)

    def end(self):
        self._end.set()
        self._thread.join(LONG)
        assert not self._thread.is_alive()


@pytest.fixture
def hold():
    holders = []

    def start(memory):
        holders.append(Holder(memory))
        return holders[-1]

    yield start
    for holder in holders:
        holder.call.cancel()
        holder.end()


def test_message_that_arrives_counts_as_the_longest_and_then_as_it_is(hold):
    memory = MessageMemory(200, longest_bytes=50, clock=Clock())
    first, second = hold(memory), hold(memory)
    assert first.has_memory.wait(LONG)
    assert second.has_memory.wait(LONG)
    third = hold(memory)
    assert not third.has_memory.wait(0.05)
    second.arrived(1)
    assert not third.has_memory.wait(0.05)
    first.arrived(49)
    assert third.has_memory.wait(LONG)


def test_call_that_ends_makes_room(hold):
    memory = MessageMemory(100, longest_bytes=50, clock=Clock())
    first = hold(memory)
    assert first.has_memory.wait(LONG)
    first.arrived(50)
    second = hold(memory)
    assert not second.has_memory.wait(0.05)
    first.end()
    assert second.has_memory.wait(LONG)


def test_one_message_fits_however_small_the_budget_is(hold):
    memory = MessageMemory(1, longest_bytes=50, clock=Clock())
    first = hold(memory)
    assert first.has_memory.wait(LONG)
    assert not hold(memory).has_memory.wait(0.05)


def test_message_that_dribbles_is_given_up_once_another_waits(hold):
    clock = Clock()
    memory = MessageMemory(100, longest_bytes=50, patience=5.0, clock=clock)
    first = hold(memory)
    assert first.has_memory.wait(LONG)
    clock.now += 1000  # nobody waits: it may take its time
    assert not first.call.is_cancelled
    second = hold(memory)
    assert second.has_memory.wait(LONG)
    assert first.call.is_cancelled
    third = hold(memory)
    clock.now += 4.9
    assert not third.has_memory.wait(0.25)
    assert not second.call.is_cancelled


def test_last_is_first_once_the_first_has_waited_for_long(hold):
    clock = Clock()
    memory = MessageMemory(100, longest_bytes=50, patience=5.0, clock=clock)
    holding = hold(memory)
    assert holding.has_memory.wait(LONG)
    holding.arrived(50)
    first = hold(memory)
    until(lambda: len(memory._waiting) == 1)
    second = hold(memory)
    until(lambda: len(memory._waiting) == 2)
    third = hold(memory)
    until(lambda: len(memory._waiting) == 3)
    holding.end()
    assert first.has_memory.wait(LONG)
    first.arrived(50)
    clock.now += 6
    first.end()
    assert third.has_memory.wait(LONG)
    assert not second.has_memory.is_set()


def test_message_that_has_arrived_is_not_given_up(hold):
    clock = Clock()
    memory = MessageMemory(100, longest_bytes=50, patience=5.0, clock=clock)
    first = hold(memory)
    assert first.has_memory.wait(LONG)
    first.arrived(50)
    second = hold(memory)
    clock.now += 1000
    assert not second.has_memory.wait(0.25)
    assert not first.call.is_cancelled


def test_call_that_ends_while_it_waits_gets_no_memory(hold):
    memory = MessageMemory(100, longest_bytes=50, clock=Clock())
    assert hold(memory).has_memory.wait(LONG)
    second = hold(memory)
    assert not second.has_memory.wait(0.05)
    second.call.cancel()
    second.end()
    assert second.refusal == StatusCode.CANCELLED
