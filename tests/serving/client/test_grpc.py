"""The client over gRPC, with servers that answer what a test wants."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tensorflow as tf
import trustme
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.client import Credentials, EndpointClient, EndpointError, Retries
from tests.serving.client.test_client import png, random_pixels
from tests.support.closed_port import closed_port

QUICK = Retries(first_wait=0.001, longest_wait=0.002)
# A retry would begin in ten minutes.
LATE = Retries(seconds=3600, first_wait=600, longest_wait=600)


def signatures(dimension=2, outputs=("embedding",)):
    definitions = get_model_metadata_pb2.SignatureDefMap()
    signature = definitions.signature_def["serving_default"]
    signature.inputs["images"].dtype = tf.string.as_datatype_enum
    for name in outputs:
        signature.outputs[name].dtype = tf.float32.as_datatype_enum
        for size in (-1, dimension):
            signature.outputs[name].tensor_shape.dim.add(size=size)
    return definitions


class _Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers predict calls one after the other: a code, or arrays by name."""

    def __init__(self, answers):
        self.answers, self.requests, self.headers = list(answers), [], []

    def GetModelMetadata(self, request, context):  # noqa: N802 - gRPC's name
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.CopyFrom(request.model_spec)
        response.metadata["signature_def"].Pack(signatures())
        return response

    def Predict(self, request, context):  # noqa: N802 - gRPC's name
        self.requests.append(request)
        self.headers.append(dict(context.invocation_metadata()))
        answer = self.answers.pop(0)
        if isinstance(answer, tuple):
            context.abort(*answer)
        if callable(answer):
            answer = answer(context)
        response = predict_pb2.PredictResponse()
        for name, value in answer.items():
            if isinstance(value, list):
                value = np.array(value, np.float32)
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        return response


@contextlib.contextmanager
def answering(*answers, credentials=None):
    """Serve a model on a free loopback port; yields its address and the service."""
    service = _Service(answers)
    server = grpc.server(ThreadPoolExecutor(4))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        # At both addresses of the name: gRPC tells the failure of either.
        port = server.add_secure_port("localhost:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}/colors", service
    finally:
        server.stop(None).wait()


def embed_one(address, scheme="grpc", **options):
    with EndpointClient(
        f"{scheme}://{address}", **{"retries": QUICK, **options}
    ) as client:
        return client.embed([png(random_pixels(5, 3, 4))])


ANSWER = {"embedding": [[1.0, 0.0]]}


def test_request_has_the_input_of_the_metadata_and_the_default_signature():
    with answering(ANSWER) as (address, service):
        np.testing.assert_array_equal(embed_one(address), [[1, 0]])
    (request,) = service.requests
    assert list(request.inputs) == ["images"]
    assert request.model_spec.signature_name == "serving_default"
    assert request.model_spec.WhichOneof("version_choice") is None
    sent = tf.make_ndarray(request.inputs["images"])
    assert sent.shape == (1,)
    assert sent[0].startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("choice", "field", "value"),
    [("versions/3", "version", 3), ("labels/stable", "version_label", "stable")],
)
def test_version_and_label_of_the_address_are_asked_for(choice, field, value):
    with answering(ANSWER) as (address, service):
        embed_one(f"{address}/{choice}")
    spec = service.requests[0].model_spec
    assert spec.WhichOneof("version_choice") == field
    found = spec.version.value if field == "version" else spec.version_label
    assert found == value


def test_embedding_is_found_among_several_outputs():
    several = {"embedding": [[0.0, 1.0]], "logits": [[3.0, 4.0]]}
    with answering(several) as (address, _):
        np.testing.assert_array_equal(embed_one(address), [[0, 1]])


@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED"])
def test_overloaded_endpoint_is_asked_again(code):
    busy = (grpc.StatusCode[code], "Too many calls. Retry.")
    with answering(busy, busy, ANSWER) as (address, service):
        np.testing.assert_array_equal(embed_one(address), [[1, 0]])
    assert len(service.requests) == 3


