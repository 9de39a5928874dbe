"""A model over REST or gRPC that gives the answers that a test wants."""

import asyncio
import contextlib
import json
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import grpc
import numpy as np
import tensorflow as tf
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.support.running_server import running_uvicorn

PROTOCOLS = ("REST", "gRPC")
METADATA = {
    "model_spec": {"name": "colors", "signature_name": "", "version": "1"},
    "metadata": {
        "signature_def": {
            "signature_def": {
                "serving_default": {
                    "inputs": {"image_bytes": {"dtype": "DT_STRING"}},
                    "outputs": {
                        "embedding": {
                            "dtype": "DT_FLOAT",
                            "tensor_shape": {"dim": [{"size": "-1"}, {"size": "2"}]},
                        }
                    },
                }
            }
        }
    },
}


@dataclass(frozen=True)
class Refusal:
    """An error in place of an answer.

    Attributes:
        status: Of HTTP, or the name of a code of gRPC.
        text: Its message.
        headers: Further ones of HTTP.
    """

    status: int | str
    text: str = "no"
    headers: dict[str, str] | None = None


class _Answers:
    """Gives answers one after the other, the last one for ever; keeps the requests."""

    def __init__(self, answers):
        self._left = list(answers)
        self.requests, self.headers = [], []

    def to(self, request, headers):
        self.requests.append(request)
        self.headers.append(dict(headers))
        answer = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        return answer() if callable(answer) else answer


@contextlib.contextmanager
def answering(protocol, *answers, certificate=None, clients=None):
    """Serve a model on a free loopback port.

    Args:
        protocol: One of `PROTOCOLS`.
        answers: Of the predict calls: outputs by name, a `Refusal`, or a function that
            returns one of these, perhaps late.
        certificate: Of the server, from `trustme`; None for no encryption.
        clients: The authority of the clients, if they must show a certificate.

    Yields:
        The `url` of the model, the `requests` that came, and their `headers`.
    """
    given = _Answers(answers)
    serve = _rest if protocol == "REST" else _grpc
    with serve(given, certificate, clients) as url:
        yield SimpleNamespace(url=url, requests=given.requests, headers=given.headers)


@contextlib.contextmanager
def _rest(given, certificate, clients):
    async def metadata(request):
        return JSONResponse(METADATA)

    async def predict(request):
        body = await request.body()
        answer = await asyncio.to_thread(given.to, body, request.headers)
        if isinstance(answer, Refusal):
            return JSONResponse({"error": answer.text}, answer.status, answer.headers)
        rows = next(iter(answer.values()), None)
        if len(answer) > 1:
            rows = zip(*answer.values(), strict=True)
            rows = [dict(zip(answer, row, strict=True)) for row in rows]
        return Response(json.dumps({"predictions": rows}))

    model = "/v1/models/colors"
    app = Starlette(
        routes=[
            Route(f"{model}/metadata", metadata),
            Route(f"{model}:predict", predict, methods=["POST"]),
        ]
    )
    with contextlib.ExitStack() as files:
        options = {}
        if certificate is not None:
            pem = certificate.private_key_and_cert_chain_pem
            options["ssl_certfile"] = files.enter_context(pem.tempfile())
        if clients is not None:
            options["ssl_ca_certs"] = files.enter_context(clients.cert_pem.tempfile())
            options["ssl_cert_reqs"] = ssl.CERT_REQUIRED
        config = uvicorn.Config(app, log_level="critical", ws="none", **options)
        scheme = "http" if certificate is None else "https"
        with running_uvicorn(config) as listener:
            yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}{model}"


class _Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, given):
        self._given = given

    def GetModelMetadata(self, request, context):  # noqa: N802 - gRPC's name
        definitions = get_model_metadata_pb2.SignatureDefMap()
        signature = definitions.signature_def["serving_default"]
        signature.inputs["images"].dtype = tf.string.as_datatype_enum
        output = signature.outputs["embedding"]
        output.dtype = tf.float32.as_datatype_enum
        for size in (-1, 2):
            output.tensor_shape.dim.add(size=size)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.CopyFrom(request.model_spec)
        response.metadata["signature_def"].Pack(definitions)
        return response

    def Predict(self, request, context):  # noqa: N802 - gRPC's name
        answer = self._given.to(request, context.invocation_metadata())
        if isinstance(answer, Refusal):
            context.abort(grpc.StatusCode[answer.status], answer.text)
        response = predict_pb2.PredictResponse()
        for name, value in answer.items():
            array = np.array(value)
            if array.dtype == np.float64:
                array = array.astype(np.float32)
            response.outputs[name].CopyFrom(tf.make_tensor_proto(array))
        return response


@contextlib.contextmanager
def _grpc(given, certificate, clients):
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            _Service(given), server
        )
        if certificate is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
            credentials = grpc.ssl_server_credentials(
                [(certificate.private_key_pem.bytes(), chain)],
                None if clients is None else clients.cert_pem.bytes(),
                clients is not None,
            )
            # At both addresses of the name: gRPC tells the failure of either.
            port = server.add_secure_port("localhost:0", credentials)
        server.start()
        try:
            scheme = "grpc" if certificate is None else "grpcs"
            yield f"{scheme}://127.0.0.1:{port}/colors"
        finally:
            server.stop(None).wait()
