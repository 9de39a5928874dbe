"""Real models that are swapped while they answer."""

import gc
import weakref

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from serving.endpoint.models.config import single_model
from serving.endpoint.models.servable import Servable
from serving.endpoint.warm_up import warm_up, write_warm_up_requests
from serving.web.status import StatusCode
from tests.support.example_model import png
from tests.support.watched import (
    add,
    damage,
    error_of,
    latest,
    poll,
    started,
    states,
    wait_until,
)


def test_a_version_is_unloaded_when_its_last_lease_ends(
    managed, real_base, example_model
):
    watched = started(managed(single_model("m", real_base), load=Servable))
    add(example_model, real_base, 2)
    with watched.served.lease("m") as servable:
        poll(watched)
        assert latest(watched) == 2
        assert states(watched) == {2: "AVAILABLE", 1: "UNLOADING"}
        images = np.array([png(255, 0, 0)], object)
        outputs = servable.predict({"image_bytes": images})
        assert outputs["embedding"].shape == (1, 4)
        gone = weakref.ref(servable)
        del servable
    wait_until(lambda: states(watched)[1] == "END")
    wait_until(lambda: gone() is None)


def test_a_broken_version_never_replaces_a_good_one(
    managed, real_base, example_model, caplog
):
    watched = started(managed(single_model("m", real_base), load=Servable))
    add(example_model, real_base, 2)
    damage(real_base, 2)
    poll(watched)
    assert latest(watched) == 1
    assert states(watched) == {2: "END", 1: "AVAILABLE"}
    code, message = error_of(watched, 2)
    assert code == StatusCode.INVALID_ARGUMENT
    assert "Version 2 of model 'm' cannot be loaded" in message
    assert message in caplog.text


def warm_up_request(content):
    request = predict_pb2.PredictRequest()
    request.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto([content]))
    return request


def test_a_failing_warm_up_request_keeps_its_version_out(
    managed, real_base, example_model
):
    runs = []
    watched = managed(
        single_model("m", real_base),
        load=Servable,
        warm_up=warm_up,
        on_warmed_up=lambda folder, seconds, error: runs.append(
            (folder, seconds >= 0, error)
        ),
    )
    write_warm_up_requests(real_base / "1", [warm_up_request(png(1, 2, 3))])
    watched.start()
    assert runs == [(real_base / "1", True, None)]
    add(example_model, real_base, 2)
    write_warm_up_requests(real_base / "2", [warm_up_request(b"no image")])
    poll(watched)
    assert latest(watched) == 1
    code, message = error_of(watched, 2)
    assert code == StatusCode.INVALID_ARGUMENT
    assert message.startswith("Warm-up record 1 in ")
    assert runs[1:] == [(real_base / "2", True, message)]
    add(example_model, real_base, 3)
    poll(watched)
    assert latest(watched) == 3
    assert len(runs) == 2  # version 3 has no requests


def test_swaps_leave_nothing_in_memory(managed, real_base):
    loaded = []

    def load(name, version, folder):
        servable = Servable(name, version, folder)
        loaded.append((weakref.ref(servable), weakref.ref(servable._model)))
        return servable

    watched = started(managed(single_model("m", real_base), load=load))
    counts = []
    gc.disable()  # so that all that goes is let go by `WatchedModels`
    try:
        for version in range(2, 10):
            (real_base / str(version - 1)).rename(real_base / str(version))
            poll(watched)
            assert latest(watched) == version
            assert len(loaded) == version
            wait_until(lambda: all(ref() is None for p in loaded[:-1] for ref in p))
            counts.append(len(gc.get_objects()))
    finally:
        gc.enable()
    # A version of this model has about 2,000 objects, and 4 more were loaded.
    assert counts[-1] - counts[3] < 1000
