"""Who may ask the search service: tokens, origins, limits, TLS."""

import io
import json
import re
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
import httpx
import pytest
import trustme

from serving.access import TokenAccess
from serving.request_log import configure
from serving.search.image_search import open_search
from serving.search.indexing import index_images
from tests.running_server import running
from tests.search_fixtures import (
    build_search,
    encoded,
    endpoint_of,
    page_of,
    serve_model,
    write_gallery_images,
)

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return build_search(tmp_path_factory.mktemp("search")) / "models" / "colors"


@pytest.fixture(scope="module")
def endpoint_url(models):
    with serve_model(models) as url:
        yield url


@pytest.fixture
def folder(tmp_path, models):
    write_gallery_images(tmp_path / "images")
    index_images(tmp_path / "images", tmp_path / "index", models)
    return tmp_path


@pytest.fixture
def search(folder, endpoint_url):
    with open_search(folder / "index", endpoint_url) as search:
        yield search


def error_of(response, status):
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    return response.json()["error"]


def delete(page, headers=None):
    return page.delete("/api/images", params={"id": "red/pale.png"}, headers=headers)


# Tokens


def test_with_a_token_the_gallery_is_for_those_who_show_it(search, tmp_path):
    (tmp_path / "tokens").write_text(TOKEN)
    (tmp_path / "tokens").chmod(0o600)
    access = TokenAccess(tmp_path / "tokens")
    with page_of(search, access=access, editable=True) as page:
        for path in ("/", "/start.js", "/style.css", "/favicon.svg"):
            assert page.get(path).status_code == 200
        for path in (
            "/api/info",
            "/api/images",
            "/api/openapi.yaml",
            "/api/nothing",
            "/images?id=red/pale.png",
            "/pictures?id=red/pale.png",
            "//api/info",
            "/api/info/",
        ):
            for headers in ({}, {"Authorization": "Bearer wrong-token-is-this"}):
                response = page.get(path, headers=headers)
                assert "token" in error_of(response, 401).lower()
                assert response.headers["www-authenticate"] == "Bearer"
        assert error_of(delete(page), 401)
        files = {"image": ("x", encoded((1, 2, 3)))}
        assert error_of(page.post("/api/search", files=files), 401)

        page.headers["Authorization"] = f"Bearer {TOKEN}"
        assert page.get("/api/info").status_code == 200
        assert page.get("/images?id=red/pale.png").status_code == 200
        assert page.post("/api/search", files=files).status_code == 200
        # A browser sends no token by itself, so any name may lead here.
        named = {"Host": "images.test", "Origin": "https://images.test"}
        assert delete(page, named).status_code == 200


