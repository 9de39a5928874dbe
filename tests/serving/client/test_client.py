import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from serving.client import EndpointClient, EndpointError
from tests.support.answering_model import METADATA
from tests.support.random_pixels import png, random_pixels
from tests.support.running_endpoint import endpoint_here
from tests.support.running_server import running
from tests.support.search_fixtures import (
    DIMENSION,
    SIZE,
    quarter_colors,
    write_color_model,
    write_image,
)
from tfdml.images import UnreadableImageError, View, read_image, resize_image

ROOT = Path(__file__).parents[3]
URL = "http://127.0.0.1:1/v1/models/colors"


# With the real endpoint


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    """The addresses of one model, by protocol."""
    model = tmp_path_factory.mktemp("models") / "colors"
    write_color_model(model / "1")
    with endpoint_here(model_name="colors", model_base_path=model) as endpoint:
        yield {
            "REST": f"{endpoint.url}/v1/models/colors",
            "gRPC": f"grpc://{endpoint.grpc}/colors",
        }


@pytest.fixture(params=["REST", "gRPC"])
def endpoint_url(request, urls):
    return urls[request.param]


def test_both_protocols_say_the_same(urls):
    images = [png(random_pixels(seed, 40, 30)) for seed in range(3)]
    with EndpointClient(urls["REST"]) as rest, EndpointClient(urls["gRPC"]) as grpc:
        assert grpc.metadata() == rest.metadata()
        np.testing.assert_array_equal(grpc.embed(images), rest.embed(images))


def test_rows_come_in_the_order_of_the_images_over_several_requests(endpoint_url):
    images = [random_pixels(seed) for seed in range(5)]
    with EndpointClient(endpoint_url, batch_size=2) as client:
        embeddings = client.embed([png(pixels) for pixels in images])
    assert embeddings.shape == (5, DIMENSION)
    assert embeddings.dtype == np.float32
    expected = [quarter_colors(pixels) for pixels in images]
    np.testing.assert_allclose(embeddings, expected, atol=2e-6)


def test_a_path_and_its_bytes_have_the_same_embedding(endpoint_url, tmp_path):
    file = write_image(tmp_path / "olive.bmp", (128, 128, 0))
    with EndpointClient(endpoint_url) as client:
        rows = client.embed([file, str(file), file.read_bytes()])
    assert (rows == rows[0]).all()


def test_pixels_have_exactly_the_embedding_of_their_file(endpoint_url):
    whole = random_pixels(9, height=40, width=50)
    cut = whole[3:33, 10:45]  # not contiguous in memory
    with EndpointClient(endpoint_url) as client:
        rows = client.embed([png(whole), whole, png(cut), cut])
        only = client.embed(np.stack([whole, whole]))
    assert (rows[0] == rows[1]).all()
    assert (rows[2] == rows[3]).all()
    assert (only == rows[0]).all()


@pytest.mark.parametrize(
    ("pixels", "received"),
    [
        (np.zeros((8, 8, 3), np.float32), r"float32 \[8, 8, 3\]"),
        (np.zeros((8, 8, 4), np.uint8), r"uint8 \[8, 8, 4\]"),
        (np.zeros((8, 8), np.uint8), r"uint8 \[8, 8\]"),
        (np.zeros((0, 8, 3), np.uint8), r"uint8 \[0, 8, 3\]"),
    ],
)
def test_pixels_of_another_form_are_refused(endpoint_url, pixels, received):
    with (
        EndpointClient(endpoint_url) as client,
        pytest.raises(ValueError, match=rf"uint8 arrays .*Received: {received}"),
    ):
        client.embed([pixels])


def test_a_large_image_is_sent_in_the_size_of_the_model(endpoint_url):
    pixels = random_pixels(1, height=90, width=61)
    with EndpointClient(endpoint_url) as client:
        embedding = client.embed([png(pixels)])[0]
    expected = quarter_colors(resize_image(pixels, SIZE))
    np.testing.assert_allclose(embedding, expected, atol=2e-6)


def test_the_exif_orientation_is_applied(endpoint_url):
    pixels = random_pixels(2)
    exif = Image.Exif()
    exif[0x0112] = 3  # shown upside down
    with EndpointClient(endpoint_url) as client:
        embedding = client.embed([png(pixels, exif=exif)])[0]
    np.testing.assert_allclose(embedding, quarter_colors(pixels[::-1, ::-1]), atol=2e-6)


