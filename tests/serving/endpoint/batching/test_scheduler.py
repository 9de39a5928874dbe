"""Which requests run together, when, and in which order; limits, and the end.

Oracle: each request gets the answer that it would get alone.
"""

import gc
import logging
import threading
import weakref
from concurrent.futures import wait
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.endpoint.batching.pace import WaitLimits
from serving.endpoint.batching.parameters import BatchingParameters
from serving.endpoint.batching.scheduler import BatchScheduler
from serving.web.status import StatusCode, StatusError
from tests.support.batched import (
    SECONDS,
    Client,
    Stub,
    answers,
    batching,
    held,
    queued,
    submit,
)
from tests.support.clock import Clock

# A batch that waited so long would outlast the test.
LONG = WaitLimits(part_of_run=1e12, seconds=1e6)


class TestBatches:
    def test_requests_that_queue_up_run_together_and_get_their_own_rows(self):
        stub = Stub()
        with batching() as scheduler:
            futures = queued(scheduler, stub, [1], [2, 3], [4, 5])
            assert answers(futures) == [[2], [4, 6], [8, 10]]
        assert [batch.tolist() for batch in stub.batches] == [[1, 2, 3, 4, 5]]

    def test_batch_is_closed_before_a_request_that_does_not_fit(self):
        stub = Stub()
        with batching(4) as scheduler:
            futures = queued(scheduler, stub, *([n] * n for n in (3, 1, 2, 3)))
            wait(futures, SECONDS)
        assert stub.sizes == [4, 2, 3]

    def test_queue_that_has_waited_longest_is_first(self):
        order = []
        stubs = [
            Stub(lambda inputs, n=n: order.append(n) or {"y": inputs["x"]})
            for n in range(3)
        ]
        with batching() as scheduler:
            held(scheduler, stubs[0])
            futures = [submit(scheduler, stubs[n], [1]) for n in (2, 0, 1, 2, 0)]
            stubs[0].gate.set()
            wait(futures, SECONDS)
        assert order == [2, 0, 1]

    @pytest.mark.parametrize("last", ["full", "alone"])
    def test_several_threads_run_at_the_same_time(self, last):
        barrier = threading.Barrier(2)

        def meet(inputs):
            barrier.wait(SECONDS)
            return {"y": inputs["x"]}

        stub = Stub(meet, out=(None,) if last == "full" else ())
        with batching(1, num_batch_threads=2) as scheduler:
            futures = [submit(scheduler, stub, [n]) for n in range(6)]
            assert answers(futures) == [[n] for n in range(6)]

    def test_without_batching_each_request_runs_whole(self):
        stub = Stub()
        with BatchScheduler(BatchingParameters.unbatched()) as scheduler:
            futures = [submit(scheduler, stub, [n] * n) for n in range(1, 6)]
            assert answers(futures) == [[2 * n] * n for n in range(1, 6)]
        assert sorted(stub.sizes) == [1, 2, 3, 4, 5]

    def test_without_batching_long_requests_leave_a_thread_to_short_ones(self):
        gate, running = threading.Event(), threading.Semaphore(0)

        def run(inputs):
            if len(inputs["x"]) > 1:
                running.release()
                assert gate.wait(SECONDS)
            return {"y": inputs["x"]}

        stub = Stub(run)
        parameters = replace(
            BatchingParameters.unbatched(), num_batch_threads=3, max_enqueued_batches=4
        )
        with BatchScheduler(parameters) as scheduler:
            try:
                long = [submit(scheduler, stub, [0] * 17) for _ in range(2)]
                for _ in range(2):
                    assert running.acquire(timeout=SECONDS)
                long += [submit(scheduler, stub, [0] * 17) for _ in range(4)]
                with pytest.raises(StatusError, match="is full"):
                    submit(scheduler, stub, [0] * 17)
                assert answers([submit(scheduler, stub, [7])]) == [[7]]
                assert not running.acquire(timeout=0.05)
            finally:
                gate.set()
            assert answers(long) == [[0] * 17] * 6

    @given(
        sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12),
        most=st.integers(1, 6),
        allowed=st.sets(st.integers(1, 5)),
        threads=st.integers(1, 3),
        timeout=st.sampled_from([None, 0, 200]),
    )
    @settings(max_examples=60, deadline=None)
    def test_any_mix_of_sizes_returns_each_its_own_rows(
        self, sizes, most, allowed, threads, timeout
    ):
        stub = Stub()
        allowed = sorted({*(size for size in allowed if size < most), most})
        starts = np.cumsum([0, *sizes])
        rows = [np.arange(a, a + n) for a, n in zip(starts[:-1], sizes, strict=True)]
        with batching(
            most,
            num_batch_threads=threads,
            batch_timeout_micros=timeout,
            allowed_batch_sizes=tuple(allowed),
            max_enqueued_batches=1000,
        ) as scheduler:
            futures = [submit(scheduler, stub, x) for x in rows]
            assert answers(futures) == [(2 * x).tolist() for x in rows]
        assert {size for size in stub.sizes if size} <= set(allowed)


