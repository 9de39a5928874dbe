"""Read, write and answer warm-up requests, before a new version serves anybody.

The first runs of a model are slow, and a broken model often loads well. The file is
that of TF Serving: `assets.extra/tf_serving_warmup_requests` in the folder of a
version, a TFRecord file of `PredictionLog`.
"""

from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from tfdml.files import written
from tfdml.messages import shortened, shown

from ..web.status import StatusError
from .models.servable import Servable
from .predict import predict

_MOST_RECORDS = 1000  # as many as TF Serving accepts
_MAX_UNPACKED_BYTES = 2**31


def read_warm_up_requests(version_folder: str | PathLike[str]) -> list[Any]:
    """Read the warm-up requests of a version.

    Args:
        version_folder: Folder of one version.

    Returns:
        The `PredictRequest`s in their order; an empty list if there is no file.

    Raises:
        ValueError: The file is damaged, has more than 1000 records, or has one that is
            not the log of a `Predict` call.
    """
    return list(_requests(version_folder))


def write_warm_up_requests(
    version_folder: str | PathLike[str], requests: Iterable[Any]
) -> None:
    """Write the warm-up requests of a version, whole or not at all.

    Args:
        version_folder: Folder of one version.
        requests: `PredictRequest`s, 1 to 1000.

    Raises:
        ValueError: There are none or too many.
        FileNotFoundError: There is no such folder.
    """
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    requests = list(requests)
    if not 1 <= len(requests) <= _MOST_RECORDS:
        raise ValueError(
            f"`requests` must be 1 to {_MOST_RECORDS}. Received: {len(requests)}."
        )
    if not Path(version_folder).is_dir():
        raise FileNotFoundError(
            "`version_folder` must be the folder of a version. Received: "
            f"version_folder={shown(str(version_folder))}."
        )
    file = _warm_up_file(version_folder)
    file.parent.mkdir(exist_ok=True)
    with written(file) as new, tf.io.TFRecordWriter(str(new)) as writer:
        for request in requests:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.CopyFrom(request)
            writer.write(log.SerializeToString())


def warm_up(servable: Servable, version_folder: str | PathLike[str]) -> int:
    """Let a version answer its warm-up requests, one after the other.

    Args:
        servable: The loaded version.
        version_folder: Its folder.

    Returns:
        How many requests it answered; 0 if there is no file.

    Raises:
        ValueError: The file cannot be read, or the version fails on a record; the error
            names its number, counted from 1.
    """
    count = 0
    for count, request in enumerate(_requests(version_folder), start=1):
        try:
            predict(servable, request, max_unpacked_bytes=_MAX_UNPACKED_BYTES)
        except StatusError as error:
            raise ValueError(
                f"Warm-up record {count} in "
                f"{shown(str(_warm_up_file(version_folder)))} failed "
                f"({error.code.name}: {error.message})."
            ) from error
    return count


def _warm_up_file(version_folder: str | PathLike[str]) -> Path:
    return Path(version_folder) / "assets.extra" / "tf_serving_warmup_requests"


def _requests(version_folder: str | PathLike[str]) -> Iterator[Any]:
    """Read one record at a time: a file may hold a thousand images."""
    from google.protobuf.message import DecodeError
    from tensorflow_serving.apis import prediction_log_pb2

    file = _warm_up_file(version_folder)
    if not file.exists():
        return
    for number, record in enumerate(_records(file), start=1):
        if number > _MOST_RECORDS:
            raise ValueError(
                "Number of warmup records exceeds the maximum "
                f"({_MOST_RECORDS}) at {file}"
            )
        try:
            log = prediction_log_pb2.PredictionLog.FromString(record)
        except DecodeError as error:
            raise ValueError(
                f"Warm-up record {number} in {shown(str(file))} must be a "
                f"`PredictionLog` ({shortened(error)})."
            ) from error
        kind = log.WhichOneof("log_type")
        if kind != "predict_log":
            raise ValueError(
                f"Warm-up record {number} in {shown(str(file))} must be a "
                f"`predict_log`. Received: {kind or 'an empty record'}."
            )
        yield log.predict_log.request


def _records(file: Path) -> Iterator[bytes]:
    import tensorflow as tf

    try:
        yield from tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    except tf.errors.OpError as error:
        raise ValueError(
            f"{shown(str(file))} must be a TFRecord file ({error.message})."
        ) from error
