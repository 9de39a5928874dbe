"""Requests of many clients in batches.

A stub holds the only thread at a gate while requests queue up, so that the batches
after it are certain. Oracle: each request gets the answer that it would get alone.
"""

import gc
import logging
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.endpoint.batching.pace import WaitLimits
from serving.endpoint.batching.parameters import BatchingParameters
from serving.endpoint.batching.scheduler import BatchScheduler
from serving.endpoint.models.servable import Signature, TensorSpec
from serving.web.status import StatusCode, StatusError
from tests.support.example_model import png

SECONDS = 20
# A batch that waited so long would outlast the test.
LONG = WaitLimits(part_of_run=1e12, seconds=1e6)


class _Client:
    """A client that waits, until the test says otherwise."""

    def __init__(self, active=True, remaining=None):
        self.active = active
        self.remaining = remaining

    def is_active(self):
        return self.active

    def time_remaining(self):
        return self.remaining


class _Stub:
    """A model whose answers the test decides; knows the batches that it was given."""

    def __init__(self, predict=None, *, shape=(None,), out=(None,), dtype="int64"):
        self._predict = predict or (lambda inputs: {"y": inputs["x"] * 2})
        self.signatures = {
            "serving_default": Signature(
                "", {"x": TensorSpec(dtype, shape)}, {"y": TensorSpec("int64", out)}
            )
        }
        self.batches = []
        self.gate = threading.Event()
        self.entered = threading.Event()

    def predict(self, inputs, signature_name):
        if inputs["x"].dtype == np.float16:  # the request that holds the thread
            self.entered.set()
            assert self.gate.wait(SECONDS)
            return {"y": inputs["x"]}
        self.batches.append(inputs["x"])
        return self._predict(inputs)

    @property
    def sizes(self):
        return [len(batch) for batch in self.batches]


def held(scheduler, stub):
    """Hold the thread of the scheduler until the gate of the stub opens."""
    future = submit(scheduler, stub, np.ones(1, np.float16))
    assert stub.entered.wait(SECONDS)
    return future


def submit(scheduler, model, x, client=None, name="x", signature="serving_default"):
    array = np.asarray(x)
    return scheduler.submit(model, signature, {name: array}, client or _Client())


def answers(futures):
    return [future.result(SECONDS)["y"].tolist() for future in futures]


def batching(size=8, waits=WaitLimits(), **others):  # noqa: B008
    others = {"batch_timeout_micros": 0, "num_batch_threads": 1, **others}
    parameters = BatchingParameters(max_batch_size=size, **others)
    return BatchScheduler(parameters, waits=waits)


