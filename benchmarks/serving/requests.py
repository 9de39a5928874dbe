"""Requests to the endpoint, prepared as the bytes that go over the wire."""

import base64
import http.client
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.serving.process import NAME

PREDICT = "/tensorflow.serving.PredictionService/Predict"
REST_PATH = f"/v1/models/{NAME}:predict"


def b64(data: bytes) -> dict[str, str]:
    """Return the JSON that means these bytes."""
    return {"b64": base64.b64encode(data).decode("ascii")}


def predict_message(
    inputs: dict[str, Any],
    *,
    name: str = NAME,
    version: int | None = None,
    signature: str = "",
    outputs: Sequence[str] = (),
) -> Any:
    """Make a `PredictRequest` of tensors, which `tf.make_tensor_proto` takes."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest(output_filter=outputs)
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    for alias, value in inputs.items():
        request.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return request


def rest_body(images: Sequence[bytes]) -> bytes:
    """Write the JSON that asks for the embeddings of images, in row format."""
    return json.dumps({"instances": [b64(data) for data in images]}).encode()


def rest_post(
    connection: http.client.HTTPConnection, body: bytes, path: str = REST_PATH
) -> tuple[int, bytes]:
    """Post a body; returns the status and the body of the answer."""
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    return reply.status, reply.read()


def grpc_embeddings(response: Any) -> np.ndarray:
    """Return the embeddings in a `PredictResponse`, float32 `[batch, dimension]`."""
    import tensorflow as tf

    return tf.make_ndarray(response.outputs["embedding"])


def rest_embeddings(body: bytes) -> np.ndarray:
    """Return the embeddings in an answer, row or columnar."""
    answer = json.loads(body)
    found = answer.get("predictions", answer.get("outputs"))
    return np.array(found, np.float32)