def test_transparent_pixels_count_as_white(endpoint_url):
    clear = np.zeros((SIZE, SIZE, 4), np.uint8)
    with EndpointClient(endpoint_url) as client:
        embedding = client.embed([png(clear)])[0]
    np.testing.assert_allclose(
        embedding, np.full(DIMENSION, DIMENSION**-0.5), atol=1e-6
    )


def test_metadata_have_name_version_size_and_dimension(endpoint_url):
    with EndpointClient(endpoint_url) as client:
        metadata = client.metadata()
    assert metadata.name == "colors"
    assert metadata.version == 1
    assert metadata.image_size == SIZE
    assert metadata.dimension == DIMENSION
    assert metadata.input_name == "image_bytes"


def test_no_images_give_no_rows(endpoint_url):
    with EndpointClient(endpoint_url) as client:
        assert client.embed([]).shape == (0, DIMENSION)


def test_one_version_can_be_asked_for(endpoint_url):
    with EndpointClient(endpoint_url).at_version(1) as client:
        assert client.url == f"{endpoint_url}/versions/1"
        assert client.embed([png(random_pixels(3))]).shape == (1, DIMENSION)
        again = client.at_version(2)
    assert again.url == f"{endpoint_url}/versions/2"
    with again, pytest.raises(EndpointError, match="Servable not found"):
        again.metadata()


def test_a_model_that_is_not_served_is_reported_with_its_name(endpoint_url):
    url = endpoint_url.replace("colors", "shapes")
    with (
        EndpointClient(url) as client,
        pytest.raises(EndpointError, match=r"Servable not found.*shapes"),
    ):
        client.metadata()


def test_an_unreadable_image_is_named_with_its_reason(endpoint_url, tmp_path):
    file = tmp_path / "notes.png"
    file.write_text("no image")
    with EndpointClient(endpoint_url) as client:
        with pytest.raises(
            UnreadableImageError, match=r"notes\.png: .*no image format"
        ):
            client.embed([png(random_pixels(4)), file])
        with pytest.raises(FileNotFoundError, match=r"missing\.png"):
            client.embed([tmp_path / "missing.png"])


def test_a_proxy_of_the_environment_is_not_asked_for_the_loopback_address(
    endpoint_url, monkeypatch
):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with EndpointClient(endpoint_url) as client:
        assert client.metadata().name == "colors"


# With an endpoint that answers what the test wants


def answering(predict, metadata=METADATA):
    """Serve a model whose answers are given; a callable is called with the request."""

    def respond(answer):
        async def handler(request):
            body = await request.body()
            made = answer
            if not isinstance(answer, Response) and callable(answer):
                made = await asyncio.to_thread(answer, body)
            return made if isinstance(made, Response) else JSONResponse(made)

        return handler

    routes = [
        Route("/v1/models/colors/metadata", respond(metadata)),
        Route("/v1/models/colors:predict", respond(predict), methods=["POST"]),
    ]
    return running(Starlette(routes=routes))


def embed_one(address, **options):
    with EndpointClient(f"{address}/v1/models/colors", **options) as client:
        return client.embed([png(random_pixels(5, 3, 4))])


def test_without_a_stated_size_the_upright_image_is_sent_as_it_is():
    bodies = []

    def predict(body):
        bodies.append(body)
        return {"predictions": [[1.0, 0.0]]}

    with answering(predict) as address:
        np.testing.assert_array_equal(embed_one(address), [[1, 0]])
    sent = base64.b64decode(json.loads(bodies[0])["instances"][0]["b64"])
    np.testing.assert_array_equal(read_image(sent), random_pixels(5, 3, 4))


def with_view(*names):
    """Return the metadata of a model of size 4 with further signatures."""
    signatures = METADATA["metadata"]["signature_def"]["signature_def"]
    dims = [{"size": size} for size in ("-1", "4", "4", "3")]
    tensors = {"inputs": {"images": {"tensor_shape": {"dim": dims}}}}
    signatures = {**signatures, "tensors": tensors}
    signatures |= {name: {} for name in names}
    return {**METADATA, "metadata": {"signature_def": {"signature_def": signatures}}}