class TestWaits:
    def test_batch_that_is_not_full_runs_when_its_time_is_over(self):
        stub = Stub()
        with batching(2, batch_timeout_micros=1000) as scheduler:
            assert answers([submit(scheduler, stub, [1])]) == [[2]]

    def test_batch_waits_for_its_timeout_while_full_ones_of_others_run(self):
        clock, patient, full = Clock(), Stub(), Stub()

        def look():
            """Let the thread look at all queues, and run a full batch of another."""
            assert answers([submit(scheduler, full, [1, 2])]) == [[2, 4]]

        with batching(2, clock=clock, batch_timeout_micros=10**10) as scheduler:
            first = submit(scheduler, patient, [1])
            clock.now += 9_999
            look()
            assert not first.done()
            clock.now += 2
            look()
            assert answers([first]) == [[2]]
            second = submit(scheduler, patient, [2])
            look()
            assert not second.done()
            third = submit(scheduler, patient, [3])
            assert answers([second, third]) == [[4], [6]]
        assert patient.sizes == [1, 2]
        assert full.sizes == [2] * 3

    def test_without_a_set_timeout_a_batch_waits_a_part_of_the_run_before(self):
        clock, other = Clock(), Stub()

        def run(inputs):
            clock.now += 4000
            return {"y": inputs["x"]}

        stub, waits = Stub(run), WaitLimits(part_of_run=0.25, seconds=1e6)
        with batching(batch_timeout_micros=None, waits=waits, clock=clock) as scheduler:
            assert answers(queued(scheduler, stub, [1], [2])) == [[1], [2]]
            late = submit(scheduler, stub, [3])
            clock.now += 999
            assert answers([submit(scheduler, other, [1])]) == [[2]]
            assert not late.done()
            clock.now += 2
            assert answers([submit(scheduler, other, [1])]) == [[2]]
            assert answers([late]) == [[3]]

    def test_without_a_set_timeout_those_just_answered_may_come_back(self):
        # However long the wait: the second request is what ends it.
        stub = Stub()
        with batching(batch_timeout_micros=None, waits=LONG) as scheduler:
            assert answers(queued(scheduler, stub, [1], [2])) == [[2], [4]]
            futures = [submit(scheduler, stub, [n]) for n in (3, 4)]
            assert answers(futures) == [[6], [8]]
        assert stub.sizes == [2, 2]

    def test_without_a_set_timeout_a_lone_client_waits_for_no_other(self):
        popular, lone = Stub(), Stub()
        with batching(batch_timeout_micros=None, waits=LONG) as scheduler:
            # The first ever is not kept waiting either.
            assert answers([submit(scheduler, lone, [7])]) == [[14]]
            assert answers(queued(scheduler, popular, [1], [2])) == [[2], [4]]
            for n in range(3):
                assert answers([submit(scheduler, lone, [n])]) == [[2 * n]]


