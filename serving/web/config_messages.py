"""Read TF Serving's configuration messages that `tensorflow-serving-api` lacks.

Names and types of the fields are those of TF Serving 2.20, so that the same files (text
format of protocol buffers) serve here and there.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tfdml.messages import shortened

from .message_tables import Field, message_classes

_INT64 = ".google.protobuf.Int64Value"
_BOOL = ".google.protobuf.BoolValue"
_STRING = ".google.protobuf.StringValue"

_MESSAGES: Mapping[str, Sequence[Field]] = {
    "BatchingParameters": [
        ("max_batch_size", 1, _INT64),
        ("batch_timeout_micros", 2, _INT64),
        ("max_enqueued_batches", 3, _INT64),
        ("num_batch_threads", 4, _INT64),
        ("thread_pool_name", 5, _STRING),
        ("allowed_batch_sizes", 6, "repeated INT64"),
        ("pad_variable_length_inputs", 7, "BOOL"),
        # Of these two the numbers are ours; the text format has names alone.
        ("enable_large_batch_splitting", 8, _BOOL),
        ("max_execution_batch_size", 9, _INT64),
    ],
    "PrometheusConfig": [("enable", 1, "BOOL"), ("path", 2, "STRING")],
    "MonitoringConfig": [
        ("prometheus_config", 1, ".tensorflow.serving.PrometheusConfig")
    ],
    "SSLConfig": [
        ("server_key", 1, "STRING"),
        ("server_cert", 2, "STRING"),
        ("custom_ca", 3, "STRING"),
        ("client_verify", 4, "BOOL"),
    ],
}
_PACKAGE = "tensorflow.serving"


def message_class(name: str) -> Any:
    """Return the class of BatchingParameters, MonitoringConfig or SSLConfig."""
    return _class_of()(name)


def read_text_message(file: str | PathLike[str], kind: Any) -> Any:
    """Read a message in the text format of protocol buffers.

    Args:
        file: The file, UTF-8.
        kind: Class of the message.

    Returns:
        The message.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not such a message; the error names the line.
    """
    return parse_text_message(Path(file).read_bytes(), file, kind)


def parse_text_message(content: bytes, file: str | PathLike[str], kind: Any) -> Any:
    """Parse the content of a file that has been read.

    Args:
        content: The bytes.
        file: The file, for the error.
        kind: Class of the message.

    Returns:
        The message.

    Raises:
        ValueError: It is not such a message; the error names the line.
    """
    try:
        return text_format.Parse(content.decode("utf-8"), kind())
    except (UnicodeDecodeError, text_format.ParseError) as error:
        raise ValueError(
            f"{file} must hold a `{kind.DESCRIPTOR.full_name}` in the text format of "
            f"protocol buffers ({shortened(error)})."
        ) from error


@functools.cache
def _class_of() -> Callable[[str], Any]:
    return message_classes(_PACKAGE, _MESSAGES)
