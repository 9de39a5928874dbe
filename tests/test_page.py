import asyncio
import contextlib
import io
import socket
import struct
import zlib

import httpx
import pytest
from PIL import Image
from starlette.exceptions import HTTPException
from starlette.requests import Request

from serving.client import EndpointClient, EndpointError
from serving.search.gallery import load_gallery
from serving.search.image_search import ImageSearch, open_search
from serving.search.indexing import index_images
from serving.search.page import create_app, run
from serving.search.web import read_body
from serving.sockets import PortInUseError
from tests.running_server import running
from tests.search_fixtures import (
    DIMENSION,
    PURE,
    build_search,
    endpoint_of,
    serve_model,
    write_color_model,
    write_gallery_images,
    write_picture,
)

MAX_UPLOAD_BYTES = 200_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_search(tmp_path_factory.mktemp("search"))


@pytest.fixture(scope="module")
def endpoint_url(folder):
    with serve_model(folder / "models" / "colors") as url:
        yield url


@contextlib.contextmanager
def page_of(search, **options):
    """Serve the page of a search; gives a client of it."""
    with (
        running(create_app(search, **options)) as address,
        httpx.Client(base_url=address) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def page(folder, endpoint_url):
    with (
        open_search(folder / "index", endpoint_url) as search,
        page_of(search, max_upload_bytes=MAX_UPLOAD_BYTES) as client,
    ):
        yield client


def encoded(color, kind="PNG", size=(30, 40)):
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, format=kind)
    return buffer.getvalue()


def post(page, content, **fields):
    return page.post("/api/search", files={"image": ("query", content)}, data=fields)


def error_of(response, status):
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    return response.json()["error"]