def strings(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


class TestBatches:
    def test_lone_request_runs_at_once(self):
        stub, parameters = _Stub(), BatchingParameters(num_batch_threads=1)
        with BatchScheduler(parameters, waits=LONG) as scheduler:
            assert answers([submit(scheduler, stub, [1, 2])]) == [[2, 4]]

    def test_requests_that_queue_up_run_together_and_get_their_own_rows(self):
        stub = _Stub()
        with batching() as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, x) for x in ([1], [2, 3], [4, 5])]
            stub.gate.set()
            assert answers(futures) == [[2], [4, 6], [8, 10]]
        assert [batch.tolist() for batch in stub.batches] == [[1, 2, 3, 4, 5]]

    def test_batch_is_closed_before_a_request_that_does_not_fit(self):
        stub = _Stub()
        with batching(4) as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, [n] * n) for n in (3, 1, 2, 3)]
            stub.gate.set()
            wait(futures, SECONDS)
        assert stub.sizes == [4, 2, 3]

    def test_full_batch_does_not_wait_for_the_timeout(self):
        stub = _Stub()
        with batching(2, batch_timeout_micros=2**62) as scheduler:
            futures = [submit(scheduler, stub, [n]) for n in (1, 2)]
            assert answers(futures) == [[2], [4]]
        assert stub.sizes == [2]

    def test_batch_that_is_not_full_runs_when_its_time_is_over(self):
        stub = _Stub()
        with batching(2, batch_timeout_micros=1000) as scheduler:
            assert answers([submit(scheduler, stub, [1])]) == [[2]]

    def test_without_a_set_timeout_those_just_answered_may_come_back(self):
        # However long the wait: the second request is what ends it.
        stub = _Stub()
        with batching(batch_timeout_micros=None, waits=LONG) as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, [n]) for n in (1, 2)]
            stub.gate.set()
            assert answers(futures) == [[2], [4]]
            futures = [submit(scheduler, stub, [n]) for n in (3, 4)]
            assert answers(futures) == [[6], [8]]
        assert stub.sizes == [2, 2]

    def test_without_a_set_timeout_a_lone_client_never_waits(self):
        stub = _Stub()
        with batching(batch_timeout_micros=None, waits=LONG) as scheduler:
            # The first ever is not kept waiting either.
            for n in range(3):
                assert answers([submit(scheduler, stub, [n])]) == [[2 * n]]

    def test_without_a_set_timeout_a_model_does_not_wait_for_that_of_another(self):
        popular, lone = _Stub(), _Stub()
        with batching(batch_timeout_micros=None, waits=LONG) as scheduler:
            held(scheduler, popular)
            futures = [submit(scheduler, popular, [n]) for n in (1, 2)]
            popular.gate.set()
            assert answers(futures) == [[2], [4]]
            for n in range(3):
                assert answers([submit(scheduler, lone, [n])]) == [[2 * n]]

    def test_queue_that_waits_does_not_keep_the_thread_from_another(self):
        patient, full = _Stub(), _Stub()
        with batching(2, batch_timeout_micros=2**62) as scheduler:
            first = submit(scheduler, patient, [1])
            futures = [submit(scheduler, full, [n]) for n in (1, 2)]
            assert answers(futures) == [[2], [4]]
            assert not first.done()
            second = submit(scheduler, patient, [2])
            assert answers([first, second]) == [[2], [4]]

    def test_queue_that_has_waited_longest_is_first(self):
        order = []
        stubs = [
            _Stub(lambda inputs, n=n: order.append(n) or {"y": inputs["x"]})
            for n in range(3)
        ]
        with batching() as scheduler:
            held(scheduler, stubs[0])
            futures = [submit(scheduler, stubs[n], [1]) for n in (2, 0, 1, 2, 0)]
            stubs[0].gate.set()
            wait(futures, SECONDS)
        assert order == [2, 0, 1]

    def test_dtypes_and_shapes_are_not_mixed(self):
        stub = _Stub(shape=(None, None), out=(None, None))
        with batching() as scheduler:
            held(scheduler, stub)
            arrays = [
                np.ones((1, 2), np.int64),
                np.ones((1, 3), np.int64),
                np.ones((1, 2), np.int32),
                np.full((2, 2), 7),
            ]
            futures = [submit(scheduler, stub, array) for array in arrays]
            stub.gate.set()
            assert answers(futures) == [(2 * array).tolist() for array in arrays]
        assert sorted(stub.sizes) == [1, 1, 3]

    @pytest.mark.parametrize("last", ["full", "alone"])
    def test_several_threads_run_at_the_same_time(self, last):
        barrier = threading.Barrier(2)

        def meet(inputs):
            barrier.wait(SECONDS)
            return {"y": inputs["x"]}

        stub = _Stub(meet, out=(None,) if last == "full" else ())
        with batching(1, num_batch_threads=2) as scheduler:
            futures = [submit(scheduler, stub, [n]) for n in range(6)]
            assert answers(futures) == [[n] for n in range(6)]

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
        stub = _Stub()
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


