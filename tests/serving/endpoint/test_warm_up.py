import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from serving.endpoint.models.servable import Servable
from serving.endpoint.warm_up import (
    read_warm_up_requests,
    warm_up,
    write_warm_up_requests,
)
from tests.support.example_model import png

FILE = "assets.extra/tf_serving_warmup_requests"


class Recorder:
    """Passes everything to a servable and writes down what it was asked."""

    def __init__(self, servable):
        self.asked = []
        self._servable = servable

    def __getattr__(self, name):
        return getattr(self._servable, name)

    def predict(self, inputs, signature_name):
        self.asked.append((signature_name, inputs))
        return self._servable.predict(inputs, signature_name)


@pytest.fixture(scope="module")
def servable(example_model):
    return Servable("m", 1, example_model)


def request(*values, key="image_bytes", signature=""):
    message = predict_pb2.PredictRequest()
    message.model_spec.name = "m"
    message.model_spec.signature_name = signature
    message.inputs[key].CopyFrom(tf.make_tensor_proto(list(values)))
    return message


def write_records(folder, records):
    file = folder / FILE
    file.parent.mkdir()
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in records:
            writer.write(record)


def log_of(message):
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.CopyFrom(message)
    return log.SerializeToString()


def test_requests_are_read_as_they_were_written(tmp_path):
    requests = [request(png(1, 2, 3)), request(b"a", key="other", signature="s")]
    write_warm_up_requests(tmp_path, requests)
    assert read_warm_up_requests(tmp_path) == requests
    write_warm_up_requests(tmp_path, requests[:1])
    assert read_warm_up_requests(tmp_path) == requests[:1]
    assert [file.name for file in (tmp_path / "assets.extra").iterdir()] == [
        "tf_serving_warmup_requests"
    ]


def test_the_file_is_that_of_tf_serving(tmp_path):
    message = request(png(1, 2, 3))
    write_warm_up_requests(tmp_path, [message])
    file = tmp_path / "assets.extra" / "tf_serving_warmup_requests"
    (record,) = tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    log = prediction_log_pb2.PredictionLog.FromString(record)
    assert log.predict_log.request == message


def test_each_request_is_answered_once_and_in_order(servable, tmp_path):
    first, second = png(255, 0, 0), png(0, 255, 0)
    numbers = request(1.0, 2.0, key="values", signature="total")
    write_warm_up_requests(tmp_path, [request(first, second), numbers])
    recorder = Recorder(servable)
    assert warm_up(recorder, tmp_path) == 2
    (default, images), (total, values) = recorder.asked
    assert (default, total) == ("serving_default", "total")
    assert images["image_bytes"].tolist() == [first, second]
    np.testing.assert_array_equal(values["values"], np.float32([1, 2]))


def test_a_version_without_the_file_needs_no_warm_up(servable, tmp_path):
    assert warm_up(servable, tmp_path) == 0
    assert read_warm_up_requests(tmp_path) == []


def test_a_request_that_fails_is_named_by_its_number(servable, tmp_path):
    write_warm_up_requests(tmp_path, [request(png(1, 2, 3)), request(b"no image")])
    error = r"Warm-up record 2 in .*tf_serving_warmup_requests' failed \(INVALID_ARG"
    with pytest.raises(ValueError, match=error):
        warm_up(servable, tmp_path)


def test_a_request_for_an_unknown_signature_fails(servable, tmp_path):
    write_warm_up_requests(tmp_path, [request(b"", signature="none")])
    error = 'Warm-up record 1 .*Serving signature key "none" not found'
    with pytest.raises(ValueError, match=error):
        warm_up(servable, tmp_path)


def test_other_records_are_refused(servable, tmp_path):
    log = prediction_log_pb2.PredictionLog()
    log.classify_log.SetInParent()
    write_records(tmp_path, [log_of(request(png(1, 2, 3))), log.SerializeToString()])
    error = "record 2 .*must be a `predict_log`. Received: classify_log"
    with pytest.raises(ValueError, match=error):
        warm_up(servable, tmp_path)


def test_a_record_that_is_no_message_is_refused(tmp_path):
    write_records(tmp_path, [b"\xff\xff\xff"])
    with pytest.raises(ValueError, match=r"record 1 .*must be a `PredictionLog`"):
        read_warm_up_requests(tmp_path)


@pytest.mark.parametrize("content", [b"no records at all, only text", b"cut"])
def test_a_damaged_file_is_refused(tmp_path, content):
    write_warm_up_requests(tmp_path, [request(png(1, 2, 3))])
    file = tmp_path / FILE
    whole = file.read_bytes()
    file.write_bytes(whole[:-10] if content == b"cut" else content)
    with pytest.raises(ValueError, match="must be a TFRecord file"):
        read_warm_up_requests(tmp_path)


def test_more_than_a_thousand_records_are_refused(tmp_path):
    record = log_of(request(b""))
    write_records(tmp_path, [record] * 1001)
    error = r"Number of warmup records exceeds the maximum \(1000\) at "
    with pytest.raises(ValueError, match=error):
        read_warm_up_requests(tmp_path)
    with pytest.raises(ValueError, match=r"must be 1 to 1000. Received: 1001"):
        write_warm_up_requests(tmp_path, [request(b"")] * 1001)


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path):
    write_warm_up_requests(tmp_path, [request(png(1, 2, 3))])
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(TypeError):
        write_warm_up_requests(tmp_path, [request(b""), "no request"])
    assert (tmp_path / FILE).read_bytes() == before
    assert len(list((tmp_path / "assets.extra").iterdir())) == 1
    with pytest.raises(ValueError, match=r"must be 1 to 1000. Received: 0"):
        write_warm_up_requests(tmp_path, [])
    with pytest.raises(FileNotFoundError, match="`version_folder` must be the folder"):
        write_warm_up_requests(tmp_path / "none", [request(b"")])
