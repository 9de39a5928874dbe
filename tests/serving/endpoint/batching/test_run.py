"""What goes wrong in a batch reaches its own request, and no other."""

from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

from serving.endpoint.batching import run
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
    strings,
    submit,
)
from tests.support.example_model import png


def stub_that_refuses(code=StatusCode.INTERNAL):
    """Make a model that refuses a batch with a negative number."""

    def predict(inputs):
        if (inputs["x"] < 0).any():
            raise StatusError(code, f"bad: {inputs['x'].min()}")
        return {"y": inputs["x"]}

    return Stub(predict)


class TestRefusals:
    def test_bad_request_fails_alone(self):
        stub = stub_that_refuses()
        values = [1, 2, -3, 4, 5, 6, 7, -8, 9]
        with batching(16) as scheduler:
            futures = queued(scheduler, stub, *([n] for n in values))
            for value, future in zip(values, futures, strict=True):
                if value > 0:
                    assert future.result(SECONDS)["y"].tolist() == [value]
                else:
                    with pytest.raises(StatusError, match=f"^bad: {value}$"):
                        future.result(SECONDS)

    @pytest.mark.parametrize("position", range(16))
    def test_bad_request_costs_two_runs_for_each_halving_at_most(self, position):
        stub = stub_that_refuses()
        values = np.ones((16, 1), np.int64)
        values[position] = -1
        with batching(16) as scheduler:
            wait(queued(scheduler, stub, *values), SECONDS)
        assert stub.sizes[0] == 16
        assert len(stub.sizes) <= 1 + 2 * 4

    def test_nothing_is_lost_among_many_threads_with_bad_requests(self):
        def refuse(inputs):
            if (inputs["x"] % 10 == 0).any():
                raise StatusError(StatusCode.INVALID_ARGUMENT, "ends with 0")
            return {"y": inputs["x"] * 2}

        stub = Stub(refuse)
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


class TestFaults:
    def test_crash_reaches_each_request_and_the_thread_lives_on(self):
        def crash(inputs):
            if (inputs["x"] < 0).any():
                raise SystemExit("the disk is gone")
            return {"y": inputs["x"]}

        stub = Stub(crash)
        with batching() as scheduler:
            for future in queued(scheduler, stub, [1], [-1]):
                with pytest.raises(SystemExit, match="the disk is gone"):
                    future.result(SECONDS)
            assert answers([submit(scheduler, stub, [3])]) == [[3]]

    @pytest.mark.parametrize("part", ["merge_inputs", "split_outputs", "join_outputs"])
    def test_too_little_memory_for_a_batch_reaches_its_request(self, part, monkeypatch):
        def fail(*_):
            raise MemoryError

        stub = Stub()
        with batching(2) as scheduler:
            with monkeypatch.context() as patched:
                patched.setattr(run, part, fail)
                with pytest.raises(StatusError, match="too little memory") as caught:
                    submit(scheduler, stub, [1, 2, 3]).result(SECONDS)
            assert caught.value.code == StatusCode.RESOURCE_EXHAUSTED
            assert answers([submit(scheduler, stub, [4])]) == [[8]]


class TestBadRow:
    """A model that decodes images does not say which it refuses."""

    def test_error_in_a_split_request_names_the_row_of_the_request(self):
        def refuse(inputs):
            if b"bad" in inputs["x"].tolist():
                raise StatusError(StatusCode.INVALID_ARGUMENT, "cannot be read")
            return {"y": np.zeros(len(inputs["x"]), np.int64)}

        stub = Stub(refuse, dtype="string")
        images = strings(*[b"good"] * 10)
        images[[6, 9]] = b"bad"
        with batching(4, allowed_batch_sizes=(4,)) as scheduler:
            future = submit(scheduler, stub, images)
            with pytest.raises(StatusError) as caught:
                future.result(SECONDS)
        assert caught.value.message == 'Input "x", row 6: cannot be read'
        assert set(stub.sizes) == {4}

    @pytest.mark.parametrize(
        "parameters",
        [
            BatchingParameters(),
            BatchingParameters(max_batch_size=2, num_batch_threads=2),
            BatchingParameters.unbatched(),
        ],
        ids=["whole", "split", "unbatched"],
    )
    def test_first_bad_image_of_a_request_is_named(self, example_servables, parameters):
        images = [png(0, 0, 0), png(1, 1, 1), png(2, 2, 2), b"", png(4, 4, 4), b""]
        with BatchScheduler(parameters) as scheduler:
            future = submit(
                scheduler, example_servables[0], strings(*images), name="image_bytes"
            )
            with pytest.raises(StatusError) as caught:
                future.result(SECONDS)
        assert caught.value.message == 'Input "image_bytes", row 3: Input is empty.'


class TestSavedModel:
    """Batches of a real model, which queue up while a stub holds the thread."""

    def test_bad_image_among_good_ones_fails_its_own_request_only(
        self, example_servables
    ):
        model, stub, told = example_servables[0], Stub(), []
        with batching(16, lambda *batch: told.append(batch)) as scheduler:
            held(scheduler, stub)
            *good, bad = (
                submit(scheduler, model, strings(image), name="image_bytes")
                for image in [*(png(n * 30, 0, 255) for n in range(8)), b"no image"]
            )
            stub.gate.set()
            for number, future in enumerate(good):
                embedding = future.result(SECONDS)["embedding"]
                expected = [[number * 30 / 255, 0, 1, 1]]
                np.testing.assert_allclose(embedding, expected, atol=1e-6)
            with pytest.raises(StatusError) as caught:
                bad.result(SECONDS)
        assert caught.value.code == StatusCode.INVALID_ARGUMENT
        assert caught.value.message.startswith(
            'Input "image_bytes", row 0: Unknown image file format. One of '
        )
        assert told[1][1] == [1] * 9

    def test_signature_with_several_inputs_and_outputs_is_batched(
        self, example_servables
    ):
        def inputs(number):
            text = strings(*[b"a%d" % number] * number)
            return {"number": np.arange(number), "text": text}

        model, stub, told = example_servables[0], Stub(), []
        with batching(
            7, lambda *batch: told.append(batch), allowed_batch_sizes=(4, 7)
        ) as scheduler:
            held(scheduler, stub)
            futures = [
                scheduler.submit(model, "mixed", inputs(number), Client())
                for number in range(1, 9)
            ]
            stub.gate.set()
            for number, future in enumerate(futures, 1):
                outputs = future.result(SECONDS)
                np.testing.assert_allclose(outputs["third"], np.arange(number) / 3)
                assert outputs["text"].tolist() == [b"A%d" % number] * number
                assert outputs["even"].tolist() == [n % 2 == 0 for n in range(number)]
        assert [batch[1] for batch in told[1:4]] == [[1, 2, 3], [4], [5]]
