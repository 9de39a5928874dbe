"""Rows of requests in one batch: which fit together, and what fills it up."""

import numpy as np
import pytest

from serving.endpoint.batching.rows import join_outputs, mergeable, pads_too_much
from serving.endpoint.models.servable import Signature, TensorSpec
from serving.web.status import StatusCode, StatusError
from tests.support.batched import (
    SECONDS,
    Client,
    Stub,
    answers,
    batching,
    queued,
    submit,
)


def test_dtypes_and_shapes_are_not_mixed():
    stub = Stub(shape=(None, None), out=(None, None))
    arrays = [
        np.ones((1, 2), np.int64),
        np.ones((1, 3), np.int64),
        np.ones((1, 2), np.int32),
        np.full((2, 2), 7),
    ]
    with batching() as scheduler:
        futures = queued(scheduler, stub, *arrays)
        assert answers(futures) == [(2 * array).tolist() for array in arrays]
    assert sorted(stub.sizes) == [1, 1, 3]


def test_batch_is_filled_up_to_the_next_allowed_size_with_a_row():
    stub = Stub()
    with batching(8, allowed_batch_sizes=(2, 4, 8)) as scheduler:
        assert answers(queued(scheduler, stub, [1], [2, 3])) == [[2], [4, 6]]
    assert [batch.tolist() for batch in stub.batches] == [[1, 2, 3, 2]]


def test_long_request_is_split_and_put_together_again():
    stub = Stub()
    with batching(4) as scheduler:
        futures = queued(scheduler, stub, np.arange(10), [7, 8])
        assert answers(futures) == [(2 * np.arange(10)).tolist(), [14, 16]]
    assert stub.sizes == [4, 2, 4, 2]  # the other one has its turn


def test_answers_do_not_keep_the_batch_in_memory():
    stub = Stub()
    with batching() as scheduler:
        futures = queued(scheduler, stub, [1], [2])
        assert all(f.result(SECONDS)["y"].base is None for f in futures)


class TestLengths:
    """Requests whose rows have different lengths."""

    def test_lengths_that_are_open_are_filled_up_with_the_first_value(self):
        # TF Serving's rule: at the end of each dimension, with the value at 0, 0, ...
        stub = Stub(lambda inputs: {"y": inputs["x"][:, 0]}, shape=(None, None))
        with batching(pad_variable_length_inputs=True) as scheduler:
            futures = queued(scheduler, stub, [[1, 2, 3]], [[4], [5]])
            assert answers(futures) == [[1], [4, 5]]
        expected = [[[1, 2, 3], [4, 4, 4], [5, 4, 4]]]
        assert [batch.tolist() for batch in stub.batches] == expected

    def test_lengths_of_the_signature_are_not_filled_up(self):
        stub = Stub(lambda inputs: {"y": inputs["x"][:, 0]}, shape=(None, 2))
        with batching(pad_variable_length_inputs=True) as scheduler:
            assert answers(queued(scheduler, stub, [[1, 2]], [[4]])) == [[1], [4]]
        assert sorted(batch.tolist() for batch in stub.batches) == [[[1, 2]], [[4]]]

    def test_lengths_that_differ_too_much_run_one_by_one(self):
        # Together 3 x 2000 x 2000 values, of 4,001 that were sent.
        stub = Stub(
            lambda inputs: {"y": inputs["x"][:, 0, 0]}, shape=(None, None, None)
        )
        arrays = [np.full(shape, 1) for shape in ((1, 2000, 1), (1, 1, 2000))]
        arrays.append(np.full((1, 1, 1), 5))
        told = []
        with batching(
            8, lambda *batch: told.append(batch), pad_variable_length_inputs=True
        ) as scheduler:
            assert answers(queued(scheduler, stub, *arrays)) == [[1], [1], [5]]
        assert [batch.shape for batch in stub.batches] == [a.shape for a in arrays]
        assert [batch[1] for batch in told[1:]] == [[1], [1], [1]]

    @pytest.mark.parametrize(
        ("width", "is_too_much"), [(2**20 // 2 + 10, False), (2**20 // 2 + 11, True)]
    )
    def test_four_times_the_values_and_2_20_more_are_the_most(self, width, is_too_much):
        # Filled up: 6 x width. Sent: width + 5, of which four times are 4 x width + 20.
        parts = [{"x": np.ones((1, width), np.int8)}]
        parts += [{"x": np.ones((1, 1), np.int8)}] * 5
        assert pads_too_much(parts) is is_too_much

    def test_parts_of_an_answer_of_different_lengths_are_not_joined(self):
        part = {"y": np.ones((2, 3))}
        assert join_outputs([part, {"y": np.ones((1, 4))}]) is None
        assert join_outputs([part, {"y": np.ones((1, 3), np.int64)}]) is None
        assert join_outputs([part, {"y": np.ones((1, 3))}])["y"].shape == (3, 3)


class TestAlone:
    """Requests that are run as they are, whole and by themselves."""

    @pytest.mark.parametrize(
        ("shape", "out"),
        [((None,), ()), ((None,), (4,)), ((4,), (None,)), (None, None)],
    )
    def test_signatures_without_a_batch_dimension_are_not_batched(self, shape, out):
        stub = Stub(shape=shape, out=out)
        with batching(2) as scheduler:
            futures = queued(scheduler, stub, [1] * 4, [2] * 4)
            assert answers(futures) == [[2] * 4, [4] * 4]
        assert stub.sizes == [4, 4]

    @pytest.mark.parametrize(
        "inputs",
        [
            {"a": np.ones(2)},
            {"a": np.ones(2), "c": np.ones(2)},
            {"a": np.ones(2), "b": np.ones(3)},
            {"a": np.ones(2), "b": np.ones(())},
            {"a": np.ones(0), "b": np.ones(0)},
        ],
        ids=["missing", "other", "lengths", "scalar", "no rows"],
    )
    def test_inputs_that_do_not_fit_the_signature_are_not_merged(self, inputs):
        column = TensorSpec("float64", (None,))
        signature = Signature("", dict.fromkeys("ab", column), {"y": column})
        assert mergeable(signature, inputs, any_length=False) == (None, None)
        assert mergeable(None, inputs, any_length=False) == (None, None)
        good = {"a": np.ones(2), "b": np.ones(2)}
        assert mergeable(signature, good, any_length=False)[0] == 2

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
            future = scheduler.submit(Two(), "serving_default", inputs, Client())
            with pytest.raises(StatusError, match=r"^lengths differ$"):
                future.result(SECONDS)
        assert seen == [[2, 3]]

    def test_unknown_signature_is_refused_by_the_model(self, example_servables):
        with batching() as scheduler:
            future = submit(
                scheduler, example_servables[0], np.ones(1), signature="none"
            )
            with pytest.raises(StatusError, match='signature key "none" not found'):
                future.result(SECONDS)

    def test_outputs_that_are_not_rows_make_each_request_run_whole(self):
        # Its signature says rows, but the model answers with the distinct values.
        stub = Stub(lambda inputs: {"y": np.unique(inputs["x"])})
        with batching(4) as scheduler:
            futures = queued(scheduler, stub, [1, 1], [2, 1], [5, 5, 6, 6, 7, 5])
            assert answers(futures) == [[1], [1, 2], [5, 6, 7]]
