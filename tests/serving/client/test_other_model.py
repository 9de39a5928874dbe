"""Whose embeddings an answer holds: other weights may come under the same number."""

import itertools

import numpy as np
import pytest

from serving.client import EndpointClient, EndpointError, Failure
from serving.endpoint.models.saved_model import model_fingerprint
from tests.support.search_fixtures import encoded, write_color_model
from tests.support.swapping import swapping

IMAGE = encoded((200, 90, 30))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models of the same name and number, and one of them without description."""
    folder = tmp_path_factory.mktemp("models")
    write_color_model(folder / "first" / "colors" / "1")
    write_color_model(folder / "second" / "colors" / "1", tint=(1, 0.5, 0.5))
    plain = folder / "plain" / "colors" / "1"
    write_color_model(plain, is_described=False)
    return folder


def base(models, name):
    return models / name / "colors"


def fingerprint(models, name):
    return model_fingerprint(base(models, name) / "1")


@pytest.fixture(params=["REST", "gRPC"])
def protocol(request):
    return request.param


@pytest.fixture(params=[True, False], ids=["told", "described"])
def tells(request):
    """Whether answers name the fingerprint, or only the description of the model."""
    return request.param


def test_metadata_names_the_fingerprint(models, protocol, tells):
    with (
        swapping(base(models, "first"), tells=tells) as endpoint,
        EndpointClient(endpoint.urls[protocol]) as client,
    ):
        assert client.metadata().fingerprint == fingerprint(models, "first")
        assert client.metadata().is_described
        assert client.description() == {
            "format": 1,
            "fingerprint": fingerprint(models, "first"),
        }


def test_model_that_tells_nothing_has_no_fingerprint(models, protocol):
    with (
        swapping(base(models, "plain"), tells=False) as endpoint,
        EndpointClient(endpoint.urls[protocol], fingerprint="f" * 64) as client,
    ):
        assert client.metadata().fingerprint is None
        assert client.description() is None
        assert len(client.embed([IMAGE])) == 1


def test_other_weights_are_noticed_before_an_embedding_is_returned(
    models, protocol, tells
):
    wanted = fingerprint(models, "first")
    with (
        swapping(base(models, "first"), tells=tells) as endpoint,
        EndpointClient(endpoint.urls[protocol], fingerprint=wanted) as client,
    ):
        before = client.embed([IMAGE])
        endpoint.swap(base(models, "second"))
        for _ in range(2):
            with pytest.raises(EndpointError, match="answers with another model") as e:
                client.embed([IMAGE])
            assert e.value.failure is Failure.OTHER_MODEL
            assert fingerprint(models, "second") in str(e.value)
        endpoint.swap(base(models, "first"))
        np.testing.assert_array_equal(client.embed([IMAGE]), before)


def test_model_with_another_fingerprint_is_refused_at_once(models, protocol, tells):
    with (
        swapping(base(models, "second"), tells=tells) as endpoint,
        EndpointClient(endpoint.urls[protocol], fingerprint="f" * 64) as client,
        pytest.raises(EndpointError, match="answers with another model"),
    ):
        client.metadata()


def test_client_of_any_model_goes_over_to_a_new_one_with_all_images(models, protocol):
    with (
        swapping(base(models, "first")) as endpoint,
        EndpointClient(endpoint.urls[protocol], batch_size=1) as client,
    ):
        client.embed([IMAGE])
        endpoint.swap(base(models, "second"))
        rows = client.embed([IMAGE, IMAGE])
        np.testing.assert_allclose(rows[0], rows[1], atol=1e-6)
        assert client.metadata().fingerprint == fingerprint(models, "second")


def test_stream_ends_rather_than_mix_two_models(models, protocol):
    with (
        swapping(base(models, "first")) as endpoint,
        EndpointClient(endpoint.urls[protocol], batch_size=1) as client,
    ):
        images = itertools.repeat(IMAGE)
        stream = client.embed_stream(images, concurrency=1)
        before = next(stream)[1]
        endpoint.swap(base(models, "second"))
        rows = []
        with pytest.raises(EndpointError, match="answers with another model"):
            rows.extend(row for _, row in stream)
        for row in rows:  # those that were under way
            np.testing.assert_allclose(row, before, atol=1e-6)
