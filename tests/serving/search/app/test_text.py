"""Text to image: two towers trained on captions, exported, served and searched."""

import json

import numpy as np
import pytest

from serving.client import EndpointClient
from serving.search.gallery.opening import open_search
from tests.support.running_grpc import running_grpc
from tests.support.search_fixtures import (
    PURE,
    encoded,
    error_of,
    page_of,
    serve_model,
)
from tests.support.served import load_servable
from tests.support.serving_commands import json_of
from tfdml.export import SavedEmbedder
from tfdml.models import load_text_tower


@pytest.fixture(scope="module")
def page(towers):
    with (
        serve_model(towers / "words") as url,
        open_search(towers / "index", url) as search,
        page_of(search) as client,
    ):
        yield client


def classes_of(response):
    assert response.status_code == 200, response.text
    return [hit["class"] for hit in response.json()["hits"]]


@pytest.mark.parametrize("name", PURE)
@pytest.mark.parametrize("caption", ["{}", "A photo of {}!", "unheard words {}"])
def test_a_text_finds_the_images_that_it_names(page, name, caption):
    body = {"text": caption.format(name), "k": 3}
    reply = page.post("/api/search", json=body)
    assert classes_of(reply) == [name] * 3
    assert reply.json()["query"] is None
    assert page.get("/api/info").json()["indexes"][0]["has_text"] is True


def test_texts_and_images_are_searched_with_together(page):
    body = {"queries": [{"text": "red"}, {"text": "blue"}], "k": 6}
    assert sorted(classes_of(page.post("/api/search", json=body))) == sorted(
        ["red", "blue"] * 3
    )
    form = {"negatives": json.dumps([{"text": "red"}]), "k": 9}
    files = {"image": ("a.png", encoded((250, 240, 0)))}
    found = classes_of(page.post("/api/search", files=files, data=form))
    plain = classes_of(page.post("/api/search", files=files, data={"k": 9}))
    assert found.index("red") > plain.index("red")


def test_a_command_searches_with_texts(towers, capsys):
    rest = ["--index", towers / "index", "--model", towers / "words", "-k", "3"]
    asked = ["search", "--text", "red", "--text", "a photo of blue", *rest]
    red, blue = json_of(capsys, *asked)["results"]
    assert (red["query"], blue["query"]) == ("red", "a photo of blue")
    assert [hit["class"] for hit in red["hits"]] == ["red"] * 3
    assert [hit["class"] for hit in blue["hits"]] == ["blue"] * 3
    image = towers / "images" / "green" / "clear.png"
    (both,) = json_of(capsys, "search", image, "--text", "blue", "--together", *rest)[
        "results"
    ]
    assert both["queries"] == [str(image), "blue"]
    assert {hit["class"] for hit in both["hits"]} == {"blue", "green"}


def test_embeddings_are_those_of_the_tower_over_every_way(towers):
    texts = ["a photo of red", "", "Grün, 青"]
    tower = load_text_tower(towers / "run" / "text.keras")
    expected = np.asarray(tower(np.array(texts, object)))
    saved = SavedEmbedder(towers / "words" / "1")
    assert saved.has_text
    np.testing.assert_allclose(saved.embed_texts(texts), expected, atol=1e-6)
    with serve_model(towers / "words") as url, EndpointClient(url) as client:
        np.testing.assert_allclose(client.embed_texts(texts), expected, atol=1e-6)
        assert client.embed_texts([]).shape == (0, 8)
        with pytest.raises(ValueError, match="`texts` must be a list of texts"):
            client.embed_texts("red")
    model = load_servable("words", towers / "words")
    with running_grpc([model]) as served:
        url = f"grpc://{served.server.address}/words"
        with EndpointClient(url) as client:
            np.testing.assert_allclose(client.embed_texts(texts), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"text": ""}, "`text` must have 1 to 1,000 characters. Received: 0."),
        ({"text": " \n"}, "`text` must have 1 to 1,000 characters"),
        ({"text": "x" * 1001}, "Received: 1,001."),
        ({"text": 1}, "`text` must be a string"),
        ({"text": "red", "crop": [0, 0, 1, 1]}, "`crop` must not be given with"),
        ({"queries": [{"text": ""}]}, "`queries[0].text` must have 1 to 1,000"),
    ],
)
def test_a_bad_text_is_refused(page, body, reason):
    assert reason in error_of(page.post("/api/search", json=body), 400)


def test_a_model_without_a_text_tower_says_so(colors, colors_url):
    with (
        open_search(colors / "index", colors_url) as search,
        page_of(search) as client,
    ):
        text = error_of(client.post("/api/search", json={"text": "red"}), 400)
        assert "`text` needs a model with a text tower" in text
    with (
        EndpointClient(colors_url) as client,
        pytest.raises(ValueError, match="by a model with a text tower"),
    ):
        client.embed_texts(["red"])
