"""Images of all batches are decoded within one budget of memory."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.endpoint.batching.costs import ImageCosts, peak_bytes
from serving.endpoint.batching.parameters import BatchingParameters
from serving.endpoint.batching.scheduler import BatchScheduler
from serving.web.image_memory import ImageMemory
from serving.web.status import StatusCode, StatusError
from tests.support.batched import SECONDS, Client, Stub, strings


def costs_of(*rows, at_once=2):
    return ImageCosts(np.array(rows, np.int64), at_once)


class _Decoding(Stub):
    """A model whose rows say how much they take; knows the most at one time."""

    def __init__(self, at_once=2):
        super().__init__(self._decode, dtype="string")
        self._at_once = at_once
        self._lock = threading.Lock()
        self._held = self.most = 0

    def _decode(self, inputs):
        sizes = [int(row) for row in inputs["x"]]
        taken = peak_bytes([sizes], self._at_once)
        with self._lock:
            self._held += taken
            self.most = max(self.most, self._held)
        with self._lock:
            self._held -= taken
        return {"y": np.array(sizes)}


def scheduler_with(most_bytes, **parameters):
    parameters = {"max_batch_size": 4, "batch_timeout_micros": 0, **parameters}
    return BatchScheduler(
        BatchingParameters(**parameters), memory=ImageMemory(most_bytes)
    )


def submit(scheduler, model, *sizes):
    images = strings(*[b"%d" % size for size in sizes])
    inputs = {"x": images}
    return scheduler.submit(
        model, "serving_default", inputs, Client(), costs_of(*sizes)
    )


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 30),
)
def test_pieces_are_all_rows_within_their_limits(rows, most_rows, at_once, most_bytes):
    costs = costs_of(*rows, at_once=at_once)
    sizes = costs.cut(most_rows, most_bytes)
    assert sum(sizes) == len(rows)
    start = 0
    for size in sizes:
        assert 1 <= size <= most_rows
        largest = costs.largest(start, start + size)
        assert sorted(largest) == sorted(rows[start : start + size])[-at_once:]
        assert size == 1 or sum(largest) <= most_bytes
        start += size


@given(
    st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=9), max_size=9),
    st.integers(1, 3),
    st.sampled_from([(), (4,), (2, 4)]),
)
def test_batches_that_run_together_keep_to_the_budget(requests, threads, allowed):
    model = _Decoding()
    with scheduler_with(
        100, num_batch_threads=threads, allowed_batch_sizes=allowed
    ) as scheduler:
        futures = [submit(scheduler, model, *sizes) for sizes in requests]
        for future, sizes in zip(futures, requests, strict=True):
            assert future.result(SECONDS)["y"].tolist() == sizes
    assert model.most <= 100


def test_batch_is_not_filled_up_with_copies_of_an_image_too_large_for_it():
    model = _Decoding()
    with scheduler_with(100, allowed_batch_sizes=(4,)) as scheduler:
        submit(scheduler, model, 60).result(SECONDS)
        submit(scheduler, model, 50).result(SECONDS)
    assert model.sizes == [1, 4]


@pytest.mark.parametrize(
    ("parameters", "sizes"),
    [(BatchingParameters(), (1, 101)), (BatchingParameters.unbatched(), (60, 41))],
)
def test_what_can_never_be_decoded_is_refused_at_once(parameters, sizes):
    memory = ImageMemory(100, option="--image-memory-bytes")
    model = _Decoding()
    with BatchScheduler(parameters, memory=memory) as scheduler:
        with pytest.raises(StatusError, match="--image-memory-bytes") as caught:
            submit(scheduler, model, *sizes)
        assert caught.value.code == StatusCode.INVALID_ARGUMENT
        assert submit(scheduler, model, 9).result(SECONDS)["y"].tolist() == [9]
