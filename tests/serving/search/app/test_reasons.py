"""Which parts of two images make them alike, against the definition of the model."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.support.search_fixtures import encoded, error_of, quarter_colors


def why(page, query, hit, **fields):
    if isinstance(query, bytes):
        files = {"image": ("query", query)}
        response = page.post("/api/why", files=files, data={"hit": hit, **fields})
    else:
        # Form fields without a file are sent as multipart, too.
        files = {"id": (None, query), "hit": (None, hit)}
        files |= {name: (None, value) for name, value in fields.items()}
        response = page.post("/api/why", files=files)
    return response


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def test_covering_an_image_of_one_color_changes_nothing(page):
    reply = why(page, "red/clear.png", "red/pale.png").json()
    red, pale = np.array([255, 0, 0.0]), np.array([255, 60, 60.0])
    cosine = red @ pale / np.linalg.norm(red) / np.linalg.norm(pale)
    assert reply["similarity"] == pytest.approx(cosine, abs=1e-4)
    for side in ("query", "hit"):
        assert np.shape(reply[side]) == (7, 7)
        np.testing.assert_allclose(reply[side], 0, atol=1e-4)


def test_the_part_that_is_like_the_hit_counts(page):
    # A red square in a corner of a blue image: the hit is red.
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[..., 2] = 255
    pixels[1:6, 1:6] = (255, 0, 0)
    reply = why(page, png(pixels), "red/clear.png").json()
    falls = np.array(reply["query"])
    assert falls.argmax() in {7 * row + column for row in (0, 1) for column in (0, 1)}
    assert falls[4:, 4:].max() < falls.max() / 3
    red = np.zeros((16, 16, 3), np.uint8)
    red[..., 0] = 255
    expected = quarter_colors(pixels) @ quarter_colors(red)
    assert reply["similarity"] == pytest.approx(expected, abs=1e-3)


def test_a_region_of_the_query_is_what_is_compared(page):
    halves = np.zeros((20, 40, 3), np.uint8)
    halves[:, :20, 0] = 255
    halves[:, 20:, 2] = 255
    reply = why(page, png(halves), "blue/clear.png", crop="0.5,0,0.5,1")
    assert reply.json()["similarity"] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"hit": "red/clear.png"}, 400, "Send the query as the file `image`, or its"),
        ({"id": "red/clear.png"}, 400, "with the field `hit`"),
        ({"id": "gone", "hit": "red/clear.png"}, 404, "no image 'gone'"),
        ({"id": "red/clear.png", "hit": "gone"}, 404, "no image 'gone'"),
        ({"id": "red/clear.png", "hit": "red/pale.png", "k": "1"}, 400, "fields"),
        ({"id": "red/clear.png", "hit": "red/pale.png", "crop": "1"}, 400, "`crop`"),
    ],
)
def test_what_cannot_be_compared_is_refused(page, fields, status, text):
    files = {name: (None, value) for name, value in fields.items()}
    assert text in error_of(page.post("/api/why", files=files), status)


def test_json_and_what_is_no_image_are_refused(page):
    error_of(page.post("/api/why", json={"id": "a", "hit": "b"}), 415)
    assert "not an image" in error_of(why(page, b"no image", "red/clear.png"), 400)
    both = {"image": ("query", encoded((1, 2, 3))), "id": (None, "a")}
    text = error_of(page.post("/api/why", files=both), 400)
    assert "not both" in text