class TestHook:
    def test_hook_is_reported_rows_and_times_of_each_batch(self):
        told, clock = [], Clock()

        def run(inputs):
            clock.now += 3
            return {"y": inputs["x"]}

        stub = Stub(run)
        with batching(
            8, lambda *b: told.append(b), clock=clock, allowed_batch_sizes=(8,)
        ) as scheduler:
            held(scheduler, stub)
            futures = []
            for x in ([1], [2, 3]):
                futures.append(submit(scheduler, stub, x))
                clock.now += 5
            stub.gate.set()
            wait(futures, SECONDS)
        assert told[-1] == (stub, [1, 2], 5, [10, 5], 3)

    def test_hook_is_reported_no_rows_of_a_request_that_runs_as_it_is(self):
        # A client may send any number of them: each would be a series of its own.
        told, stub = [], Stub(out=())
        with batching(
            8, lambda *b: told.append(b), clock=Clock(), allowed_batch_sizes=(4, 8)
        ) as scheduler:
            assert answers([submit(scheduler, stub, [1, 2, 3])]) == [[2, 4, 6]]
        assert told == [(stub, [], 0, [0], 0)]

    def test_failing_hook_is_logged_and_harms_nothing(self, caplog):
        def hook(*batch):
            raise RuntimeError("no metrics")

        with caplog.at_level(logging.ERROR), batching(8, hook) as scheduler:
            futures = [submit(scheduler, Stub(), [n]) for n in (1, 2)]
            assert answers(futures) == [[2], [4]]
        assert "no metrics" in caplog.text


class TestLimits:
    def test_full_queue_refuses_and_takes_again_when_it_has_room(self):
        stub, other = Stub(), Stub()
        with batching(2, max_enqueued_batches=3) as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, [n]) for n in range(6)]
            with pytest.raises(StatusError) as caught:
                submit(scheduler, stub, [7])
            assert caught.value.code == StatusCode.UNAVAILABLE
            assert caught.value.message == (
                "The batch scheduling queue to which this task was submitted is full; "
                "currently 3 batches enqueued and max_enqueued_batches is 3"
            )
            futures.append(submit(scheduler, other, [9]))
            stub.gate.set()
            wait(futures, SECONDS)
            assert answers([submit(scheduler, stub, [7])]) == [[14]]

    def test_no_request_is_refused_for_its_size(self):
        stub = Stub()
        with batching(2, max_enqueued_batches=1) as scheduler:
            assert answers([submit(scheduler, stub, np.arange(9))]) == [
                (2 * np.arange(9)).tolist()
            ]

    def test_without_batching_256_requests_may_wait(self):
        stub = Stub()
        parameters = BatchingParameters.unbatched()
        with BatchScheduler(parameters) as scheduler:
            try:
                for _ in range(parameters.num_batch_threads):
                    stub.entered.clear()
                    held(scheduler, stub)
                futures = [submit(scheduler, stub, [n, n]) for n in range(256)]
                with pytest.raises(StatusError, match="is full"):
                    submit(scheduler, stub, [1])
            finally:
                stub.gate.set()
            assert answers(futures) == [[2 * n, 2 * n] for n in range(256)]