# Origins


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.test"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "{own}"},
        # A name that was made to lead here.
        {"Host": "evil.test", "Origin": "http://evil.test"},
        {"Host": "evil.test:8000", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_no_page_of_strangers_changes_the_gallery(search, headers):
    with page_of(search, editable=True) as page:
        own = str(page.base_url).rstrip("/")
        headers = {name: value.format(own=own) for name, value in headers.items()}
        assert error_of(delete(page, headers), 403)
        files = {"image": ("x", encoded((1, 2, 3)))}
        for path in ("/api/images", "/api/search"):
            assert error_of(page.post(path, files=files, headers=headers), 403)
        assert page.get("/api/info").json()["indexes"][0]["images"] == 9


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "{own}"},
        {"Origin": "{own}", "Sec-Fetch-Site": "same-origin"},
        {"Host": "localhost:8000", "Origin": "http://localhost:8000"},
        {"Host": "[::1]:8000", "Origin": "http://[::1]:8000"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_the_own_page_and_programs_change_the_gallery(search, headers):
    with page_of(search, editable=True) as page:
        own = str(page.base_url).rstrip("/")
        headers = {name: value.format(own=own) for name, value in headers.items()}
        assert delete(page, headers).status_code == 200


# Limits


def test_what_takes_too_long_is_given_up(models, folder):
    slow = threading.Event()
    app = endpoint_of(models)

    async def endpoint(scope, receive, send):
        if slow.is_set():
            await receive()
            time.sleep(2)
        await app(scope, receive, send)

    with (
        running(endpoint) as address,
        open_search(folder / "index", f"{address}/v1/models/colors") as search,
        page_of(search, timeout_seconds=0.2) as page,
    ):
        slow.set()
        files = {"image": ("x", encoded((1, 2, 3)))}
        text = error_of(page.post("/api/search", files=files), 504)
        assert text == "There was no result within 0.2 seconds."


def test_more_requests_than_are_taken_at_one_time_are_refused(
    models, folder, monkeypatch
):
    monkeypatch.setattr("serving.search.service._THREADS", 1)
    monkeypatch.setattr("serving.search.service._WAITING", 1)
    may_answer = threading.Event()
    may_answer.set()
    app = endpoint_of(models)

    async def endpoint(scope, receive, send):
        if scope["type"] == "http":
            while not may_answer.is_set():
                await anyio.sleep(0.01)
        await app(scope, receive, send)

    replies = []
    with (
        running(endpoint) as address,
        open_search(folder / "index", f"{address}/v1/models/colors") as search,
        page_of(search) as page,
    ):
        may_answer.clear()

        def ask():
            files = {"image": ("x", encoded((1, 2, 3)))}
            with httpx.Client(base_url=page.base_url, timeout=60) as client:
                replies.append(client.post("/api/search", files=files))

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 30
        while len(replies) < 4 and time.monotonic() < until:
            time.sleep(0.01)
        may_answer.set()
        for thread in threads:
            thread.join()
    assert sorted(reply.status_code for reply in replies) == [200] * 2 + [503] * 4
    refused = [reply for reply in replies if reply.status_code == 503]
    assert all("too much to do" in error_of(reply, 503) for reply in refused)
    assert {reply.headers["retry-after"] for reply in refused} == {"1"}


# Log and TLS


def test_each_request_has_a_line_in_the_log_and_an_id(search):
    stream = io.StringIO()
    configure("json", stream)
    with page_of(search) as page:
        page.get("/api/info", headers={"X-Request-Id": "mine-1"})
        page.get("/images", params={"id": "none"})
        reply = page.get("/api/nothing")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    lines = [line for line in lines if line["event"] == "request"]
    assert [(line["call"], line["status"]) for line in lines] == [
        ("info", "OK"),
        ("thumbnail", "NOT_FOUND"),
        ("unknown", "NOT_FOUND"),
    ]
    assert lines[0]["request_id"] == "mine-1"
    assert reply.headers["x-request-id"] == lines[2]["request_id"]


@pytest.mark.slow
def test_the_page_is_served_over_tls(folder, endpoint_url, tmp_path):
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    key = own.private_key_pem.bytes().decode()
    chain = b"".join(pem.bytes() for pem in own.cert_chain_pems).decode()
    quoted = [text.replace("\n", "\\n") for text in (key, chain)]
    file = tmp_path / "tls"
    file.write_text(f'server_key: "{quoted[0]}"\nserver_cert: "{quoted[1]}"\n')
    file.chmod(0o600)
    program = (
        "import sys\n"
        "from serving.search.page import run\n"
        "from serving.tls import read_ssl_config\n"
        "tls = read_ssl_config(sys.argv[3])\n"
        "run(sys.argv[1], sys.argv[2], port=0, compare=sys.argv[1], tls=tls)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder / "index"), endpoint_url, str(file)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    try:
        url = re.match(r"Image search: (\S+)", process.stdout.readline())[1]
        assert url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context()
        authority.configure_trust(context)
        reply = httpx.get(f"{url}/api/info", verify=context, trust_env=False)
        indexes = [(own["name"], own["images"]) for own in reply.json()["indexes"]]
        assert indexes == [("index", 9), ("index (2)", 9)]
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()
