import base64
import io
import json
import re
import shutil
import socket
import threading

import numpy as np
import pytest
from PIL import Image
from starlette.exceptions import HTTPException

from serving.client import EndpointClient, EndpointError
from serving.search.app.analysis import GalleryAnalysis
from serving.search.app.app import create_app, run
from serving.search.app.requests import RequestReader
from serving.search.app.service import SearchService
from serving.search.gallery.gallery import (
    Gallery,
    class_attributes,
    load_gallery,
    save_gallery,
)
from serving.search.gallery.image_search import ImageSearch
from serving.search.gallery.indexing import index_images
from serving.search.gallery.opening import open_search
from serving.web.sockets import PortInUseError
from tests.support.running_server import running
from tests.support.search_fixtures import (
    DIMENSION,
    MAX_UPLOAD_BYTES,
    PURE,
    SHADES,
    encoded,
    endpoint_of,
    error_of,
    page_of,
    post,
    serve_model,
    write_color_model,
    write_gallery_images,
    write_image,
)
from tfdml.index import LocalIndex


def ids_of(response):
    assert response.status_code == 200, response.text
    return [hit["id"] for hit in response.json()["hits"]]


# Searching


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"])
def test_an_uploaded_image_finds_the_class_of_its_color(page, kind):
    response = post(page, encoded((20, 10, 240), kind), k="3")
    assert response.status_code == 200
    hits = response.json()["hits"]
    assert [hit["class"] for hit in hits] == ["blue"] * 3
    scores = [hit["similarity"] for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert response.json()["query"] is None
    assert response.json()["index"] == "index"


def test_an_image_of_the_gallery_finds_itself_first(page, colors):
    content = (colors / "images" / "green" / "pale.png").read_bytes()
    hit = post(page, content, k="1").json()["hits"][0]
    assert hit["id"] == "green/pale.png"
    assert hit["similarity"] == pytest.approx(1, abs=1e-5)
    assert page.get(f"/{hit['url']}").status_code == 200


def test_an_image_of_the_gallery_is_not_among_its_own_hits(page):
    items = page.get("/api/images").json()["images"]
    for item in items:
        reply = page.get("/api/similar", params={"id": item["id"], "k": 2}).json()
        assert reply["query"] == item
        assert [hit["class"] for hit in reply["hits"]] == [item["class"]] * 2
        assert item["id"] not in [hit["id"] for hit in reply["hits"]]


def test_all_of_a_small_gallery_comes_without_a_stated_k(page):
    assert len(ids_of(post(page, encoded((9, 200, 9))))) == 9
    assert len(ids_of(page.get("/api/similar", params={"id": "red/pale.png"}))) == 8


def test_json_searches_as_a_form_does(page, colors):
    content = (colors / "images" / "green" / "pale.png").read_bytes()
    image = {"b64": base64.b64encode(content).decode()}
    reply = page.post("/api/search", json={"image": image, "k": 4})
    assert ids_of(reply) == ids_of(post(page, content, k=4))
    reply = page.post("/api/search", json={"id": "green/pale.png", "k": 4})
    similar = page.get("/api/similar", params={"id": "green/pale.png", "k": 4})
    assert ids_of(reply) == ids_of(similar)
    assert reply.json()["query"]["id"] == "green/pale.png"


def test_an_embedding_finds_the_items_of_its_direction(page):
    blue = np.tile([0.0, 0.0, 3.0], 4).tolist()  # any length
    reply = page.post("/api/search", json={"embedding": blue, "k": 3})
    assert ids_of(reply) == ["blue/clear.png", "blue/pale.png", "blue/paler.png"]
    assert reply.json()["hits"][0]["similarity"] == pytest.approx(1, abs=1e-6)


def test_a_filter_and_excluded_ids_leave_out_what_they_say(page):
    body = {"id": "red/clear.png", "where": {"class": ["blue", "green"]}}
    found = ids_of(page.post("/api/search", json=body))
    assert len(found) == 6
    assert {id_.split("/")[0] for id_ in found} == {"blue", "green"}
    body["where"] = {"class": {"not": "red"}}
    assert ids_of(page.post("/api/search", json=body)) == found
    body["exclude"] = found[:2]
    assert ids_of(page.post("/api/search", json=body)) == found[2:]
    form = {"where": '{"class": "green"}', "exclude": '["green/clear.png", "x"]'}
    assert set(ids_of(post(page, encoded((9, 9, 9)), **form))) == {
        "green/pale.png",
        "green/paler.png",
    }
    options = {"id": "red/clear.png", "where": '{"class": "red"}'}
    assert len(ids_of(page.get("/api/similar", params=options))) == 2


@pytest.mark.parametrize(
    ("crop", "expected"),
    [("0,0,0.5,1", "red"), ("0.5,0,0.5,1", "blue"), ("0.9,0.9,0.01,0.01", "blue")],
)
def test_a_crop_searches_with_a_part_of_the_image(page, crop, expected):
    image = Image.new("RGB", (40, 20), (255, 0, 0))
    image.paste((0, 0, 255), (20, 0, 40, 20))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    (hit,) = ids_of(post(page, buffer.getvalue(), k=1, crop=crop))
    assert hit == f"{expected}/clear.png"
    numbers = [float(number) for number in crop.split(",")]
    image = {"b64": base64.b64encode(buffer.getvalue()).decode()}
    body = {"image": image, "k": 1, "crop": numbers}
    assert ids_of(page.post("/api/search", json=body)) == [hit]


def test_a_crop_is_taken_of_the_upright_image(page):
    image = Image.new("RGB", (40, 20), (255, 0, 0))
    image.paste((0, 0, 255), (20, 0, 40, 20))  # the right half
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned right: the right half becomes the lower one
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", exif=exif)
    (hit,) = ids_of(post(page, buffer.getvalue(), k=1, crop="0,0.5,1,0.5"))
    assert hit == "blue/clear.png"


def test_a_crop_of_an_image_of_the_gallery_is_embedded(page):
    body = {"id": "red/clear.png", "crop": "0.1,0.1,0.5,0.5", "k": 2}
    found = ids_of(page.post("/api/search", json=body))
    assert found == ["red/pale.png", "red/paler.png"]


def test_json_with_a_large_image_is_taken_and_other_json_of_its_size_is_not(
    colors, colors_url
):
    noise = np.random.default_rng(0).integers(0, 256, (600, 600, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, format="BMP")
    text = base64.b64encode(buffer.getvalue()).decode()
    assert len(text) > 1_000_000
    with (
        open_search(colors / "index", colors_url) as search,
        page_of(search) as client,
    ):
        reply = client.post("/api/search", json={"image": {"b64": text}, "k": 9})
        form = post(client, buffer.getvalue(), k=9)
        assert reply.json()["hits"] == form.json()["hits"]
        wrong = {"image": {"b64": f"{text[:-8]}?AAA"}}
        assert "base64" in error_of(client.post("/api/search", json=wrong), 400)
        for body in (
            {"id": text},
            {"id": "red/pale.png", "where": {"b64": text}},
            {"image": {"b64": "AAAA"}, "where": {"b64": text}},
            {"image": {"b64": text}, "exclude": [text]},
        ):
            reason = error_of(client.post("/api/search", json=body), 413)
            assert reason.startswith("The body may have at most 1 MB of JSON")


# The gallery


def test_info_tells_gallery_model_and_limits(page, colors):
    index, _ = load_gallery(colors / "index")
    assert page.get("/api/info").json() == {
        "indexes": [
            {
                "name": "index",
                "images": 9,
                "classes": 3,
                "model": {
                    "name": "colors",
                    "version": 1,
                    "fingerprint": index.model_fingerprint,
                },
                "method": "exact",
                "engine": "exact",
                "recall": index.stats().details.get("recall"),
                "dimension": DIMENSION,
                "embedding_dimension": DIMENSION,
                "metric": "cosine",
                "has_text": False,
            }
        ],
        "max_k": 100,
        "max_examples": 16,
        "max_upload_bytes": MAX_UPLOAD_BYTES,
        "can_edit": False,
        "can_fetch": False,
        "can_rate": False,
    }


def test_stats_tell_what_the_index_holds_and_not_where_it_is(page, colors):
    stats = page.get("/api/stats")
    assert str(colors) not in stats.text
    found = stats.json()
    assert (found["kind"], found["count"]) == ("LocalIndex", 9)
    assert found["attributes"] == {"class": "string"}
    assert found["values"] == {"class": {"blue": 3, "green": 3, "red": 3}}


def test_the_gallery_is_listed_page_by_page(page):
    ids = []
    for offset in (0, 4, 8):
        reply = page.get("/api/images", params={"offset": offset, "limit": 4}).json()
        assert reply["total"] == 9
        ids += [image["id"] for image in reply["images"]]
    assert ids == sorted(
        f"{c}/{s}.png" for c in PURE for s in ("clear", "pale", "paler")
    )
    assert page.get("/api/images", params={"offset": 9}).json()["images"] == []


@pytest.mark.parametrize("path", ["/api/images", "/api/images/sample"])
def test_a_list_can_be_of_the_images_that_a_filter_lets_pass(page, path):
    where = json.dumps({"class": ["red", "blue"]})
    reply = page.get(path, params={"where": where, "limit": 100}).json()
    names = {f"{name}/{shade}.png" for name in ("red", "blue") for shade in SHADES}
    assert reply["total"] == 6
    assert {image["id"] for image in reply["images"]} == names
    wrong = page.get(path, params={"where": '{"price": 1}'})
    assert "`where` must name attributes" in error_of(wrong, 400)


def test_a_sample_follows_its_seed_and_names_no_image_twice(page):
    def sample(seed):
        reply = page.get("/api/images/sample", params={"seed": seed, "limit": 5}).json()
        return [image["id"] for image in reply["images"]]

    assert sample(1) == sample(1)
    assert len({tuple(sample(seed)) for seed in range(5)}) > 1
    assert len(set(sample(2))) == 5
    reply = page.get("/api/images/sample", params={"limit": 100}).json()
    assert len({image["id"] for image in reply["images"]}) == 9


def test_an_image_comes_in_two_sizes_and_may_be_kept_for_ever(page, colors, tmp_path):
    write_image(tmp_path / "wide" / "wide" / "one &#.png", (200, 0, 0), (3000, 1500))
    index_images(tmp_path / "wide", tmp_path / "i", colors / "models" / "colors")
    index, gallery = load_gallery(tmp_path / "i")
    unused = EndpointClient("http://127.0.0.1:1/v1/models/m")
    with ImageSearch(index, gallery, unused) as search, page_of(search) as client:
        item = client.get("/api/images").json()["images"][0]
        for url, size in (
            (f"/{item['url']}", (320, 160)),
            (f"/{item['url']}".replace("/images", "/pictures"), (1024, 512)),
        ):
            response = client.get(url)
            image = Image.open(io.BytesIO(response.content))
            assert (image.format, image.size) == ("JPEG", size)
            assert response.headers["content-type"] == "image/jpeg"
            assert "immutable" in response.headers["cache-control"]
        alone = client.get("/api/similar", params={"id": item["id"]})
    assert ids_of(alone) == []


def test_a_thumbnail_that_the_browser_has_is_not_sent_again(page):
    first = page.get("/images", params={"id": "red/pale.png"})
    assert first.headers["cache-control"] == "no-cache"
    seen = {"If-None-Match": first.headers["etag"]}
    again = page.get("/images", params={"id": "red/pale.png"}, headers=seen)
    assert again.status_code == 304
    assert again.content == b""


@pytest.mark.parametrize(
    "id_",
    ["9", "red", "../index/manifest.json", "/etc/passwd", "red/./pale.png", "x\0"],
)
@pytest.mark.parametrize("path", ["/images", "/pictures", "/api/similar"])
def test_an_id_that_is_not_in_the_gallery_is_refused(page, path, id_):
    text = error_of(page.get(path, params={"id": id_}), 404)
    assert "There is no image" in text
    assert "with the parameter `id`" in error_of(page.get(path), 400)


def test_an_id_that_leads_out_of_the_folder_has_no_file(colors, tmp_path):
    """Of an index that somebody else made."""
    (tmp_path / "images").mkdir()
    write_image(tmp_path / "secret.png", (1, 2, 3))
    ids = ["../secret.png", str(tmp_path / "secret.png"), "a//b"]
    rows = np.eye(3, DIMENSION, dtype=np.float32)
    index = LocalIndex.build(rows, ids, {"picture": [None, None, "../secret.png"]})
    save_gallery(tmp_path / "index", index, Gallery(tmp_path / "images", "m", 1))
    index, gallery = load_gallery(tmp_path / "index")
    unused = EndpointClient("http://127.0.0.1:1/v1/models/m")
    with ImageSearch(index, gallery, unused) as search, page_of(search) as client:
        for id_ in ids:
            text = error_of(client.get("/images", params={"id": id_}), 404)
            assert "is gone" in text


@pytest.mark.parametrize(
    "path",
    [
        "/images/../index/manifest.json",
        "/images/..%2f..%2fetc%2fpasswd",
        "/static/",
        "/openapi.yaml",
        "/x",
    ],
)
def test_no_path_of_a_request_reaches_the_files(page, path):
    assert page.get(path).status_code == 404
    assert set(page.get(path).json()) == {"error"}


def test_an_image_that_is_gone_or_broken_is_named(colors, colors_url, tmp_path):
    images = write_gallery_images(tmp_path / "images")
    with (
        open_search(colors / "index", colors_url, images=images) as search,
        page_of(search) as client,
    ):
        (images / "blue" / "pale.png").unlink()
        (images / "green" / "pale.png").write_text("no image")
        crop = {"crop": "0,0,1,1"}
        for id_, what in (("blue/pale.png", "gone"), ("green/pale.png", "broken")):
            for response in (
                client.get("/images", params={"id": id_}),
                client.post("/api/search", json={"id": id_, **crop}),
            ):
                text = error_of(response, 404)
                assert f"The file of '{id_}' is {what}" in text
                assert str(tmp_path) not in text
            # Its embedding is in the index all the same.
            assert len(ids_of(client.get("/api/similar", params={"id": id_}))) == 8


def test_an_empty_gallery_is_shown_and_searched(colors, colors_url, tmp_path):
    index = LocalIndex.build(
        np.empty((0, DIMENSION), np.float32), [], class_attributes([])
    )
    save_gallery(tmp_path / "index", index, Gallery(tmp_path, "colors", 1))
    with (
        open_search(tmp_path / "index", colors_url) as search,
        page_of(search) as client,
    ):
        assert client.get("/api/info").json()["indexes"][0]["images"] == 0
        assert client.get("/api/images").json() == {"total": 0, "images": []}
        assert client.get("/api/images/sample").json()["images"] == []
        assert ids_of(post(client, encoded((1, 2, 3)))) == []
        assert client.get("/api/duplicates").json()["groups"] == []


# Two galleries


def test_two_indexes_are_searched_by_their_names(colors, colors_url, tmp_path):
    write_image(tmp_path / "more" / "gray" / "a.png", (90, 90, 90))
    write_image(tmp_path / "more" / "red" / "clear.png", (255, 0, 0))
    index_images(tmp_path / "more", tmp_path / "second", colors / "models" / "colors")
    with (
        open_search(colors / "index", colors_url) as search,
        open_search(tmp_path / "second", colors_url) as other,
        page_of(search, compare=other) as client,
    ):
        names = [each["name"] for each in client.get("/api/info").json()["indexes"]]
        assert names == ["index", "second"]
        reply = post(client, encoded((90, 90, 90)), k=1, index="second")
        assert ids_of(reply) == ["gray/a.png"]
        hit = reply.json()["hits"][0]
        assert reply.json()["index"] == "second"
        assert client.get(f"/{hit['url']}").status_code == 200
        listed = client.get("/api/images", params={"index": "second"}).json()
        assert listed["total"] == 2
        # An image of one gallery is looked for in the other, which has it not.
        reply = client.post("/api/search", json={"id": "gray/a.png", "k": 3})
        assert len(ids_of(reply)) == 3
        assert client.get(f"/{reply.json()['query']['url']}").status_code == 200
        text = error_of(client.get("/api/stats", params={"index": "third"}), 404)
        assert "no index 'third', only 'index', 'second'" in text


def test_an_image_of_any_format_of_one_gallery_is_compared_with_the_other(
    colors, colors_url, tmp_path
):
    write_image(tmp_path / "more" / "blue" / "a.ppm", (0, 0, 255))
    index_images(tmp_path / "more", tmp_path / "second", colors / "models" / "colors")
    with (
        open_search(colors / "index", colors_url) as search,
        open_search(tmp_path / "second", colors_url) as other,
        page_of(search, compare=other) as client,
    ):
        for options in ({}, {"crop": "0,0,0.5,0.5"}):
            body = {"id": "blue/a.ppm", "k": 1} | options
            reply = client.post("/api/search", json=body)
            assert ids_of(reply) == ["blue/clear.png"]
            assert reply.json()["query"]["id"] == "blue/a.ppm"
        # Strangers may not send one.
        assert error_of(post(client, b"P6 1 1 255\n\0\0\0"), 400)


def test_two_searches_of_one_name_are_refused(colors, colors_url):
    with (
        open_search(colors / "index", colors_url) as search,
        open_search(colors / "index", colors_url) as other,
        pytest.raises(ValueError, match="must have different names"),
    ):
        create_app(search, compare=other)


# All of the gallery


def test_near_duplicates_come_in_groups(page):
    reply = page.get("/api/duplicates", params={"threshold": 0.94}).json()
    # 255 / sqrt(255^2 + 2 60^2) = 0.949 of a clear and a pale image; the pale and
    # the paler one are as near: 0.957.
    groups = [[image["id"] for image in group["images"]] for group in reply["groups"]]
    assert sorted(sorted(group) for group in groups) == [
        sorted(f"{name}/{shade}.png" for shade in ("clear", "pale", "paler"))
        for name in sorted(PURE)
    ]
    assert (reply["images"], reply["pairs"], reply["threshold"]) == (9, 6, 0.94)
    assert page.get("/api/duplicates", params={"threshold": 1}).json()["groups"] == []
    one = page.get("/api/duplicates", params={"threshold": 0.94, "limit": 1}).json()
    assert len(one["groups"]) == 1


def test_a_comparison_keeps_groups_and_counts_and_ends_when_the_service_does(
    colors, colors_url
):
    with open_search(colors / "index", colors_url) as search:
        analysis = GalleryAnalysis(
            SearchService({search.name: search}, RequestReader(1))
        )
        found = analysis._duplicates(search, 0.94)
        assert (found.pairs, len(found.groups), found.compared) == (6, 3, 9)
        assert analysis._duplicates(search, 0.94) is found
        kept = [*found.groups, found.least_scores]
        assert sum(map(len, kept)) == 9 + 3
        analysis.close()
        with pytest.raises(HTTPException, match="The service is stopping"):
            analysis._duplicates(search, 0.95)


@pytest.mark.slow
def test_the_map_is_computed_once_and_shows_each_image(colors, colors_url, tmp_path):
    index = shutil.copytree(colors / "index", tmp_path / "index")  # a map is kept in it
    with open_search(index, colors_url) as search, page_of(search) as page:
        first = page.get("/api/map")
        assert first.status_code == 202
        assert first.json() == {"state": "computing"}
        for thread in threading.enumerate():
            if thread.name == "gallery map":
                thread.join(120)
        found = page.get("/api/map").json()
        fewer = page.get("/api/map", params={"limit": 4}).json()["points"]
    assert (found["method"], found["of"], found["current"]) == ("t-SNE", 9, True)
    assert len({point["id"] for point in found["points"]}) == 9
    assert all(
        0 <= point["x"] <= 1 and 0 <= point["y"] <= 1 for point in found["points"]
    )
    assert fewer == found["points"][:4]


# What does not answer


def test_addresses_are_not_fetched_unless_the_service_was_started_so(page):
    text = error_of(page.post("/api/search", json={"url": "http://a.test/x"}), 403)
    assert "`--allow-url`" in text


def test_an_endpoint_that_went_down_is_reported_and_where_it_was_is_logged(
    colors, caplog
):
    with serve_model(colors / "models" / "colors") as url:
        search = open_search(colors / "index", url)
    with search, page_of(search) as client:
        text = error_of(post(client, encoded((1, 2, 3))), 503)
        assert text.startswith("The endpoint of the model cannot be reached.")
        assert "not about your image" in text
        assert "127.0.0.1" not in text
        assert client.get("/healthz").json() == {"status": "ok"}
        assert error_of(client.get("/readyz"), 503) == text
        assert f"{url}/versions/1 cannot be reached" in caplog.text
        # What needs no embedding goes on.
        assert client.get("/api/similar", params={"id": "red/pale.png"}).is_success


def test_an_endpoint_that_is_busy_is_reported_from_one_that_is_down(colors):
    busy = threading.Event()
    app = endpoint_of(colors / "models" / "colors")

    async def endpoint(scope, receive, send):
        if not busy.is_set():
            await app(scope, receive, send)
            return
        start = {"type": "http.response.start", "status": 503, "headers": []}
        await send(start)
        await send({"type": "http.response.body", "body": b'{"error": "full"}'})

    with (
        running(endpoint) as address,
        open_search(colors / "index", f"{address}/v1/models/colors") as search,
        page_of(search) as client,
    ):
        busy.set()
        response = post(client, encoded((1, 2, 3)))
        assert "The model cannot answer now" in error_of(response, 503)
        assert response.headers["retry-after"] == "1"


def test_an_endpoint_that_went_over_to_another_version_is_reported(
    colors, tmp_path, caplog, monkeypatch
):
    write_color_model(tmp_path / "colors" / "2")
    versions = [endpoint_of(colors / "models" / "colors")]

    async def latest(scope, receive, send):
        await versions[-1](scope, receive, send)

    with (
        running(latest) as address,
        open_search(colors / "index", f"{address}/v1/models/colors") as search,
        page_of(search) as client,
    ):
        assert post(client, encoded((1, 2, 3))).status_code == 200
        assert client.get("/readyz").json() == {"status": "ok"}
        monkeypatch.setattr("serving.search.app.health._FRESH_SECONDS", 0.0)
        versions.append(endpoint_of(tmp_path / "colors"))
        text = error_of(post(client, encoded((1, 2, 3))), 503)
        assert error_of(client.get("/readyz"), 503) == text
    assert text.startswith("The endpoint does not serve the version of the model")
    assert "Servable not found for request: Specific(colors, 1)" in caplog.text


# At the start


def test_the_page_does_not_start_without_its_endpoint_or_port(colors, colors_url):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        nowhere = f"http://127.0.0.1:{port}/v1/models/colors"
        with pytest.raises(EndpointError, match="cannot be reached"):
            run(colors / "index", nowhere, port=0)
        taken.listen()
        with pytest.raises(PortInUseError, match=f"Port {port}"):
            run(colors / "index", colors_url, port=port)


def test_an_upload_limit_below_one_is_refused(colors, colors_url):
    with open_search(colors / "index", colors_url) as search:
        with pytest.raises(ValueError, match="`max_upload_bytes` must be at least 1"):
            create_app(search, max_upload_bytes=0)
        with pytest.raises(ValueError, match="`timeout_seconds` must be above 0"):
            create_app(search, timeout_seconds=0)


# The page itself


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/start.js", "text/javascript; charset=utf-8"),
        ("/favicon.svg", "image/svg+xml"),
    ],
)
def test_the_page_and_its_parts_are_served_with_security_headers(
    page, path, media_type
):
    response = page.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == media_type
    elsewhere = r'(src|href|action)="(\w+:)?//|(url\(|from |import )"?\w*:?//[a-z]'
    assert not re.search(elsewhere, response.text)


@pytest.mark.parametrize(
    "path", ["/", "/api/info", "/images?id=red/pale.png", "/images?id=x", "/missing"]
)
def test_every_response_forbids_other_hosts(page, path):
    headers = page.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'self'; img-src 'self' blob:;")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_classes_are_those_of_the_folders(page):
    items = page.get("/api/images").json()["images"]
    assert {item["class"] for item in items} == set(PURE)
    assert all(item["id"].startswith(item["class"] + "/") for item in items)
