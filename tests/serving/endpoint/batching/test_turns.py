"""Long requests take turns with others, and leave them room in the queue."""

from concurrent.futures import wait

import numpy as np
import pytest

from serving.web.status import StatusCode, StatusError
from tests.support.batched import (
    SECONDS,
    Stub,
    answers,
    batching,
    held,
    queued,
    submit,
)


def rows_of(stub):
    return [batch.tolist() for batch in stub.batches]


def test_others_run_between_two_batches_of_a_long_request():
    stub = Stub()
    with batching(2) as scheduler:
        futures = queued(scheduler, stub, [1] * 6, [2], [3])
        wait(futures, SECONDS)
    assert rows_of(stub) == [[1, 1], [2, 3], [1, 1], [1, 1]]


def test_two_long_requests_alternate():
    stub = Stub()
    with batching(2) as scheduler:
        futures = queued(scheduler, stub, [1] * 6, [2] * 4)
        assert answers(futures) == [[2] * 6, [4] * 4]
    assert rows_of(stub) == [[1, 1], [2, 2], [1, 1], [2, 2], [1, 1]]


def test_a_long_request_lets_other_models_run_between_its_batches():
    order = []
    stubs = [
        Stub(lambda inputs, n=n: order.append(n) or {"y": inputs["x"]})
        for n in range(2)
    ]
    with batching(2) as scheduler:
        held(scheduler, stubs[0])
        futures = [submit(scheduler, stubs[0], [1] * 6), submit(scheduler, stubs[1], 9)]
        futures.append(submit(scheduler, stubs[1], [1]))
        stubs[0].gate.set()
        wait(futures, SECONDS)
    assert order == [0, 1, 1, 0, 0]


def test_long_requests_leave_a_quarter_of_the_queue_to_short_ones():
    stub = Stub()
    with batching(2, max_enqueued_batches=16) as scheduler:  # 32 rows
        held(scheduler, stub)
        # Each counts as 4 batches, of 2 rows.
        futures = [submit(scheduler, stub, [1] * 100) for _ in range(3)]
        with pytest.raises(StatusError, match="is full"):
            submit(scheduler, stub, [1] * 100)
        futures += [submit(scheduler, stub, [n]) for n in range(8)]
        with pytest.raises(StatusError, match="is full"):
            submit(scheduler, stub, [9])
        stub.gate.set()
        wait(futures, SECONDS)
        assert answers(futures[3:]) == [[2 * n] for n in range(8)]


def test_a_long_request_leaves_room_in_the_queue():
    stub = Stub()
    with batching(2, max_enqueued_batches=10) as scheduler:
        held(scheduler, stub)
        long = submit(scheduler, stub, np.ones(1000, np.int64))  # counts as 4 batches
        others = [submit(scheduler, stub, [n]) for n in range(12)]
        with pytest.raises(StatusError, match="is full; currently 10 batches"):
            submit(scheduler, stub, [1])
        stub.gate.set()
        assert answers(others) == [[2 * n] for n in range(12)]
        assert answers([long]) == [[2] * 1000]
    assert rows_of(stub)[:3] == [[1, 1], [0, 1], [2, 3]]


def test_room_is_taken_by_a_request_as_it_comes_and_not_after_it():
    stub = Stub()
    with batching(2, max_enqueued_batches=7) as scheduler:
        held(scheduler, stub)
        futures = [submit(scheduler, stub, np.ones(100, np.int64))]
        with pytest.raises(StatusError) as caught:
            submit(scheduler, stub, np.ones(3, np.int64))
        assert caught.value.code == StatusCode.UNAVAILABLE
        futures.append(submit(scheduler, stub, [7, 7]))
        stub.gate.set()
        wait(futures, SECONDS)
        # All of it is given back.
        futures = [submit(scheduler, stub, [n] * 5) for n in range(2)]
        assert answers(futures) == [[0] * 5, [2] * 5]


def test_what_is_left_of_a_refused_request_takes_no_turns():
    def refuse(inputs):
        if (inputs["x"] < 0).any():
            raise StatusError(StatusCode.INTERNAL, "bad")
        return {"y": inputs["x"]}

    stub = Stub(refuse)
    with batching(1) as scheduler:
        bad, *good = queued(scheduler, stub, [-1] * 50, *([n] for n in range(20)))
        with pytest.raises(StatusError, match="bad"):
            bad.result(SECONDS)
        assert answers(good) == [[n] for n in range(20)]
    assert rows_of(stub) == [[-1], *([n] for n in range(20))]
