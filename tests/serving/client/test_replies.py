"""What the client makes of the replies of a model, over both protocols."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from serving.client import Credentials, EndpointClient, EndpointError, Retries
from tests.support.answering_model import PROTOCOLS, Refusal, answering
from tests.support.closed_port import closed_port
from tests.support.random_pixels import png, random_pixels

QUICK = Retries(first_wait=0.001, longest_wait=0.002)
ANSWER = {"embedding": [[1.0, 0.0]]}

both = pytest.mark.parametrize("protocol", PROTOCOLS)


def embed_one(url, **options):
    with EndpointClient(url, **{"retries": QUICK, **options}) as client:
        return client.embed([png(random_pixels(5, 3, 4))])


@both
def test_embedding_is_found_among_several_outputs(protocol):
    several = {"embedding": [[0.0, 1.0]], "logits": [[3.0, 4.0]]}
    with answering(protocol, several) as model:
        np.testing.assert_array_equal(embed_one(model.url), [[0, 1]])


@pytest.mark.parametrize(
    ("protocol", "answer", "reason"),
    [
        *(
            (protocol, {"embedding": rows}, reason)
            for protocol in PROTOCOLS
            for rows, reason in (
                ([1.0], "a row of finite numbers"),
                ([[float("nan"), 1.0]], "a row of finite numbers"),
                ([[]], "a row of finite numbers"),
                ([[0.0, 0.0]], "no direction"),
                ([[1.0, 0.0, 0.0]], r"length \[3\], the model says 2"),
                (["text"], "rows of numbers"),
            )
        ),
        ("REST", {"embedding": []}, "there must be 1 `predictions`, there are 0"),
        ("REST", {}, "there must be 1 `predictions`, there are none"),
        ("gRPC", {}, "it has no outputs"),
        ("gRPC", {"embedding": [[1.0, 0.0]] * 2}, r"must have 1 rows.*\[2, 2\]"),
        ("gRPC", {"embedding": 1.0}, r"`embedding` must have 1 rows.*\[\]"),
    ],
)
def test_wrong_reply_is_reported_with_what_is_wrong(protocol, answer, reason):
    with (
        answering(protocol, answer) as model,
        pytest.raises(EndpointError, match=reason),
    ):
        embed_one(model.url)


@both
def test_slow_endpoint_is_given_up_after_the_timeout(protocol):
    release = threading.Event()

    def late():
        release.wait(60)
        return ANSWER

    with answering(protocol, late) as model:
        try:
            with pytest.raises(EndpointError, match=r"not answer within 0\.3 seconds"):
                embed_one(model.url, timeout=0.3)
        finally:
            release.set()
    assert len(model.requests) <= 1  # none if the server was too slow to begin


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{}/v1/models/colors", "grpc://127.0.0.1:{}/colors"]
)
def test_endpoint_that_is_down_is_reported_with_the_remedy(url):
    down = r"cannot be reached.*tfdml serve.*5 times"
    with closed_port() as port, pytest.raises(EndpointError, match=down):
        embed_one(url.format(port.getsockname()[1]))


@pytest.mark.parametrize(
    ("protocol", "status"),
    [
        ("REST", 429),
        ("REST", 503),
        ("gRPC", "UNAVAILABLE"),
        ("gRPC", "RESOURCE_EXHAUSTED"),
        ("gRPC", "CANCELLED"),
    ],
)
def test_overloaded_endpoint_is_asked_again(protocol, status):
    busy = Refusal(status, "Too many calls. Retry.")
    with answering(protocol, *[busy] * 3, ANSWER) as model:
        np.testing.assert_array_equal(embed_one(model.url), [[1, 0]])
    assert len(model.requests) == 4
    assert model.requests == model.requests[:1] * 4


@pytest.mark.parametrize(
    ("protocol", "status", "text"),
    [
        *(
            ("REST", status, "no")
            for status in (400, 401, 403, 404, 413, 500, 501, 504)
        ),
        ("gRPC", "INVALID_ARGUMENT", "bad image"),
        ("gRPC", "FAILED_PRECONDITION", "no signature"),
        ("gRPC", "NOT_FOUND", "no model"),
        ("gRPC", "UNAUTHENTICATED", "no token"),
        ("gRPC", "INTERNAL", "broken"),
        ("gRPC", "RESOURCE_EXHAUSTED", "Received message larger than max (9 vs. 4)"),
    ],
)
def test_other_refusals_are_not_asked_again(protocol, status, text):
    with (
        answering(protocol, Refusal(status, text), ANSWER) as model,
        pytest.raises(EndpointError) as caught,
    ):
        embed_one(model.url)
    assert f"status {status}: {text}" in str(caught.value)
    assert caught.value.status == status
    assert len(model.requests) == 1


@both
def test_token_is_sent_and_never_shown(protocol):
    token = "s3cret-t0ken"
    credentials = Credentials(token=token)
    refusal = Refusal(401 if protocol == "REST" else "UNAUTHENTICATED")
    with answering(protocol, refusal) as model:
        client = EndpointClient(model.url, retries=QUICK, credentials=credentials)
        with client, pytest.raises(EndpointError) as caught:
            client.embed([png(random_pixels(1, 3, 4))])
        with client.at_version(1) as same:
            assert same._credentials == credentials
    assert model.headers[0]["authorization"] == f"Bearer {token}"
    assert repr(client) == f"EndpointClient('{model.url}')"
    assert token not in f"{caught.value!r} {credentials!r}"


# Over gRPC alone


def test_request_has_the_input_of_the_metadata_and_the_default_signature():
    with answering("gRPC", ANSWER) as model:
        np.testing.assert_array_equal(embed_one(model.url), [[1, 0]])
    (request,) = model.requests
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
    with answering("gRPC", ANSWER) as model:
        embed_one(f"{model.url}/{choice}")
    spec = model.requests[0].model_spec
    assert spec.WhichOneof("version_choice") == field
    found = spec.version.value if field == "version" else spec.version_label
    assert found == value


def test_requests_are_not_compressed_over_grpc():
    with pytest.raises(ValueError, match="`gzip_requests` is for REST"):
        EndpointClient("grpc://127.0.0.1:1/m", gzip_requests=True)