class TestSizes:
    def test_batch_is_filled_up_to_the_next_allowed_size_with_a_row(self):
        stub = _Stub()
        with batching(8, allowed_batch_sizes=(2, 4, 8)) as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, x) for x in ([1], [2, 3])]
            stub.gate.set()
            assert answers(futures) == [[2], [4, 6]]
        assert [batch.tolist() for batch in stub.batches] == [[1, 2, 3, 2]]

    def test_long_request_is_split_and_put_together_again(self):
        stub = _Stub()
        with batching(4) as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, x) for x in (np.arange(10), [7, 8])]
            stub.gate.set()
            expected = [(2 * np.arange(10)).tolist(), [14, 16]]
            assert answers(futures) == expected
        assert stub.sizes == [4, 4, 4]

    def test_error_in_a_split_request_names_the_row_of_the_request(self):
        def refuse(inputs):
            if b"bad" in inputs["x"].tolist():
                raise StatusError(StatusCode.INVALID_ARGUMENT, "cannot be read")
            return {"y": np.zeros(len(inputs["x"]), np.int64)}

        stub = _Stub(refuse, dtype="string")
        images = strings(*[b"good"] * 10)
        images[[6, 9]] = b"bad"
        with batching(4) as scheduler:
            future = submit(scheduler, stub, images)
            with pytest.raises(StatusError) as caught:
                future.result(SECONDS)
        assert caught.value.message == 'Input "x", row 6: cannot be read'

    def test_lengths_that_are_open_are_filled_up_with_the_first_value(self):
        # TF Serving's rule: at the end of each dimension, with the value at 0, 0, ...
        stub = _Stub(lambda inputs: {"y": inputs["x"][:, 0]}, shape=(None, None))
        with batching(pad_variable_length_inputs=True) as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, x) for x in ([[1, 2, 3]], [[4], [5]])]
            stub.gate.set()
            assert answers(futures) == [[1], [4, 5]]
        expected = [[[1, 2, 3], [4, 4, 4], [5, 4, 4]]]
        assert [batch.tolist() for batch in stub.batches] == expected

    def test_lengths_that_differ_too_much_are_not_filled_up(self):
        # Together 3 x 2000 x 2000 values, of 4,001 that were sent.
        stub = _Stub(
            lambda inputs: {"y": inputs["x"][:, 0, 0]}, shape=(None, None, None)
        )
        arrays = [np.full(shape, 1) for shape in ((1, 2000, 1), (1, 1, 2000))]
        arrays.append(np.full((1, 1, 1), 5))
        told = []
        parameters = BatchingParameters(
            max_batch_size=8, pad_variable_length_inputs=True, batch_timeout_micros=0
        )
        with BatchScheduler(parameters, lambda *batch: told.append(batch)) as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, array) for array in arrays]
            stub.gate.set()
            assert answers(futures) == [[1], [1], [5]]
        assert [batch.shape for batch in stub.batches] == [a.shape for a in arrays]
        assert [batch[1] for batch in told[1:]] == [[1], [1], [1]]

    @pytest.mark.parametrize(("long", "together"), [(400_000, True), (2**20, False)])
    def test_values_of_a_batch_are_four_times_those_sent_and_2_20_more_at_most(
        self, long, together
    ):
        # Filled up: 6 x long. Sent: long + 5.
        stub = _Stub(lambda inputs: {"y": inputs["x"][:, 0]}, shape=(None, None))
        with batching(pad_variable_length_inputs=True) as scheduler:
            held(scheduler, stub)
            arrays = [np.ones((1, long), np.int8)] + [np.ones((1, 1), np.int8)] * 5
            futures = [submit(scheduler, stub, array) for array in arrays]
            stub.gate.set()
            assert answers(futures) == [[1]] * 6
        assert stub.sizes == ([6] if together else [1] * 6)

    def test_lengths_of_the_signature_are_not_filled_up(self):
        stub = _Stub(lambda inputs: {"y": inputs["x"][:, 0]}, shape=(None, 2))
        with batching(pad_variable_length_inputs=True) as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, x) for x in ([[1, 2]], [[4]])]
            stub.gate.set()
            wait(futures, SECONDS)
        assert sorted(batch.tolist() for batch in stub.batches) == [[[1, 2]], [[4]]]

    def test_answers_do_not_keep_the_batch_in_memory(self):
        stub = _Stub()
        with batching() as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, [n]) for n in (1, 2)]
            stub.gate.set()
            assert all(f.result(SECONDS)["y"].base is None for f in futures)