@pytest.mark.parametrize(
    ("names", "view"),
    [
        ((), View(4)),
        (("view_6",), View(4, 6)),
        (("view_6_padded",), View(4, 6, pad=True)),
        (("view_of_delft", "classify"), View(4)),
    ],
)
def test_image_is_sent_reduced_to_the_view_of_the_model(names, view):
    bodies = []

    def predict(body):
        bodies.append(body)
        return {"predictions": [[1.0, 0.0]]}

    pixels = random_pixels(8, 20, 31)
    with (
        answering(predict, with_view(*names)) as address,
        EndpointClient(f"{address}/v1/models/colors") as client,
    ):
        assert client.metadata().view == view
        client.embed([png(pixels)])
    sent = base64.b64decode(json.loads(bodies[0])["instances"][0]["b64"])
    np.testing.assert_array_equal(read_image(sent), view.reduced(pixels))


@pytest.mark.parametrize(
    ("names", "reason"),
    [(("view_6", "view_8"), "must have one view"), (("view_3",), "`resize` must be")],
)
def test_model_with_a_view_that_cannot_be_is_refused(names, reason):
    with (
        answering({}, with_view(*names)) as address,
        pytest.raises(EndpointError, match=reason),
    ):
        embed_one(address)


def test_metadata_is_asked_for_once():
    calls = []

    def metadata(body):
        calls.append(body)
        return METADATA

    with (
        answering({"predictions": [[1.0, 0.0]]}, metadata) as address,
        EndpointClient(f"{address}/v1/models/colors") as client,
    ):
        for _ in range(3):
            client.embed([png(random_pixels(6))])
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Response("<html>", media_type="text/html"), "not a JSON object"),
        ([1, 2], "not a JSON object"),
        ({"outputs": [[1.0, 0.0]]}, "there must be 1 `predictions`, there are none"),
    ],
)
def test_a_wrong_reply_is_reported_with_what_is_wrong(reply, reason):
    with answering(reply) as address, pytest.raises(EndpointError, match=reason):
        embed_one(address)


@pytest.mark.parametrize(
    "metadata",
    [{}, {"metadata": [1]}, {"metadata": {"signature_def": {"signature_def": {}}}}],
)
def test_metadata_of_something_else_is_refused(metadata):
    with (
        answering({}, metadata) as address,
        pytest.raises(EndpointError, match="must take encoded images"),
    ):
        embed_one(address)


def test_the_message_of_an_http_error_is_passed_on():
    refusal = JSONResponse({"error": "queue is full"}, 503)
    with (
        answering(refusal) as address,
        pytest.raises(EndpointError, match="status 503: queue is full"),
    ):
        embed_one(address)
    with (
        answering(Response("oops", 500)) as address,
        pytest.raises(EndpointError, match="status 500: Internal Server Error"),
    ):
        embed_one(address)


# At construction


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8501",
        "http://127.0.0.1:8501",
        "http://127.0.0.1:8501/v1/models/",
        "http://127.0.0.1:8501/v1/models/colors:predict",
        "http://127.0.0.1:8501/v1/models/colors/versions/one",
        "ftp://127.0.0.1/v1/models/colors",
        "http:///v1/models/colors",
    ],
)
def test_an_address_that_is_no_model_is_refused(url):
    with pytest.raises(ValueError, match="`url` must be the address of a model"):
        EndpointClient(url)


@pytest.mark.parametrize(
    "option", [{"timeout": 0}, {"timeout": float("nan")}, {"batch_size": 0}]
)
def test_an_option_out_of_range_is_refused(option):
    with pytest.raises(ValueError, match=f"`{next(iter(option))}` must be"):
        EndpointClient(URL, **option)


@pytest.mark.parametrize("single", [b"bytes", "cat.png", random_pixels(1)])
def test_a_single_image_in_place_of_a_list_is_refused(single):
    with EndpointClient(URL) as client, pytest.raises(TypeError, match=r"\[image\]"):
        client.embed(single)


WITHOUT_TENSORFLOW = """
import sys

for name in ("tensorflow", "tensorflow_serving", "keras", "jax", "torch"):
    sys.modules[name] = None
import numpy as np
from serving.client import EndpointClient

with EndpointClient(sys.argv[1]) as client:
    print(client.metadata().dimension, client.embed([sys.argv[2]]).tolist())
"""


@pytest.mark.parametrize("protocol", ["REST", "gRPC"])
def test_neither_protocol_needs_tensorflow(protocol, urls, tmp_path):
    image = tmp_path / "image.png"
    image.write_bytes(png(random_pixels(3, 40, 30)))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW, urls[protocol], image],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with EndpointClient(urls[protocol]) as client:
        here = f"{client.metadata().dimension} {client.embed([image]).tolist()}\n"
    assert done.stdout == here