@pytest.mark.parametrize(
    ("code", "details"),
    [
        ("INVALID_ARGUMENT", "bad image"),
        ("FAILED_PRECONDITION", "no signature"),
        ("NOT_FOUND", "no model"),
        ("UNAUTHENTICATED", "no token"),
        ("INTERNAL", "broken"),
        ("RESOURCE_EXHAUSTED", "Received message larger than max (9 vs. 4)"),
    ],
)
def test_other_refusals_are_not_asked_again(code, details):
    with (
        answering((grpc.StatusCode[code], details), ANSWER) as (address, service),
        pytest.raises(EndpointError) as caught,
    ):
        embed_one(address)
    assert f"status {code}: {details}" in str(caught.value)
    assert caught.value.status == code
    assert len(service.requests) == 1


def test_slow_endpoint_is_given_up_after_the_timeout():
    release = threading.Event()

    def wait(context):
        release.wait(60)
        return ANSWER

    with answering(wait) as (address, service):
        with pytest.raises(EndpointError, match=r"did not answer within 0\.3 seconds"):
            embed_one(address, timeout=0.3)
        release.set()
    assert len(service.requests) <= 1


def test_endpoint_that_is_down_is_reported_with_the_remedy():
    down = pytest.raises(EndpointError, match=r"cannot be reached.*run.*5 times")
    with closed_port() as port, down:
        embed_one(f"127.0.0.1:{port.getsockname()[1]}/colors")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({}, "it has no outputs"),
        ({"embedding": [[1.0, 0.0]] * 2}, r"`embedding` must have 1 rows.*\[2, 2\]"),
        ({"embedding": np.float32(1)}, r"`embedding` must have 1 rows.*\[\]"),
        ({"embedding": [1.0]}, "a row of finite numbers"),
        ({"embedding": [[float("nan"), 1.0]]}, "a row of finite numbers"),
        ({"embedding": [[0.0, 0.0]]}, "no direction"),
        ({"embedding": [[1.0, 0.0, 0.0]]}, r"length \[3\], the model says 2"),
        ({"embedding": np.array([[b"a", b"b"]])}, "rows of numbers"),
    ],
)
def test_wrong_reply_is_reported_with_what_is_wrong(answer, reason):
    with (
        answering(answer) as (address, _),
        pytest.raises(EndpointError, match=reason),
    ):
        embed_one(address)


def test_requests_are_not_compressed_over_grpc():
    with pytest.raises(ValueError, match="`gzip_requests` is for REST"):
        EndpointClient("grpc://127.0.0.1:1/m", gzip_requests=True)


# Encrypted


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def server_credentials(authority, client_ca=None):
    certificate = authority.issue_cert("127.0.0.1")
    return grpc.ssl_server_credentials(
        [
            (
                certificate.private_key_pem.bytes(),
                b"".join(blob.bytes() for blob in certificate.cert_chain_pems),
            )
        ],
        None if client_ca is None else client_ca.cert_pem.bytes(),
        client_ca is not None,
    )


def test_endpoint_with_a_certificate_of_the_given_authority_is_trusted(
    authority, tmp_path
):
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    credentials = Credentials("abc", ca_file=tmp_path / "ca.pem")
    with answering(ANSWER, credentials=server_credentials(authority)) as (
        address,
        service,
    ):
        embed_one(address, "grpcs", credentials=credentials)
        assert service.headers[0]["authorization"] == "Bearer abc"


def test_certificate_that_is_refused_is_not_asked_for_again(authority, tmp_path):
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    known = Credentials(ca_file=tmp_path / "ca.pem")
    wanted = "is not trusted .*`--ca-file`"
    with answering(ANSWER, credentials=server_credentials(authority)) as (address, _):
        with pytest.raises(EndpointError, match=wanted) as caught:
            embed_one(address, "grpcs", retries=LATE)
        assert not caught.value.may_pass
        elsewhere = address.replace("127.0.0.1", "localhost")
        with pytest.raises(EndpointError, match=wanted):
            embed_one(elsewhere, "grpcs", retries=LATE, credentials=known)


def test_endpoint_that_asks_for_a_certificate_gets_it(authority, tmp_path):
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own = authority.issue_cert("client.test")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    own.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    known = Credentials(
        ca_file=tmp_path / "ca.pem",
        certificate_file=tmp_path / "client.pem",
        key_file=tmp_path / "key.pem",
    )
    unknown = Credentials(ca_file=tmp_path / "ca.pem")
    served = server_credentials(authority, authority)
    with answering(ANSWER, credentials=served) as (address, _):
        embed_one(address, "grpcs", credentials=known)
        with pytest.raises(EndpointError, match="cannot be reached"):
            embed_one(address, "grpcs", credentials=unknown, retries=Retries(count=0))