class TestNotNeeded:
    @pytest.mark.parametrize(
        ("client", "code", "message"),
        [
            (Client(remaining=0.0), StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
            (Client(active=False), StatusCode.CANCELLED, "Cancelled"),
        ],
    )
    def test_request_nobody_waits_for_is_not_run(self, client, code, message):
        stub = Stub()
        with batching() as scheduler:
            held(scheduler, stub)
            left = submit(scheduler, stub, [1], client)
            stays = submit(scheduler, stub, [2], Client(remaining=60.0))
            stub.gate.set()
            assert answers([stays]) == [[4]]
            with pytest.raises(StatusError) as caught:
                left.result(SECONDS)
        assert (caught.value.code, caught.value.message) == (code, message)
        assert stub.sizes == [1]

    def test_cancelled_future_is_not_run(self):
        stub = Stub()
        with batching(2) as scheduler:
            held(scheduler, stub)
            left, long = submit(scheduler, stub, [1]), submit(scheduler, stub, [3] * 5)
            assert left.cancel()
            assert long.cancel()
            stays = submit(scheduler, stub, [2])
            stub.gate.set()
            assert answers([stays]) == [[4]]
        assert [batch.tolist() for batch in stub.batches] == [[2]]

    @pytest.mark.parametrize("rows", [1, 5])
    def test_cancelled_request_leaves_its_inputs_at_once(self, rows):
        stub = Stub()
        with batching(2) as scheduler:
            held(scheduler, stub)
            array = np.full(rows, 3)
            kept = weakref.ref(array)
            gc.disable()  # a circle of references would wait for it
            try:
                future = submit(scheduler, stub, array)
                del array
                assert kept() is not None
                assert future.cancel()
                assert kept() is None
            finally:
                gc.enable()
                stub.gate.set()

    @pytest.mark.parametrize("outcome", ["answer", "refusal", "crash"])
    def test_answered_requests_do_not_keep_the_version_in_memory(
        self, outcome, monkeypatch
    ):
        # Pytest keeps all log records, and with them the frames of their tracebacks.
        monkeypatch.setattr(
            logging.getLogger("serving.endpoint.batching.run"), "disabled", True
        )

        def predict(inputs):
            if outcome == "refusal":
                raise StatusError(StatusCode.INVALID_ARGUMENT, "no")
            if outcome == "crash":
                raise RuntimeError("no")
            return {"y": inputs["x"]}

        freed = threading.Event()
        stub = Stub(predict)
        watch = weakref.finalize(stub, freed.set)
        with batching(2) as scheduler:
            gc.disable()  # a circle of references would wait for it
            try:
                future = submit(scheduler, stub, np.arange(5))
                wait([future], SECONDS)
                del stub, predict, future
                assert freed.wait(SECONDS)
            finally:
                gc.enable()
        assert not watch.alive


class TestClose:
    def test_close_runs_what_is_queued_and_refuses_more(self):
        stub = Stub()
        scheduler = batching(4, max_enqueued_batches=10**9, batch_timeout_micros=2**62)
        held_up = submit(scheduler, stub, np.ones(4, np.float16))
        assert stub.entered.wait(SECONDS)
        futures = [submit(scheduler, stub, [n]) for n in range(3)]
        closing = threading.Thread(target=scheduler.close)
        closing.start()
        # The thread is at the gate, so that closing cannot end before it opens.
        refused = None
        while refused is None:
            try:
                futures.append(submit(scheduler, stub, [9]))
            except StatusError as error:
                refused = error
        assert refused.code == StatusCode.UNAVAILABLE
        assert refused.message == "The server stops and takes no requests."
        stub.gate.set()
        closing.join(SECONDS)
        assert not closing.is_alive()
        assert held_up.done()
        assert answers(futures)[:3] == [[0], [2], [4]]
        assert all(future.done() for future in futures)

    def test_close_with_a_limit_refuses_what_is_still_queued(self):
        stub = Stub()
        scheduler = batching(2)
        runs = held(scheduler, stub)
        short, long = submit(scheduler, stub, [1]), submit(scheduler, stub, [2] * 5)
        left = submit(scheduler, stub, [3])
        assert left.cancel()
        assert not scheduler.close(0.01)
        for future in (short, long):
            with pytest.raises(StatusError, match="The server stops") as caught:
                future.result(SECONDS)
            assert caught.value.code == StatusCode.UNAVAILABLE
        assert not runs.done()
        stub.gate.set()
        assert answers([runs]) == [[1]]
        assert scheduler.close()
        assert stub.sizes == []
