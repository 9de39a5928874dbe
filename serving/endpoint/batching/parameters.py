"""Read TF Serving's batching parameters."""

import itertools
import os
from dataclasses import dataclass
from os import PathLike
from typing import Any

from tfdml.messages import cut, shown

from ...web.config_messages import message_class, read_text_message

_MOST_UNBATCHED = 256


def _cores() -> int:
    return os.cpu_count() or 1


@dataclass(frozen=True)
class BatchingParameters:
    """Limits on the size of batches, on their wait and on their number.

    The defaults are for one machine without an accelerator. TF Serving's own are a
    `max_batch_size` of 1000, `max_enqueued_batches` of 10 and one thread a core; with
    1000 rows a batch, the last request of a long queue would wait for seconds.

    Attributes:
        max_batch_size: Rows a batch, at least 1. A longer request is split. Above 16,
            what a network of some size computes falls out of a processor's caches.
        batch_timeout_micros: How long, at least 0, the first request of a batch that
            is not full waits for others, in microseconds. With 0 the batch is what has
            queued up when a thread becomes free. None waits only where the batch before
            for the same signature of the same version was larger, at most a quarter of
            the time that one ran and at most 5 ms: the clients that were just answered
            get the time to ask again, and a lone client never waits. TF Serving has no
            such setting.
        max_enqueued_batches: How many full batches may wait for each signature of each
            version, at least 1.
        num_batch_threads: Batches that run at one time, at least 1. With two, one is
            decoded while the other one is embedded.
        allowed_batch_sizes: Sizes, ascending, the last of them `max_batch_size`. A
            batch is filled up to the next one with copies of a row. Empty for any.
        pad_variable_length_inputs: Whether inputs of different lengths go into one
            batch where the signature leaves the length open: the shorter ones are
            filled up at the end with their own first value. If not, only requests of
            the same lengths are put together.
        thread_pool_name: Name of the threads.
        runs_alone: Whether each request is run by itself, whole. Then a request of any
            size counts as a batch.

    Raises:
        ValueError: A value is out of its range.

    Example:
        >>> BatchingParameters(max_batch_size=8).num_batch_threads
        2
    """

    max_batch_size: int = 16
    batch_timeout_micros: int | None = None
    max_enqueued_batches: int = 64
    num_batch_threads: int = 2
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    thread_pool_name: str = "batch_threads"
    runs_alone: bool = False

    def __post_init__(self) -> None:
        _check_at_least(self, "max_batch_size", 1)
        if self.batch_timeout_micros is not None:
            _check_at_least(self, "batch_timeout_micros", 0)
        _check_at_least(self, "max_enqueued_batches", 1)
        _check_at_least(self, "num_batch_threads", 1)
        _check_allowed_sizes(self.allowed_batch_sizes, self.max_batch_size)

    @classmethod
    def unbatched(cls) -> "BatchingParameters":
        """Return parameters for no batching: 256 requests may wait, one a core runs.

        Two run on one core: a long request must not keep out others.
        """
        return cls(
            max_batch_size=1,
            max_enqueued_batches=_MOST_UNBATCHED,
            num_batch_threads=max(_cores(), 2),
            runs_alone=True,
        )


def read_batching_parameters(file: str | PathLike[str]) -> BatchingParameters:
    """Read TF Serving's file of batching parameters.

    Args:
        file: A `tensorflow.serving.BatchingParameters` in the text format of protocol
            buffers, as for `tensorflow_model_server --batching_parameters_file`.

    Returns:
        The parameters. A field that the file leaves out has the default of
        `BatchingParameters`. Long requests are split whatever
        `enable_large_batch_splitting` says, into the `max_execution_batch_size` rows
        that TF Serving runs then.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not such a message, or a value is out of its range.
    """
    message = read_text_message(file, message_class("BatchingParameters"))
    values: dict[str, Any] = {
        field.name: value.value if field.message_type else value
        for field, value in message.ListFields()
    }
    values.pop("enable_large_batch_splitting", None)
    most_run = values.pop("max_execution_batch_size", None)
    if most_run is not None:
        values["max_batch_size"] = min(most_run, values.get("max_batch_size", most_run))
    if "allowed_batch_sizes" in values:
        values["allowed_batch_sizes"] = tuple(values["allowed_batch_sizes"])
    try:
        return BatchingParameters(**values)
    except ValueError as error:
        raise ValueError(f"{cut(file)}: {error}") from error


def _check_at_least(parameters: BatchingParameters, name: str, least: int) -> None:
    value = getattr(parameters, name)
    if value < least:
        raise ValueError(
            f"`{name}` must be at least {least}. Received: {name}={value}."
        )


def _check_allowed_sizes(sizes: tuple[int, ...], max_batch_size: int) -> None:
    if not sizes:
        return
    if sizes[0] < 1 or any(
        after <= before for before, after in itertools.pairwise(sizes)
    ):
        raise ValueError(
            "`allowed_batch_sizes` must be at least 1 and ascending, each once. "
            f"Received: allowed_batch_sizes={shown(list(sizes))}."
        )
    if sizes[-1] != max_batch_size:
        raise ValueError(
            "The last of `allowed_batch_sizes` must equal `max_batch_size`. Received: "
            f"allowed_batch_sizes={shown(list(sizes))}, "
            f"max_batch_size={max_batch_size}."
        )