class TestAlone:
    def test_without_batching_each_request_runs_whole(self):
        stub = _Stub()
        with BatchScheduler(BatchingParameters.unbatched()) as scheduler:
            futures = [submit(scheduler, stub, [n] * n) for n in range(1, 6)]
            assert answers(futures) == [[2 * n] * n for n in range(1, 6)]
        assert sorted(stub.sizes) == [1, 2, 3, 4, 5]

    @pytest.mark.parametrize(
        ("shape", "out"),
        [((None,), ()), ((None,), (4,)), ((4,), (None,)), (None, None)],
    )
    def test_signatures_without_a_batch_dimension_are_not_batched(self, shape, out):
        stub = _Stub(shape=shape, out=out)
        with batching(2) as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, [n] * 4) for n in (1, 2)]
            stub.gate.set()
            assert answers(futures) == [[2] * 4, [4] * 4]
        assert stub.sizes == [4, 4]

    def test_inputs_of_different_lengths_reach_the_model_alone(self):
        seen = []

        class Two:
            signatures = {  # noqa: RUF012
                "serving_default": Signature(
                    "",
                    dict.fromkeys("ab", TensorSpec("int64", (None,))),
                    {"y": TensorSpec("int64", (None,))},
                )
            }

            def predict(self, inputs, signature_name):
                seen.append([len(array) for array in inputs.values()])
                raise StatusError(StatusCode.INVALID_ARGUMENT, "lengths differ")

        inputs = {"a": np.ones(2, np.int64), "b": np.ones(3, np.int64)}
        with batching() as scheduler:
            future = scheduler.submit(Two(), "serving_default", inputs, _Client())
            with pytest.raises(StatusError, match=r"^lengths differ$"):
                future.result(SECONDS)
        assert seen == [[2, 3]]

    def test_outputs_that_are_not_rows_make_each_request_run_whole(self):
        # Its signature says rows, but the model answers with the distinct values.
        stub = _Stub(lambda inputs: {"y": np.unique(inputs["x"])})
        with batching(4) as scheduler:
            held(scheduler, stub)
            requests = [[1, 1], [2, 1], [5, 5, 6, 6, 7, 5]]
            futures = [submit(scheduler, stub, x) for x in requests]
            stub.gate.set()
            assert answers(futures) == [[1], [1, 2], [5, 6, 7]]


