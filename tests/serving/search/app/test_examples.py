"""Searches with several images at once, and away from others, over HTTP."""

import base64
import json

import numpy as np
import pytest

from serving.search.gallery.opening import open_search
from tests.support.search_fixtures import (
    DIMENSION,
    MAX_UPLOAD_BYTES,
    PURE,
    SHADES,
    encoded,
    error_of,
    page_of,
    post,
)

COLORS = {
    f"{name}/{shade}.png": np.maximum(pure, white)
    for name, pure in PURE.items()
    for shade, white in SHADES.items()
}
YELLOW, PINK, CYAN = (250, 240, 0), (250, 40, 200), (0, 230, 240)


def unit(row):
    row = np.asarray(row, np.float64)
    return row / np.linalg.norm(row)


def by_definition(wanted, unwanted=(), weight=0.5, expand=0, without=()):
    """Ids and cosines by loops over one color at a time, in float64."""
    query = sum(unit(color) for color in wanted) / len(wanted)
    if len(unwanted):
        query = query - weight * sum(map(unit, unwanted)) / len(unwanted)
    query = unit(query)
    found = None
    for k in (expand, len(COLORS)) if expand else (len(COLORS),):
        if found is not None:
            query = query + sum(max(s, 0) ** 3 * unit(COLORS[id_]) for s, id_ in found)
            query = unit(query)
        scores = [(query @ unit(color), id_) for id_, color in COLORS.items()]
        found = sorted(scores, reverse=True)
        found = [(score, id_) for score, id_ in found if id_ not in without][:k]
    return [id_ for _, id_ in found], [score for score, _ in found]


def check(response, ids, scores):
    assert response.status_code == 200, response.text
    hits = response.json()["hits"]
    found = {hit["id"]: hit["similarity"] for hit in hits}
    assert found == pytest.approx(dict(zip(ids, scores, strict=True)), abs=1e-5)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    return response.json()


def image_of(color):
    return {"image": {"b64": base64.b64encode(encoded(color)).decode()}}


def form_of(**files):
    """Several files of one field, named by their places."""
    return [
        (field, (f"{field}-{place}.png", content))
        for field, contents in files.items()
        for place, content in enumerate(contents)
    ]


@pytest.mark.parametrize("expand", [0, 2])
@pytest.mark.parametrize("weight", [None, 0.25])
def test_images_are_combined_as_the_definition_says(page, weight, expand):
    wanted, unwanted = [YELLOW, PINK, (200, 10, 10)], [CYAN, (10, 200, 20)]
    expected = by_definition(
        wanted, unwanted, 0.5 if weight is None else weight, expand
    )
    options = {} if weight is None else {"negative_weight": weight}
    options |= {"expand": expand} if expand else {}
    files = form_of(image=map(encoded, wanted), negative=map(encoded, unwanted))
    check(page.post("/api/search", files=files, data=options), *expected)
    lists = {
        "queries": list(map(image_of, wanted)),
        "negatives": list(map(image_of, unwanted)),
    }
    reply = check(page.post("/api/search", json=lists | options), *expected)
    assert reply["query"] is None
    assert reply["queries"] == [None] * 3
    assert reply["negatives"] == [None] * 2
    rows = [np.tile(color, 4).tolist() for color in (*wanted, *unwanted)]
    rows = [{"embedding": row} for row in rows]
    body = {"queries": rows[:3], "negatives": rows[3:]} | options
    check(page.post("/api/search", json=body), *expected)


def test_images_of_the_gallery_are_examples_and_no_hits(page):
    wanted, unwanted = ["red/clear.png", "green/pale.png"], ["blue/paler.png"]
    lists = {
        "queries": [{"id": id_} for id_ in wanted],
        "negatives": [{"id": id_} for id_ in unwanted],
    }
    expected = by_definition(
        [COLORS[id_] for id_ in wanted],
        [COLORS[id_] for id_ in unwanted],
        without=wanted + unwanted,
    )
    reply = check(page.post("/api/search", json=lists), *expected)
    assert [item["id"] for item in reply["queries"]] == wanted
    assert [item["id"] for item in reply["negatives"]] == unwanted
    # The same in a form, beside a file.
    form = {name: json.dumps(values) for name, values in lists.items()}
    files = form_of(image=[encoded(YELLOW)])
    expected = by_definition(
        [YELLOW, *(COLORS[id_] for id_ in wanted)],
        [COLORS[id_] for id_ in unwanted],
        without=wanted + unwanted,
    )
    check(page.post("/api/search", files=files, data=form), *expected)


def test_one_query_with_negatives_may_have_a_region(page):
    body = {"id": "red/clear.png", "negatives": [{"id": "green/clear.png"}]}
    without = ["red/clear.png", "green/clear.png"]
    expected = by_definition([PURE["red"]], [PURE["green"]], without=without)
    reply = check(page.post("/api/search", json=body), *expected)
    assert reply["query"]["id"] == "red/clear.png"
    reply = page.post("/api/search", json=body | {"crop": [0.1, 0.1, 0.5, 0.5]})
    check(reply, *expected)
    reply = page.post(
        "/api/search",
        files=form_of(image=[encoded(PURE["red"])], negative=[encoded(PURE["green"])]),
        data={"crop": "0.1,0.1,0.5,0.5"},
    )
    check(reply, *by_definition([PURE["red"]], [PURE["green"]]))


