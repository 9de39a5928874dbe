"""List the requests of the soak test, good and bad, each with its expected answer."""

import gzip
import json
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.serving.clients import Clients
from benchmarks.serving.process import NAME
from benchmarks.serving.requests import (
    PREDICT,
    REST_PATH,
    b64,
    grpc_embeddings,
    predict_message,
    rest_body,
    rest_embeddings,
)

TOLERANCE = 1e-5
_SIZES = (1, 1, 1, 2, 3, 5, 8, 16)
_TOO_LARGE = 2**26 + 1  # bytes: the limit of both servers is 64 MiB


@dataclass(frozen=True)
class Case:
    """A kind of request.

    Attributes:
        name: What it is called in the report.
        ask: Makes one such request, drawing what is random in it, and returns None if
            the answer was the expected one, else what it was.
    """

    name: str
    ask: Callable[[Clients, random.Random], str | None]


def good_cases(
    encoded: Sequence[bytes], expected: np.ndarray, images: np.ndarray, rows: Any
) -> list[Case]:
    """Return requests that must be answered.

    Args:
        encoded: Encoded images.
        expected: Their embeddings, `[images, dimension]`.
        images: uint8 `[images, size, size, 3]`, for the signature `tensors`.
        rows: Their embeddings.
    """
    from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2
    from tensorflow_serving.apis.predict_pb2 import PredictResponse

    def batch(source: Any, draw: random.Random) -> tuple[list[int], list[Any]]:
        chosen = [draw.randrange(len(source)) for _ in range(draw.choice(_SIZES))]
        return chosen, [source[place] for place in chosen]

    def by_grpc(
        source: Any, wanted: np.ndarray, alias: str, **options: Any
    ) -> Callable[[Clients, random.Random], str | None]:
        def ask(clients: Clients, draw: random.Random) -> str | None:
            chosen, sent = batch(source, draw)
            value = np.stack(sent) if isinstance(source, np.ndarray) else sent
            message = predict_message({alias: value}, **options).SerializeToString()
            code, reply = clients.grpc(PREDICT, message)
            if code != "OK":
                return f"{code} {reply!r}"
            found = grpc_embeddings(PredictResponse.FromString(reply))
            return difference(found, wanted[chosen])

        return ask

    def by_rest(
        make: Callable[[Sequence[Any]], bytes],
        source: Any,
        wanted: np.ndarray,
        path: str = REST_PATH,
        most: int = max(_SIZES),
        compressed: bool = False,
    ) -> Callable[[Clients, random.Random], str | None]:
        def ask(clients: Clients, draw: random.Random) -> str | None:
            chosen, sent = batch(source, draw)
            body = make(sent[:most])
            headers = {"Content_Type": "application/json"}
            if compressed:
                body = gzip.compress(body, 1)
                headers |= {"Content_Encoding": "gzip", "Accept_Encoding": "gzip"}
            status, reply = clients.http("POST", path, body, **headers)
            if status != 200:
                return f"{status} {reply[:300]!r}"
            return difference(rest_embeddings(reply), wanted[chosen[:most]])

        return ask

    def columns(sent: Sequence[bytes]) -> bytes:
        return json.dumps({"inputs": [b64(data) for data in sent]}).encode()

    def named(sent: Sequence[bytes]) -> bytes:
        rows = [{"image_bytes": b64(data)} for data in sent]
        return json.dumps(
            {"signature_name": "serving_default", "instances": rows}
        ).encode()

    def tensors(sent: Sequence[np.ndarray]) -> bytes:
        values = [image.tolist() for image in sent]
        return json.dumps({"signature_name": "tensors", "instances": values}).encode()

    status_message = get_model_status_pb2.GetModelStatusRequest()
    status_message.model_spec.name = NAME
    metadata_message = get_model_metadata_pb2.GetModelMetadataRequest()
    metadata_message.model_spec.name = NAME
    metadata_message.metadata_field.append("signature_def")
    model = f"/v1/models/{NAME}"
    versioned = f"{model}/versions/1:predict"
    service = "/tensorflow.serving"
    grpc_tensors = by_grpc(images, rows, "images", signature="tensors")
    return [
        Case("grpc images", by_grpc(encoded, expected, "image_bytes")),
        Case("grpc version", by_grpc(encoded, expected, "image_bytes", version=1)),
        Case(
            "grpc output filter",
            by_grpc(encoded, expected, "image_bytes", outputs=["embedding"]),
        ),
        Case("grpc tensors", grpc_tensors),
        Case("rest rows", by_rest(rest_body, encoded, expected)),
        Case("rest named rows", by_rest(named, encoded, expected)),
        Case("rest columns", by_rest(columns, encoded, expected)),
        Case("rest version", by_rest(rest_body, encoded, expected, versioned)),
        Case("rest gzip", by_rest(rest_body, encoded, expected, compressed=True)),
        Case("rest tensors", by_rest(tensors, images, rows, most=2)),
        _grpc_answer(
            "grpc status",
            f"{service}.ModelService/GetModelStatus",
            status_message,
            b"",
        ),
        _grpc_answer(
            "grpc metadata",
            f"{service}.PredictionService/GetModelMetadata",
            metadata_message,
            b"serving_default",
        ),
        _rest_answer("rest status", "GET", model, 200, b'"AVAILABLE"'),
        _rest_answer(
            "rest metadata", "GET", f"{model}/metadata", 200, b"serving_default"
        ),
    ]