class TestErrors:
    def test_bad_request_fails_alone(self):
        def refuse(inputs):
            if (inputs["x"] < 0).any():
                raise StatusError(StatusCode.INTERNAL, f"bad: {inputs['x'].min()}")
            return {"y": inputs["x"]}

        stub = _Stub(refuse)
        with batching(16) as scheduler:
            held(scheduler, stub)
            values = [1, 2, -3, 4, 5, 6, 7, -8, 9]
            futures = [submit(scheduler, stub, [n]) for n in values]
            stub.gate.set()
            for value, future in zip(values, futures, strict=True):
                if value > 0:
                    assert future.result(SECONDS)["y"].tolist() == [value]
                else:
                    with pytest.raises(StatusError, match=f"^bad: {value}$"):
                        future.result(SECONDS)

    def test_bad_request_costs_two_runs_for_each_halving_at_most(self):
        def refuse(inputs):
            if (inputs["x"] < 0).any():
                raise StatusError(StatusCode.INTERNAL, "bad")
            return {"y": inputs["x"]}

        for position in range(16):
            stub = _Stub(refuse)
            with batching(16) as scheduler:
                held(scheduler, stub)
                values = np.ones(16, np.int64)
                values[position] = -1
                futures = [submit(scheduler, stub, [n]) for n in values]
                stub.gate.set()
                wait(futures, SECONDS)
            assert stub.sizes[0] == 16
            assert len(stub.sizes) <= 1 + 2 * 4

    def test_crash_reaches_each_request_and_the_thread_lives_on(self):
        def crash(inputs):
            if (inputs["x"] < 0).any():
                raise SystemExit("the disk is gone")
            return {"y": inputs["x"]}

        stub = _Stub(crash)
        with batching() as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, [n]) for n in (1, -1)]
            stub.gate.set()
            for future in futures:
                with pytest.raises(SystemExit, match="the disk is gone"):
                    future.result(SECONDS)
            assert answers([submit(scheduler, stub, [3])]) == [[3]]

    def test_nothing_is_lost_among_many_threads_with_bad_requests(self):
        def refuse(inputs):
            if (inputs["x"] % 10 == 0).any():
                raise StatusError(StatusCode.INVALID_ARGUMENT, "ends with 0")
            return {"y": inputs["x"] * 2}

        stub = _Stub(refuse)
        with (
            batching(8, num_batch_threads=2, batch_timeout_micros=None) as scheduler,
            ThreadPoolExecutor(16) as clients,
        ):

            def ask(thread):
                wrong = []
                for number in range(50 * thread, 50 * (thread + 1)):
                    try:
                        future = submit(scheduler, stub, [number])
                        received = future.result(SECONDS)["y"].tolist()
                    except StatusError as error:
                        received = error.message
                    expected = "ends with 0" if number % 10 == 0 else [2 * number]
                    if received != expected:
                        wrong.append((number, received))
                return wrong

            assert list(clients.map(ask, range(16))) == [[]] * 16

    @pytest.mark.parametrize("part", ["merge_inputs", "split_outputs", "join_outputs"])
    def test_too_little_memory_for_a_batch_reaches_its_request(self, part, monkeypatch):
        def fail(*_):
            raise MemoryError

        stub = _Stub()
        with batching(2) as scheduler:
            with monkeypatch.context() as patched:
                patched.setattr(f"serving.endpoint.batching.run.{part}", fail)
                with pytest.raises(StatusError, match="too little memory") as caught:
                    submit(scheduler, stub, [1, 2, 3]).result(SECONDS)
            assert caught.value.code == StatusCode.RESOURCE_EXHAUSTED
            assert answers([submit(scheduler, stub, [4])]) == [[8]]

    def test_failing_hook_is_logged_and_harms_nothing(self, caplog):
        def hook(servable, rows, padding, waits, seconds):
            raise RuntimeError("no metrics")

        parameters = BatchingParameters(num_batch_threads=1)
        with (
            caplog.at_level(logging.ERROR),
            BatchScheduler(parameters, hook) as scheduler,
        ):
            futures = [submit(scheduler, _Stub(), [n]) for n in (1, 2)]
            assert answers(futures) == [[2], [4]]
        assert "no metrics" in caplog.text

    def test_hook_is_told_rows_and_times_of_each_batch(self):
        told = []
        stub = _Stub()
        parameters = BatchingParameters(
            max_batch_size=8, allowed_batch_sizes=(8,), num_batch_threads=1
        )
        with BatchScheduler(parameters, lambda *batch: told.append(batch)) as scheduler:
            held(scheduler, stub)
            futures = [submit(scheduler, stub, x) for x in ([1], [2, 3])]
            stub.gate.set()
            wait(futures, SECONDS)
        model, rows, padding, waits, seconds = told[-1]
        assert (model, rows, padding, len(waits)) == (stub, [1, 2], 5, 2)
        assert min(*waits, seconds) >= 0

    def test_hook_is_told_no_rows_of_a_request_that_runs_as_it_is(self):
        # A client may send any number of them: each would be a series of its own.
        told = []
        stub = _Stub(out=())
        parameters = BatchingParameters(max_batch_size=8, allowed_batch_sizes=(4, 8))
        with BatchScheduler(parameters, lambda *batch: told.append(batch)) as scheduler:
            assert answers([submit(scheduler, stub, [1, 2, 3])]) == [[2, 4, 6]]
        ((model, rows, padding, waits, _),) = told
        assert (model, rows, padding, len(waits)) == (stub, [], 0, 1)