def test_a_query_alone_can_be_expanded(page):
    expected = by_definition([YELLOW], expand=3)
    check(post(page, encoded(YELLOW), expand=3), *expected)
    found = by_definition([PURE["red"]], expand=2, without=["red/clear.png"])
    parameters = {"id": "red/clear.png", "expand": 2}
    check(page.get("/api/similar", params=parameters), *found)
    check(page.post("/api/search", json=parameters), *found)


def test_only_a_plain_query_has_a_match(calibrated, colors_url):
    with open_search(calibrated, colors_url) as search, page_of(search) as client:
        red = {"id": "red/clear.png"}
        plain = client.post("/api/search", json=red).json()
        assert (plain["match"], plain["threshold"]) == (True, 0.9)
        for more in (
            {"expand": 1},
            {"negatives": [{"id": "blue/clear.png"}]},
        ):
            reply = client.post("/api/search", json=red | more).json()
            assert not {"match", "threshold"} & reply.keys()
            assert not any("match" in hit for hit in reply["hits"])


def test_several_large_images_fit_in_one_search(page):
    noise = np.random.default_rng(0).bytes(MAX_UPLOAD_BYTES // 2)
    images = [encoded(color, "BMP") + noise for color in (YELLOW, PINK, CYAN)]
    expected = by_definition([YELLOW, PINK, CYAN])
    check(page.post("/api/search", files=form_of(image=images)), *expected)
    lists = [{"image": {"b64": base64.b64encode(each).decode()}} for each in images]
    check(page.post("/api/search", json={"queries": lists}), *expected)


MANY = [{"id": "red/pale.png"}] * 17
ONE = {"id": "red/pale.png"}
B64 = base64.b64encode(b"no image").decode()


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"queries": []}, 400, "at least one of `queries`"),
        ({"queries": [], "negatives": [ONE]}, 400, "at least one of `queries`"),
        ({"negatives": [ONE]}, 400, "must have `queries`, or one of `image`"),
        ({"queries": MANY}, 400, "`queries` must have at most 16"),
        ({"id": "a", "negatives": MANY}, 400, "`negatives` must have at most 16"),
        ({"queries": ONE}, 400, "`queries` must be a list of objects"),
        ({"queries": "red"}, 400, "`queries` must be JSON"),
        ({"queries": [ONE, "red"]}, 400, "`queries[1]` must be an object with one of"),
        ({"queries": [ONE, {}]}, 400, "`queries[1]` must be an object with one of"),
        ({"queries": [ONE], "id": "a"}, 400, "Received: id, queries."),
        ({"queries": [{"id": 1}]}, 400, "`queries[0].id` must be a string"),
        ({"queries": [{"image": B64}]}, 400, "`queries[0].image` must be"),
        ({"queries": [{"image": {"b64": "?"}}]}, 400, "in `queries[0].image` must be"),
        (
            {"queries": [ONE, {"image": {"b64": ""}}]},
            400,
            "`queries[1]`: This file is e",
        ),
        (
            {"queries": [ONE], "negatives": [{"image": {"b64": B64}}]},
            400,
            "`negatives[0]`: This is not an image that can be searched with",
        ),
        ({"queries": [ONE, {"id": "x"}]}, 404, "no image 'x' in the gallery"),
        ({"queries": [{"url": "http://a.test"}]}, 403, "http://a.test: This service f"),
        (
            {"queries": [{"embedding": [1, 2]}]},
            400,
            f"`queries[0].embedding` must have {DIMENSION} numbers. Received: 2.",
        ),
        ({"queries": [ONE, ONE], "crop": [0, 0, 1, 1]}, 400, "with one image alone"),
        (
            {
                "queries": [{"embedding": [1.0] * DIMENSION}],
                "negatives": [ONE],
                "crop": [0, 0, 1, 1],
            },
            400,
            "`crop` must be given with one image alone",
        ),
        (
            {"queries": [{"embedding": [s] * DIMENSION} for s in (1.0, -1.0)]},
            400,
            "`positives` and `negatives` must not cancel each other",
        ),
        (ONE | {"negative_weight": 1}, 400, "at least 0 and below 1. Received: n"),
        (ONE | {"negative_weight": True}, 400, "at least 0 and below 1"),
        (ONE | {"negative_weight": "much"}, 400, "at least 0 and below 1"),
        (ONE | {"expand": -1}, 400, "`expand` must be a whole number from 0 to 100"),
        (ONE | {"expand": 101}, 400, "`expand` must be a whole number from 0 to 100"),
    ],
)
def test_wrong_examples_are_refused_with_the_reason(page, body, status, reason):
    text = error_of(page.post("/api/search", json=body), status)
    assert reason in text
    assert len(text) <= 500


def test_a_file_that_cannot_be_read_is_named(page):
    def sent(*contents, field="image"):
        files = form_of(image=[encoded(YELLOW)])
        files += [(field, (f"{p}.png", each)) for p, each in enumerate(contents)]
        return page.post("/api/search", files=files)

    good = encoded(PINK)
    text = error_of(sent(good, b"hello"), 400)
    assert text.startswith("1.png: This is not an image that can be searched with.")
    assert error_of(sent(b"", field="negative"), 400) == "0.png: This file is empty."
    large = bytes(MAX_UPLOAD_BYTES + 1)
    assert error_of(sent(good, large), 413).startswith("1.png: This file is too large.")
    assert error_of(sent(good[:60]), 400).startswith("0.png: This file cannot be read")
    assert "at most 16" in error_of(sent(*[good] * 16), 400)
    assert error_of(sent(*[good] * 40), 400)
    alone = page.post("/api/search", files=form_of(negative=[good]))
    assert "the form field `image`" in error_of(alone, 400)
