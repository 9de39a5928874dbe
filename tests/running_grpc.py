"""A gRPC endpoint on a real socket, with the stubs of tensorflow-serving-api."""

import contextlib
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health_pb2_grpc
from tensorflow_serving.apis import (
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.models.served import ServedModels
from serving.rpc.server import GrpcServer
from tests.served import predictor


@contextlib.contextmanager
def channel_to(address):
    """Open a channel without limits of its own; yields the stubs."""
    unlimited = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
    ]
    with grpc.insecure_channel(address, options=unlimited) as channel:
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
    """Serve on a free loopback port; yields the stubs, and `server`."""
    models = ServedModels(servables)
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
        call(request, **{"timeout": 20, **options})
    return caught.value.code().name, caught.value.details()
