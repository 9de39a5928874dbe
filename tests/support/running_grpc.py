"""A gRPC endpoint on a real socket, with the stubs of tensorflow-serving-api."""

import contextlib
import threading
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import (
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.endpoint.models.servable import Signature, TensorSpec
from serving.endpoint.models.served import ServedModels
from serving.endpoint.rpc.server import GrpcServer
from tests.support.clock import Clock
from tests.support.served import predictor


class StubModel:
    """A model that answers when the test lets it."""

    name = "stub"
    version = 1
    fingerprint = None

    def __init__(self):
        spec = TensorSpec("float32", (None,))
        kind = "tensorflow/serving/predict"
        self.signatures = {"serving_default": Signature(kind, {"x": spec}, {"y": spec})}
        definition = meta_graph_pb2.SignatureDef(method_name=kind)
        definition.inputs["x"].name = "x:0"
        self.signature_defs = {"serving_default": definition}
        self.started = threading.Semaphore(0)
        self.release = threading.Event()
        self.seen = []

    def signature(self, name):
        return self.signatures[name]

    def predict(self, inputs, signature_name):
        self.seen.append(inputs["x"].tolist())
        self.started.release()
        assert self.release.wait(60)
        return {"y": inputs["x"] + 1}


@contextlib.contextmanager
def channel_to(address):
    """Open a channel without limits of its own; yields the stubs."""
    unlimited = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.enable_http_proxy", 0),
    ]
    with grpc.insecure_channel(address, options=unlimited) as channel:
        # Where a handshake takes too long, another one follows.
        grpc.channel_ready_future(channel).result(timeout=60)
        yield SimpleNamespace(
            channel=channel,
            prediction=prediction_service_pb2_grpc.PredictionServiceStub(channel),
            model=model_service_pb2_grpc.ModelServiceStub(channel),
            health=health_pb2_grpc.HealthStub(channel),
        )


def grpc_server(models, run_by=None, *, port=0, **options):
    """Make a server, by default on a free port, whose models do not change."""
    options = {"reload": _no_reload, **options}
    return GrpcServer(models, run_by or predictor(), port=port, **options)


def _no_reload(config):
    raise AssertionError("no test asked for it")


@contextlib.contextmanager
def running_grpc(servables, *, run_by=None, most_predictions=2, **options):
    """Serve on a free loopback port; yields the stubs, and `server`.

    By default the server's clock stands still: nothing is late on a slow machine.
    """
    models = ServedModels(servables)
    options = {"clock": Clock(), **options}
    run_by = run_by or predictor(most_predictions)
    with grpc_server(models, run_by, **options) as server:
        server.start()
        server.ready()
        with channel_to(server.address) as stubs:
            stubs.server = server
            yield stubs


def predict_request(inputs, name="example", signature="", version=None, outputs=()):
    """Make a `PredictRequest` of tensors, which `tf.make_tensor_proto` takes."""
    import tensorflow as tf

    request = predict_pb2.PredictRequest(output_filter=outputs)
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    for alias, value in inputs.items():
        request.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return request


def refusal(call, request, **options):
    """Make a call that is refused; returns the name of its code, and the details."""
    with pytest.raises(grpc.RpcError) as caught:
        call(request, **{"timeout": 60, **options})
    return caught.value.code().name, caught.value.details()


def status_of(stubs, service=""):
    """Ask for the health of a service, by default the server's."""
    request = health_pb2.HealthCheckRequest(service=service)
    return stubs.health.Check(request, timeout=60).status