def bad_cases(image: bytes) -> list[Case]:
    """Return requests that must be refused, and connections that are cut.

    Args:
        image: A good image.
    """
    truth = predict_message({"image_bytes": [image]}).SerializeToString()
    good = [b64(image)]

    def body(**members: Any) -> bytes:
        return json.dumps(members).encode()

    messages: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "not an image": ("INVALID_ARGUMENT", {"image_bytes": [b"no image"]}, {}),
        "empty image": ("INVALID_ARGUMENT", {"image_bytes": [b""]}, {}),
        "one of the batch": ("INVALID_ARGUMENT", {"image_bytes": [image, b"no"]}, {}),
        "huge image": ("INVALID_ARGUMENT", {"image_bytes": [_huge_png()]}, {}),
        "other name": ("INVALID_ARGUMENT", {"photos": [image]}, {}),
        "one more input": ("INVALID_ARGUMENT", {"image_bytes": [image], "x": 1}, {}),
        "other dtype": ("INVALID_ARGUMENT", {"image_bytes": [1.5]}, {}),
        "other shape": ("INVALID_ARGUMENT", {"image_bytes": [[image]]}, {}),
        "unknown model": ("NOT_FOUND", {"image_bytes": [image]}, {"name": "none"}),
        "unknown version": ("NOT_FOUND", {"image_bytes": [image]}, {"version": 99}),
        "unknown signature": (
            "FAILED_PRECONDITION",
            {"image_bytes": [image]},
            {"signature": "none"},
        ),
        "unknown output": (
            "INVALID_ARGUMENT",
            {"image_bytes": [image]},
            {"outputs": ["none"]},
        ),
    }
    bodies = {
        "no JSON": (400, b'{"instances": ['),
        "nothing": (400, b""),
        "bad base64": (400, body(instances=[{"b64": "*" + good[0]["b64"][1:]}])),
        "not an image": (400, body(instances=[b64(b"no image")])),
        "one of the batch": (400, body(instances=[*good, b64(b"no")])),
        "other name": (400, body(instances=[{"photos": good[0]}])),
        "other dtype": (400, body(instances=[1.5])),
        "other shape": (400, body(instances=[good])),
        "no instances": (400, body(instances=[])),
        "both formats": (400, body(instances=good, inputs=good)),
        "unknown signature": (400, body(signature_name="none", instances=good)),
    }
    paths = {
        "unknown model": (404, "/v1/models/none:predict"),
        "unknown version": (404, f"/v1/models/{NAME}/versions/99:predict"),
        "unknown label": (400, f"/v1/models/{NAME}/labels/none:predict"),
        "unknown method": (400, f"/v1/models/{NAME}:embed"),
    }
    head = (
        f"POST {REST_PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: "
    ).encode()
    whole = rest_body([image])
    too_large = head + str(_TOO_LARGE).encode() + b"\r\n"
    cut = head + str(len(whole)).encode() + b"\r\n\r\n" + whole
    return [
        *(
            _grpc_error(
                f"grpc {name}",
                PREDICT,
                predict_message(inputs, **spec).SerializeToString(),
                code,
            )
            for name, (code, inputs, spec) in messages.items()
        ),
        _grpc_error("grpc cut message", PREDICT, truth[:-9], "INTERNAL"),
        _grpc_error("grpc too large", PREDICT, bytes(_TOO_LARGE), "RESOURCE_EXHAUSTED"),
        _grpc_error("grpc unknown method", PREDICT + "s", truth, "UNIMPLEMENTED"),
        Case("grpc cancelled", lambda c, _: c.grpc_cancelled(PREDICT, truth)),
        *(
            _rest_answer(f"rest {name}", "POST", REST_PATH, status, b'"error"', data)
            for name, (status, data) in bodies.items()
        ),
        *(
            _rest_answer(f"rest {name}", "POST", path, status, b'"error"', whole)
            for name, (status, path) in paths.items()
        ),
        _rest_answer(
            "rest cut image",
            "POST",
            REST_PATH,
            400,
            b'"error"',
            rest_body([image[:200]]),
        ),
        _raw("rest too large", too_large + b"\r\n" + bytes(_TOO_LARGE), b" 413 "),
        _raw(
            "rest asks if too large",
            too_large + b"Expect: 100-continue\r\n\r\n",
            b" 413 ",
        ),
        _raw("rest no HTTP", b"\x16\x03\x01 nonsense\r\n\r\n", b" 400 "),
        _raw("rest cut in the body", cut[:-1000], None),
        _raw("rest cut before the answer", cut, None),
    ]