# Searching


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"])
def test_an_uploaded_picture_finds_the_class_of_its_color(page, kind):
    response = post(page, encoded((20, 10, 240), kind), k="3")
    assert response.status_code == 200
    hits = response.json()["hits"]
    assert [hit["class"] for hit in hits] == ["blue"] * 3
    scores = [hit["similarity"] for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert response.json()["query"] is None


def test_a_picture_of_the_gallery_finds_itself_first(page, folder):
    content = (folder / "images" / "green" / "pale.png").read_bytes()
    hit = post(page, content, k="1").json()["hits"][0]
    assert hit["id"] == "green/pale.png"
    assert hit["similarity"] == pytest.approx(1, abs=1e-5)
    assert page.get(f"/{hit['url']}").status_code == 200


def test_a_picture_of_the_gallery_is_not_among_its_own_hits(page):
    items = page.get("/api/images").json()["images"]
    for item in items:
        reply = page.get(f"/api/similar/{item['row']}", params={"k": 2}).json()
        assert reply["query"] == item
        assert [hit["class"] for hit in reply["hits"]] == [item["class"]] * 2
        assert item["row"] not in [hit["row"] for hit in reply["hits"]]


def test_all_of_a_small_gallery_comes_without_a_stated_k(page):
    assert len(post(page, encoded((9, 200, 9))).json()["hits"]) == 9
    assert len(page.get("/api/similar/0").json()["hits"]) == 8


# The gallery


def test_info_tells_gallery_model_and_limits(page, folder):
    info = page.get("/api/info").json()
    _, gallery = load_gallery(folder / "index")
    assert info == {
        "images": 9,
        "classes": 3,
        "model": {
            "name": "colors",
            "version": 1,
            "fingerprint": gallery.model_fingerprint,
        },
        "index": "exact",
        "dimension": DIMENSION,
        "metric": "cosine",
        "max_k": 9,
        "max_upload_bytes": MAX_UPLOAD_BYTES,
    }


def test_the_gallery_is_listed_page_by_page(page):
    rows = []
    for offset in (0, 4, 8):
        reply = page.get("/api/images", params={"offset": offset, "limit": 4}).json()
        assert reply["total"] == 9
        rows += [image["row"] for image in reply["images"]]
    assert rows == list(range(9))
    assert page.get("/api/images", params={"offset": 9}).json()["images"] == []


def test_a_sample_follows_its_seed_and_names_no_picture_twice(page):
    def sample(seed):
        reply = page.get("/api/images/sample", params={"seed": seed, "limit": 5}).json()
        return [image["row"] for image in reply["images"]]

    assert sample(1) == sample(1)
    assert len({tuple(sample(seed)) for seed in range(5)}) > 1
    assert len(set(sample(2))) == 5
    reply = page.get("/api/images/sample", params={"limit": 100}).json()
    assert sorted(image["row"] for image in reply["images"]) == list(range(9))


@pytest.mark.parametrize("path", ["/api/images", "/api/images/sample"])
@pytest.mark.parametrize("limit", ["0", "101", "-1", "many", "9" * 5000])
def test_a_wrong_limit_is_refused(page, path, limit):
    text = error_of(page.get(path, params={"limit": limit}), 400)
    assert text.startswith("`limit` must be a whole number from 1 to 100")
    assert len(text) < 200


def test_a_thumbnail_is_small_and_may_be_kept_for_ever(page, folder, tmp_path):
    write_picture(folder / "wide" / "wide" / "one.png", (200, 0, 0), size=(1000, 500))
    index_images(folder / "wide", tmp_path, folder / "models" / "colors")
    index, gallery = load_gallery(tmp_path)
    unused = EndpointClient("http://127.0.0.1:1/v1/models/m")
    with ImageSearch(index, gallery, unused) as search, page_of(search) as client:
        url = client.get("/api/images").json()["images"][0]["url"]
        response = client.get(f"/{url}")
        alone = client.get("/api/similar/0")
    image = Image.open(io.BytesIO(response.content))
    assert (image.format, image.size) == ("WEBP", (320, 160))
    assert response.headers["content-type"] == "image/webp"
    assert "immutable" in response.headers["cache-control"]
    assert "no other image" in error_of(alone, 404)


def test_a_thumbnail_that_the_browser_has_is_not_sent_again(page):
    first = page.get("/images/0")
    assert first.headers["cache-control"] == "no-cache"
    again = page.get("/images/0", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""


@pytest.mark.parametrize("row", ["9", "-1", "x", "1.0", "٣", "9" * 5000])
@pytest.mark.parametrize("path", ["/images/{}", "/api/similar/{}"])
def test_a_row_out_of_range_is_refused(page, path, row):
    text = error_of(page.get(path.format(row)), 404)
    assert "no image" in text
    assert "only 0 to 8" in text


@pytest.mark.parametrize(
    "path",
    [
        "/images/../index/gallery.json",
        "/images/..%2f..%2fetc%2fpasswd",
        "/static/",
        "/x",
    ],
)
def test_no_path_of_a_request_reaches_the_files(page, path):
    assert page.get(path).status_code == 404
    assert set(page.get(path).json()) == {"error"}


def test_a_picture_that_is_gone_or_broken_is_named(folder, endpoint_url, tmp_path):
    images = write_gallery_images(tmp_path / "images")
    with (
        open_search(folder / "index", endpoint_url, images=images) as search,
        page_of(search) as client,
    ):
        (images / "blue" / "pale.png").unlink()
        (images / "green" / "pale.png").write_text("no picture")
        for path in ("images", "api/similar"):
            assert "'blue/pale.png' is gone" in error_of(client.get(f"/{path}/1"), 404)
            text = error_of(client.get(f"/{path}/4"), 404)
            assert "'green/pale.png' is broken" in text
            assert str(tmp_path) not in text


# Bad uploads


def png_of_size(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body))
        + name
        + body
        + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"hello", "not an image that can be searched with"),
        (b"", "is empty"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image that can"),
        (encoded((1, 2, 3))[:60], "cannot be read as an image"),
        (png_of_size(20_000, 4_000), "too many pixels: at most 64 million"),
        (png_of_size(60_000, 60_000), "too many pixels"),
    ],
)
def test_an_upload_that_is_no_good_picture_is_refused_with_the_reason(
    page, content, reason
):
    text = error_of(post(page, content), 400)
    assert reason in text
    assert "image bytes" not in text


