"""REST and gRPC say the same, and concurrent requests do not touch each other."""

import json
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tensorflow as tf

from serving.client import EndpointClient
from tests.conformance.messages import b64, encoded, error_of, predict, rows_of
from tests.support.running_grpc import predict_request, refusal

COUNT = 32
BAD_PLACES = (5, 20)


def by_rest(rest, target, image):
    """The row, or the name of the gRPC code that the HTTP status stands for."""
    response = predict(rest, target.path, {"instances": [b64(image)]})
    if response.status_code == 400:
        error_of(response, 400)
        return "INVALID_ARGUMENT"
    return rows_of(response)[0]


def by_grpc(stubs, target, image):
    request = predict_request({"image_bytes": [image]}, name=target.model)
    try:
        response = stubs.prediction.Predict(request, timeout=60)
    except grpc.RpcError as error:
        return error.code().name
    return tf.make_ndarray(response.outputs["embedding"])[0]


@pytest.fixture(params=["REST", "gRPC"])
def embed(request, rest, stubs, target):
    """Sends one image by one of the protocols."""
    if request.param == "REST":
        return lambda image: by_rest(rest, target, image)
    return lambda image: by_grpc(stubs, target, image)


def test_both_protocols_give_the_same_embeddings(rest, stubs, target, images):
    for image in images:
        np.testing.assert_allclose(
            by_rest(rest, target, image), by_grpc(stubs, target, image), atol=1e-6
        )


def test_both_protocols_refuse_with_the_same_text(rest, stubs, target):
    for name, version in (("no-such-model", None), (target.model, 987654321)):
        end = "" if version is None else f"/versions/{version}"
        path = f"/v1/models/{name}{end}"
        text = error_of(predict(rest, path, {"instances": [b64(b"")]}), 404)
        request = predict_request({"image_bytes": [b""]}, name=name, version=version)
        assert refusal(stubs.prediction.Predict, request) == ("NOT_FOUND", text)


def test_client_of_this_project_works_by_both_protocols(target, images):
    urls = (f"{target.rest}{target.path}", f"grpc://{target.grpc}/{target.model}")
    rows = []
    for url in urls:
        with EndpointClient(url) as client:
            metadata = client.metadata()
            assert (metadata.name, metadata.version) == (target.model, target.version)
            assert metadata.dimension == target.dimension
            assert metadata.image_size == target.size
            rows.append(client.embed(images))
    np.testing.assert_allclose(*rows, atol=1e-6)


def test_model_says_over_the_wire_what_it_is(rest, stubs, target):
    """One row a row, whatever is in it, and the same text by both protocols."""
    if not target.describes_itself and not target.is_own:
        pytest.skip("the model was exported without the signature `describe`")
    document = {"signature_name": "describe", "instances": ["", "anything"]}
    reply = predict(rest, target.path, document)
    assert reply.status_code == 200, reply.text
    texts = reply.json()["predictions"]
    request = predict_request({"request": [""]}, target.model, "describe")
    output = stubs.prediction.Predict(request, timeout=60).outputs["description"]
    (text,) = tf.make_ndarray(output)
    assert texts == [text.decode()] * 2
    description = json.loads(text)
    assert description["embedding"]["dimension"] == target.dimension
    assert description["preprocessing"]["config"]["image_size"] == target.size


@pytest.fixture(scope="module")
def crowd(target):
    """Images that all differ."""
    shape = (COUNT, target.size, target.size, 3)
    pixels = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    return [encoded(image) for image in pixels]


@pytest.fixture(scope="module")
def alone(stubs, target, crowd):
    """The embedding of each image, sent when nothing else was under way."""
    rows = np.stack([by_grpc(stubs, target, image) for image in crowd])
    differences = np.abs(rows[:, None] - rows[None]).max(axis=2)
    assert differences[~np.eye(COUNT, dtype=bool)].min() > 1e-4
    return rows


def at_once(embed, images):
    with ThreadPoolExecutor(len(images)) as pool:
        return list(pool.map(embed, images))


def test_concurrent_requests_each_get_their_own_answer(embed, crowd, alone):
    np.testing.assert_allclose(at_once(embed, crowd), alone, atol=1e-5)


def test_bad_image_fails_its_own_request_only(embed, target, crowd, alone):
    """TF Serving with batching fails all requests of the batch: skipped there."""
    images = list(crowd)
    for place in BAD_PLACES:
        images[place] = b"no image"
    answers = at_once(embed, images)
    for place in BAD_PLACES:
        assert answers[place] == "INVALID_ARGUMENT"
    good = [place for place in range(COUNT) if place not in BAD_PLACES]
    failed = [place for place in good if isinstance(answers[place], str)]
    for place in set(good) - set(failed):
        np.testing.assert_allclose(answers[place], alone[place], atol=1e-5)
    if failed and not target.is_own:
        pytest.skip(f"{len(failed)} good requests failed with a bad one beside them")
    assert not failed