def difference(found: np.ndarray, expected: np.ndarray) -> str | None:
    """Compare embeddings.

    Args:
        found: What was answered.
        expected: What it must be.

    Returns:
        None if they have one shape and each number is at most 1e-5 off, else what
        differs. A NaN differs from everything.
    """
    if found.shape != expected.shape:
        return f"an embedding of the shape {found.shape}, not {expected.shape}"
    apart = float(np.abs(found - expected).max())
    return None if apart <= TOLERANCE else f"an embedding that is {apart:.1e} off"


def _grpc_answer(name: str, path: str, request: Any, part: bytes) -> Case:
    message = request.SerializeToString()

    def ask(clients: Clients, draw: random.Random) -> str | None:
        code, reply = clients.grpc(path, message)
        return None if code == "OK" and part in reply else f"{code} {reply[:300]!r}"

    return Case(name, ask)


def _grpc_error(name: str, path: str, message: bytes, wanted: str) -> Case:
    def ask(clients: Clients, draw: random.Random) -> str | None:
        code, details = clients.grpc(path, message)
        return None if code == wanted else f"{code} {details[:300]!r}, not {wanted}"

    return Case(name, ask)


def _rest_answer(
    name: str,
    method: str,
    path: str,
    wanted: int,
    part: bytes,
    body: bytes | None = None,
) -> Case:
    def ask(clients: Clients, draw: random.Random) -> str | None:
        status, reply = clients.http(method, path, body)
        right = status == wanted and part in reply
        return None if right else f"{status} {reply[:300]!r}, not {wanted}"

    return Case(name, ask)


def _raw(name: str, data: bytes, wanted: bytes | None) -> Case:
    def ask(clients: Clients, draw: random.Random) -> str | None:
        reply = clients.raw(data, answer=wanted is not None)
        right = wanted is None or wanted in reply[:40]
        return None if right else f"{reply[:300]!r}, not {wanted!r}"

    return Case(name, ask)


def _huge_png() -> bytes:
    """Write the beginning of an image that would take 10 GB in memory."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + chunk