def test_an_upload_above_the_limit_is_refused(page):
    text = error_of(post(page, b"x" * (MAX_UPLOAD_BYTES + 1)), 413)
    assert text == "This file is too large; at most 0.2 MB are taken."
    assert "too large" in error_of(post(page, b"x" * 5 * MAX_UPLOAD_BYTES), 413)


def test_an_upload_of_unstated_length_above_the_limit_is_refused(page):
    def chunks():
        yield b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n'
        yield b"\r\n"
        for _ in range(20):
            yield b"x" * (MAX_UPLOAD_BYTES // 10)

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    response = page.post("/api/search", content=chunks(), headers=headers)
    assert "too large" in error_of(response, 413)


def test_no_more_of_an_upload_is_read_than_its_limit():
    taken = 0

    async def endless():
        nonlocal taken
        taken += 1000
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    scope = {"type": "http", "method": "POST", "headers": []}
    with pytest.raises(HTTPException, match="413"):
        asyncio.run(read_body(Request(scope, endless), 50_000))
    assert 50_000 < taken <= 61_000


@pytest.mark.parametrize("k", ["0", "10", "101", "-1", "2.5", "", "many"])
def test_a_wrong_k_is_refused(page, k):
    text = error_of(post(page, encoded((1, 2, 3)), k=k), 400)
    assert text.startswith("`k` must be a whole number from 1 to 9.")
    text = error_of(page.get("/api/similar/0", params={"k": k}), 400)
    assert text.startswith("`k` must be a whole number from 1 to 8.")


def test_a_request_without_a_picture_is_refused(page):
    assert "form field `image`" in error_of(
        page.post("/api/search", data={"k": 1}), 400
    )
    assert "form field `image`" in error_of(page.post("/api/search", json={}), 400)
    body = {"image": "text in place of a file"}
    assert "form field `image`" in error_of(page.post("/api/search", data=body), 400)
    headers = {"Content-Type": "multipart/form-data"}
    assert error_of(page.post("/api/search", content=b"x", headers=headers), 400)
    assert error_of(page.get("/api/search"), 405)


def test_an_endpoint_that_went_down_is_reported(folder):
    with serve_model(folder / "models" / "colors") as url:
        search = open_search(folder / "index", url)
    with search, page_of(search) as client:
        assert "cannot be reached" in error_of(post(client, encoded((1, 2, 3))), 502)
        assert "cannot be reached" in error_of(client.get("/api/similar/0"), 502)


def test_an_endpoint_that_went_over_to_another_version_is_reported(folder, tmp_path):
    write_color_model(tmp_path / "colors" / "2")
    versions = [endpoint_of(folder / "models" / "colors")]

    async def latest(scope, receive, send):
        await versions[-1](scope, receive, send)

    with (
        running(latest) as address,
        open_search(folder / "index", f"{address}/v1/models/colors") as search,
        page_of(search) as client,
    ):
        assert post(client, encoded((1, 2, 3))).status_code == 200
        versions.append(endpoint_of(tmp_path / "colors"))
        text = error_of(post(client, encoded((1, 2, 3))), 502)
    assert "Servable not found for request: Specific(colors, 1)" in text


# At the start


def test_the_page_does_not_start_without_its_endpoint_or_port(folder, endpoint_url):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        nowhere = f"http://127.0.0.1:{port}/v1/models/colors"
        with pytest.raises(EndpointError, match="cannot be reached"):
            run(folder / "index", nowhere, port=0)
        taken.listen()
        with pytest.raises(PortInUseError, match=f"Port {port}"):
            run(folder / "index", endpoint_url, port=port)


def test_an_upload_limit_below_one_is_refused(folder, endpoint_url):
    with (
        open_search(folder / "index", endpoint_url) as search,
        pytest.raises(ValueError, match="`max_upload_bytes` must be at least 1"),
    ):
        create_app(search, max_upload_bytes=0)


# The page itself


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/script.js", "text/javascript; charset=utf-8"),
        ("/favicon.svg", "image/svg+xml"),
    ],
)
def test_the_page_and_its_parts_are_served_with_security_headers(
    page, path, media_type
):
    response = page.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == media_type
    assert "://" not in response.text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    "path", ["/", "/api/info", "/images/0", "/images/99", "/missing"]
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
