"""TF Serving's batching parameters: the file, the defaults and the rules."""

import os

import pytest

from serving.endpoint.batching.parameters import (
    BatchingParameters,
    read_batching_parameters,
)


def read(tmp_path, text):
    file = tmp_path / "batching.config"
    file.write_text(text)
    return read_batching_parameters(file)


def test_file_of_the_documentation_is_read(tmp_path):
    # The example of TF Serving's guide to its Docker image, and the other fields.
    received = read(
        tmp_path,
        "max_batch_size { value: 128 }\n"
        "batch_timeout_micros { value: 0 }\n"
        "max_enqueued_batches { value: 1000000 }\n"
        "num_batch_threads { value: 8 }\n"
        'thread_pool_name { value: "pool" }\n'
        "allowed_batch_sizes: 1 allowed_batch_sizes: 64\n"
        "allowed_batch_sizes: 128\n"
        "pad_variable_length_inputs: true\n",
    )
    assert received == BatchingParameters(
        max_batch_size=128,
        batch_timeout_micros=0,
        max_enqueued_batches=1_000_000,
        num_batch_threads=8,
        thread_pool_name="pool",
        allowed_batch_sizes=(1, 64, 128),
        pad_variable_length_inputs=True,
    )


def test_long_requests_are_split_to_the_size_that_is_run(tmp_path):
    received = read(
        tmp_path,
        "max_batch_size { value: 128 }\n"
        "enable_large_batch_splitting { value: true }\n"
        "max_execution_batch_size { value: 16 }\n"
        "allowed_batch_sizes: 8 allowed_batch_sizes: 16\n",
    )
    assert received.max_batch_size == 16
    expected = BatchingParameters(max_batch_size=16)
    assert read(tmp_path, "max_execution_batch_size { value: 16 }") == expected


def test_fields_that_are_left_out_have_the_defaults(tmp_path):
    assert read(tmp_path, "") == BatchingParameters()
    expected = BatchingParameters(batch_timeout_micros=0)
    assert read(tmp_path, "batch_timeout_micros {}") == expected


def test_without_batching_one_request_a_core_runs_and_256_may_wait():
    received = BatchingParameters.unbatched()
    assert received.runs_alone
    assert received.num_batch_threads == os.cpu_count()
    assert received.max_enqueued_batches * received.max_batch_size == 256


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("max_batch_size", 1),
        ("batch_timeout_micros", 0),
        ("max_enqueued_batches", 1),
        ("num_batch_threads", 1),
    ],
)
def test_values_out_of_their_range_are_refused(tmp_path, name, least):
    rule = f"`{name}` must be at least {least}. Received: {name}={least - 1}."
    with pytest.raises(ValueError, match=rule):
        BatchingParameters(**{name: least - 1})
    with pytest.raises(ValueError, match=rule) as caught:
        read(tmp_path, f"{name} {{ value: {least - 1} }}")
    assert "batching.config: " in str(caught.value)
    BatchingParameters(**{name: least})


@pytest.mark.parametrize("sizes", [(0, 8), (-1, 8), (4, 2, 8), (4, 4, 8)])
def test_allowed_sizes_that_do_not_ascend_from_1_are_refused(sizes):
    with pytest.raises(ValueError, match="at least 1 and ascending, each once"):
        BatchingParameters(max_batch_size=8, allowed_batch_sizes=sizes)


@pytest.mark.parametrize("last", [4, 16])
def test_last_allowed_size_must_be_the_largest_batch(last):
    with pytest.raises(ValueError, match="must equal `max_batch_size`"):
        BatchingParameters(max_batch_size=8, allowed_batch_sizes=(1, last))


def test_unknown_field_is_refused(tmp_path):
    with pytest.raises(ValueError, match="BatchingParameters"):
        read(tmp_path, "batch_size { value: 8 }")


def test_missing_file_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_batching_parameters(tmp_path / "none")