class TestLimits:
    def test_full_queue_refuses_and_takes_again_when_it_has_room(self):
        stub, other = _Stub(), _Stub()
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
        stub = _Stub()
        with batching(2, max_enqueued_batches=1) as scheduler:
            assert answers([submit(scheduler, stub, np.arange(9))]) == [
                (2 * np.arange(9)).tolist()
            ]

    def test_without_batching_256_requests_may_wait(self):
        stub = _Stub()
        parameters = BatchingParameters.unbatched()
        with BatchScheduler(parameters) as scheduler:
            try:
                entered = []
                for _ in range(parameters.num_batch_threads):
                    stub.entered.clear()
                    entered.append(held(scheduler, stub))
                futures = [submit(scheduler, stub, [n, n]) for n in range(256)]
                with pytest.raises(StatusError, match="is full"):
                    submit(scheduler, stub, [1])
            finally:
                stub.gate.set()
            assert answers(futures) == [[2 * n, 2 * n] for n in range(256)]

    @pytest.mark.parametrize(
        ("client", "code", "message"),
        [
            (_Client(remaining=0.0), StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
            (_Client(active=False), StatusCode.CANCELLED, "Cancelled"),
        ],
    )
    def test_request_nobody_waits_for_is_not_run(self, client, code, message):
        stub = _Stub()
        with batching() as scheduler:
            held(scheduler, stub)
            left = submit(scheduler, stub, [1], client)
            stays = submit(scheduler, stub, [2], _Client(remaining=60.0))
            stub.gate.set()
            assert answers([stays]) == [[4]]
            with pytest.raises(StatusError) as caught:
                left.result(SECONDS)
        assert (caught.value.code, caught.value.message) == (code, message)
        assert stub.sizes == [1]

    @pytest.mark.parametrize("rows", [1, 5])
    def test_cancelled_request_leaves_its_inputs_at_once(self, rows):
        stub = _Stub()
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

    def test_cancelled_future_is_not_run(self):
        stub = _Stub()
        with batching(2) as scheduler:
            held(scheduler, stub)
            left, long = submit(scheduler, stub, [1]), submit(scheduler, stub, [3] * 5)
            assert left.cancel()
            assert long.cancel()
            stays = submit(scheduler, stub, [2])
            stub.gate.set()
            assert answers([stays]) == [[4]]
        assert [batch.tolist() for batch in stub.batches] == [[2]]

    def test_close_runs_what_is_queued_and_refuses_more(self):
        stub = _Stub()
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
        stub = _Stub()
        scheduler = batching(2)
        runs = held(scheduler, stub)
        short, long = submit(scheduler, stub, [1]), submit(scheduler, stub, [2] * 5)
        left = submit(scheduler, stub, [3])
        assert left.cancel()
        scheduler.close(0.01)
        for future in (short, long):
            with pytest.raises(StatusError, match="The server stops") as caught:
                future.result(SECONDS)
            assert caught.value.code == StatusCode.UNAVAILABLE
        assert not runs.done()
        stub.gate.set()
        assert answers([runs]) == [[1]]
        scheduler.close()
        assert stub.sizes == []

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
        stub = _Stub(predict)
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


@pytest.fixture(scope="module")
def servable(example_servables):
    return example_servables[0]


class TestSavedModel:
    def test_bad_image_among_good_ones_fails_its_own_request_only(self, servable):
        told = []
        parameters = BatchingParameters(
            max_batch_size=16, batch_timeout_micros=200_000, num_batch_threads=1
        )
        together = threading.Barrier(9)

        def ask(number):
            image = png(number * 30, 0, 255) if number < 8 else b"no image"
            together.wait(SECONDS)
            future = submit(scheduler, servable, strings(image), name="image_bytes")
            try:
                return future.result(SECONDS)["embedding"]
            except StatusError as error:
                return error

        with (
            BatchScheduler(parameters, lambda *batch: told.append(batch)) as scheduler,
            ThreadPoolExecutor(9) as clients,
        ):
            received = list(clients.map(ask, range(9)))
        for number, embedding in enumerate(received[:8]):
            expected = [[number * 30 / 255, 0, 1, 1]]
            np.testing.assert_allclose(embedding, expected, atol=1e-6)
        assert received[8].code == StatusCode.INVALID_ARGUMENT
        assert received[8].message.startswith(
            'Input "image_bytes", row 0: Unknown image file format. One of '
        )
        assert max(len(batch[1]) for batch in told) > 1

    def test_bad_row_of_a_request_is_named(self, servable):
        images = [png(0, 0, 0), png(1, 1, 1), png(2, 2, 2), b"", png(4, 4, 4), b""]
        for parameters in (
            BatchingParameters(),
            BatchingParameters(max_batch_size=2, num_batch_threads=2),
            BatchingParameters.unbatched(),
        ):
            with BatchScheduler(parameters) as scheduler:
                future = submit(
                    scheduler, servable, strings(*images), name="image_bytes"
                )
                with pytest.raises(StatusError) as caught:
                    future.result(SECONDS)
            expected = 'Input "image_bytes", row 3: Input is empty.'
            assert caught.value.message == expected

    def test_signature_with_several_inputs_and_outputs_is_batched(self, servable):
        def ask(number):
            inputs = {
                "number": np.arange(number),
                "text": strings(*[b"a%d" % number] * number),
            }
            future = scheduler.submit(servable, "mixed", inputs, _Client())
            return future.result(SECONDS)

        with (
            batching(7, allowed_batch_sizes=(4, 7), batch_timeout_micros=None) as (
                scheduler
            ),
            ThreadPoolExecutor(8) as clients,
        ):
            for number, outputs in enumerate(clients.map(ask, range(1, 9)), 1):
                np.testing.assert_allclose(outputs["third"], np.arange(number) / 3)
                assert outputs["text"].tolist() == [b"A%d" % number] * number
                assert outputs["even"].tolist() == [n % 2 == 0 for n in range(number)]

    def test_signature_with_a_scalar_output_is_not_batched(self, servable):
        values = [np.array([n, 0.5], np.float32) for n in range(5)]
        with batching(64, batch_timeout_micros=100_000) as scheduler:
            futures = [
                submit(scheduler, servable, x, name="values", signature="total")
                for x in values
            ]
            totals = [future.result(SECONDS)["total"] for future in futures]
        assert totals == [n + 0.5 for n in range(5)]

    @pytest.mark.parametrize(
        ("signature", "name", "array", "message"),
        [
            ("none", "x", np.ones(1), 'Serving signature key "none" not found.'),
            (
                "serving_default",
                "other",
                strings(b""),
                "input size does not match signature: 1!=1 len({other}) != "
                "len({image_bytes}). Sent extra: {other}. Missing but required: "
                "{image_bytes}.",
            ),
            (
                "tensors",
                "images",
                np.zeros((2, 8, 8, 1), np.uint8),
                'Input "images" must have the shape [?,8,8,3] of the signature. '
                "Received: shape [2,8,8,1].",
            ),
            (
                "serving_default",
                "image_bytes",
                strings(b"").reshape(1, 1),
                'Input "image_bytes" must have the shape [?] of the signature. '
                "Received: shape [1,1].",
            ),
        ],
    )
    def test_model_tells_what_does_not_fit(
        self, servable, signature, name, array, message
    ):
        with batching() as scheduler:
            future = submit(scheduler, servable, array, name=name, signature=signature)
            with pytest.raises(StatusError) as caught:
                future.result(SECONDS)
        assert caught.value.message == message
