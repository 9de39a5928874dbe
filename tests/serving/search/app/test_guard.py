"""Who may ask the search service: tokens, origins, limits, TLS."""

import io
import json
import queue
import re
import shutil
import ssl
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import anyio
import httpx2
import pytest
import trustme

from serving.search.app.app import run
from serving.search.app.reach import Reach
from serving.search.app.service import Limits
from serving.search.gallery.opening import open_search
from serving.web.access import TokenAccess
from serving.web.log import configure
from tests.support.running_process import running_process
from tests.support.running_server import running
from tests.support.search_fixtures import (
    encoded,
    endpoint_of,
    error_of,
    page_of,
)
from tests.support.token_files import write_tokens

pytestmark = pytest.mark.slow

TOKEN = "0123456789abcdef"


@pytest.fixture
def search(colors, colors_url, tmp_path):
    """The search of a copy that a test may change."""
    folder = shutil.copytree(colors / "index", tmp_path / "index")
    with open_search(folder, colors_url) as search:
        yield search


def delete(page, headers=None):
    return page.delete("/api/images", params={"id": "red/pale.png"}, headers=headers)


# Tokens


def test_with_a_token_the_gallery_is_for_those_who_show_it(search, tmp_path):
    access = TokenAccess(write_tokens(tmp_path / "tokens", TOKEN))
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


OTHER_NAMES = ["evil.test", "evil.test:8000", "localhost.evil.test", "127.0.0.1.x"]
OWN_NAMES = ["127.0.0.1", "localhost:8000", "[::1]:8000", "a.localhost", "LOCALHOST"]


def test_a_service_for_this_machine_answers_to_its_names_alone(search):
    with page_of(search, only_here=True) as page:
        for host in OTHER_NAMES:
            for path in ("/", "/api/info", "/images?id=red/pale.png"):
                text = error_of(page.get(path, headers={"Host": host}), 403)
                assert f"Received: host={host!r}" in text
        for host in OWN_NAMES:
            assert page.get("/api/info", headers={"Host": host}).status_code == 200
        # Which the page of a stranger may send, too.
        forwarded = {"Host": "evil.test", "X-Forwarded-Proto": "https"}
        assert error_of(page.get("/api/info", headers=forwarded), 403)


def test_a_service_for_others_is_searched_under_any_name_and_not_changed(search):
    with page_of(search, editable=True) as page:
        named = {
            "Host": "box.lan:8000",
            "Origin": "http://box.lan:8000",
            "Sec-Fetch-Site": "same-origin",
        }
        files = {"image": ("x", encoded((1, 2, 3)))}
        assert page.post("/api/search", files=files, headers=named).is_success
        text = error_of(page.post("/api/images", files=files, headers=named), 403)
        assert "`--allowed-host NAME`" in text
        assert error_of(delete(page, named), 403)


# As nginx makes them: `proxy_pass` alone, `Host $host`, and `Host $http_host`.
PROXIED = [
    {"Host": "127.0.0.1:8000", "Origin": "https://images.test"},
    {"Host": "images.test", "Origin": "https://images.test:8443"},
    {"Host": "images.test:8443", "Origin": "https://images.test:8443"},
]


@pytest.mark.parametrize("headers", PROXIED)
def test_page_behind_a_proxy_is_searched_and_changed_under_an_allowed_name(
    search, headers
):
    headers = {**headers, "Sec-Fetch-Site": "same-origin"}
    files = {"image": ("x", encoded((1, 2, 3)))}
    reach = Reach(allowed_hosts=["Images.test"])
    with page_of(search, only_here=True, editable=True, reach=reach) as page:
        for path in ("/", "/api/info", "/api/duplicates"):
            assert page.get(path, headers=headers).status_code == 200
        assert page.post("/api/search", files=files, headers=headers).is_success
        assert page.post("/api/images", files=files, headers=headers).is_success
        evil = {**headers, "Origin": "https://evil.test"}
        assert error_of(page.post("/api/search", files=files, headers=evil), 403)


def test_refused_page_behind_a_proxy_learns_what_to_do(search):
    files = {"image": ("x", encoded((1, 2, 3)))}
    with page_of(search, only_here=True) as page:
        text = error_of(page.post("/api/search", files=files, headers=PROXIED[0]), 403)
        assert "proxy_set_header Host $http_host" in text
        assert "Received: origin='https://images.test', host='127.0.0.1:8000'" in text
        assert "`--allowed-host" in error_of(page.get("/", headers=PROXIED[1]), 403)


def test_health_needs_no_token(search, tmp_path):
    access = TokenAccess(write_tokens(tmp_path / "tokens", TOKEN))
    with page_of(search, access=access) as page:
        for path in ("/healthz", "/readyz"):
            assert page.get(path).json() == {"status": "ok"}


def test_a_service_for_others_or_with_a_token_is_read_under_any_name(search, tmp_path):
    (tmp_path / "tokens").write_text(TOKEN)
    (tmp_path / "tokens").chmod(0o600)
    headers = {"Host": "images.test", "Authorization": f"Bearer {TOKEN}"}
    access = TokenAccess(tmp_path / "tokens")
    for options in ({}, {"only_here": True, "access": access}):
        with page_of(search, **options) as page:
            assert page.get("/api/info", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("127.0.0.1", True), ("localhost", True), ("::", False)],
)
def test_a_service_on_the_loopback_address_is_for_this_machine(
    monkeypatch, host, only_here
):
    options = {}

    def created(search, **given):
        options.update(given)

    page = "serving.search.app.app"
    opened = SimpleNamespace(name="index")
    monkeypatch.setattr(f"{page}.open_search", lambda *_, **__: nullcontext(opened))
    monkeypatch.setattr(f"{page}.create_app", created)
    monkeypatch.setattr(f"{page}.serve", lambda *_, **__: None)
    run("index", "http://127.0.0.1:1/v1/models/m", host=host, port=0)
    assert options["only_here"] is only_here


def test_pages_of_strangers_start_no_work_on_the_whole_gallery(search):
    with page_of(search) as page:
        for path in ("/api/duplicates", "/api/map"):
            for headers in (
                {"Sec-Fetch-Site": "cross-site"},
                {"Sec-Fetch-Site": "same-site"},
                {"Origin": "http://evil.test"},
            ):
                text = error_of(page.get(path, headers=headers), 403)
                assert "Only the page of this service" in text
        own = {"Sec-Fetch-Site": "same-origin"}
        assert page.get("/api/duplicates", headers=own).status_code == 200
        cheap = {"Sec-Fetch-Site": "cross-site"}
        assert page.get("/api/info", headers=cheap).status_code == 200


# Hidden attributes


def test_nobody_filters_by_the_names_of_stored_images(search):
    with page_of(search, editable=True) as page:
        files = {"image": ("x", encoded((1, 2, 3)))}
        assert page.post("/api/images", files=files).status_code == 201
        for name in ("picture", "price"):
            where = {name: "x"}
            text = json.dumps(where)
            found = {
                error_of(reply, 400)
                for reply in (
                    page.get("/api/images", params={"where": text}),
                    page.get(
                        "/api/similar", params={"id": "red/pale.png", "where": text}
                    ),
                    page.post("/api/search", files=files, data={"where": text}),
                    page.post(
                        "/api/search", json={"id": "red/pale.png", "where": where}
                    ),
                )
            }
            assert found == {
                "`where` must name attributes of the index, ['class']. "
                f"Received: {name!r}."
            }


# Limits


def test_a_long_form_is_read_with_turns_for_others(search):
    """In pieces of any size, the form is the same."""
    with page_of(search, limits=Limits(piece_bytes=7)) as page:
        files = {"image": ("x", encoded((1, 2, 250)))}
        reply = page.post("/api/search", files=files, data={"k": 1})
        assert [hit["class"] for hit in reply.json()["hits"]] == ["blue"]


def test_what_takes_too_long_is_given_up(colors):
    slow, go = threading.Event(), threading.Event()
    app = endpoint_of(colors / "models" / "colors")

    async def endpoint(scope, receive, send):
        while slow.is_set() and not go.is_set():
            await anyio.sleep(0.01)
        await app(scope, receive, send)

    with (
        running(endpoint) as address,
        open_search(colors / "index", f"{address}/v1/models/colors") as search,
        page_of(search, timeout_seconds=0.2) as page,
    ):
        slow.set()
        files = {"image": ("x", encoded((1, 2, 3)))}
        text = error_of(page.post("/api/search", files=files), 504)
        go.set()
        assert text == "There was no result within 0.2 seconds."


def test_a_change_that_takes_too_long_tells_that_it_may_be_done(search, monkeypatch):
    go = threading.Event()
    for name in ("add", "remove"):
        monkeypatch.setattr(
            f"serving.search.app.app.GalleryEditor.{name}", lambda *_: go.wait(60)
        )
    with page_of(search, editable=True, timeout_seconds=0.05) as page:
        files = {"image": ("x", encoded((1, 2, 3)))}
        replies = page.post("/api/images", files=files, data={"id": "x"}), delete(page)
        go.set()
    added, removed = (error_of(reply, 504) for reply in replies)
    assert "may still be added. Send the request again: 409 means that it was." in added
    assert "may still be removed" in removed
    assert "404 means" in removed


def test_an_endpoint_that_hangs_does_not_hold_up_what_needs_none(colors):
    limits = Limits(threads=1, waiting=0)
    hangs, asked = threading.Event(), threading.Event()
    app = endpoint_of(colors / "models" / "colors")

    async def endpoint(scope, receive, send):
        while hangs.is_set():
            asked.set()
            await anyio.sleep(0.01)
        await app(scope, receive, send)

    with (
        running(endpoint) as address,
        open_search(colors / "index", f"{address}/v1/models/colors") as search,
        page_of(search, timeout_seconds=60, limits=limits) as page,
    ):
        hangs.set()
        files = {"image": ("x", encoded((1, 2, 3)))}

        def ask():
            with httpx2.Client(base_url=page.base_url, timeout=60) as client:
                client.post("/api/search", files=files)

        thread = threading.Thread(target=ask)
        thread.start()
        assert asked.wait(60)
        full = page.post("/api/search", files=files)
        others = [
            page.post("/api/search", json=body)
            for body in ({"id": "red/pale.png"}, {"embedding": [1.0] * 12})
        ]
        hangs.clear()
        thread.join()
    assert error_of(full, 503)
    assert [reply.status_code for reply in others] == [200, 200]


def test_more_addresses_than_are_fetched_from_at_one_time_are_refused(search):
    options = {"allow_url": True, "limits": Limits(fetched=1)}
    asked, go = threading.Event(), threading.Event()

    class Slow:
        async def fetch(self, url):
            while not go.is_set() and url == "http://a.test":
                asked.set()
                await anyio.sleep(0.01)
            return encoded((1, 2, 250))

    replies = []
    with page_of(search, fetcher=Slow(), **options) as page:

        def ask():
            with httpx2.Client(base_url=page.base_url, timeout=60) as client:
                replies.append(
                    client.post("/api/search", json={"url": "http://a.test"})
                )

        thread = threading.Thread(target=ask)
        thread.start()
        assert asked.wait(60)
        refused = page.post("/api/search", json={"url": "http://b.test"})
        go.set()
        thread.join()
        ask()
    assert "too much to do" in error_of(refused, 503)
    assert refused.headers["retry-after"] == "1"
    assert [reply.status_code for reply in replies] == [200, 200]


def test_more_requests_than_are_taken_at_one_time_are_refused(colors):
    may_answer = threading.Event()
    may_answer.set()
    app = endpoint_of(colors / "models" / "colors")

    async def endpoint(scope, receive, send):
        if scope["type"] == "http":
            while not may_answer.is_set():
                await anyio.sleep(0.01)
        await app(scope, receive, send)

    replies = queue.Queue()
    with (
        running(endpoint) as address,
        open_search(colors / "index", f"{address}/v1/models/colors") as search,
        page_of(search, limits=Limits(threads=1, waiting=1)) as page,
    ):
        may_answer.clear()

        def ask():
            files = {"image": ("x", encoded((1, 2, 3)))}
            with httpx2.Client(base_url=page.base_url, timeout=60) as client:
                replies.put(client.post("/api/search", files=files))

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        refused = [replies.get(timeout=60) for _ in range(4)]
        may_answer.set()
        answered = [replies.get(timeout=60) for _ in range(2)]
        for thread in threads:
            thread.join()
    assert [reply.status_code for reply in answered] == [200] * 2
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
    # An endpoint that still answers another test in this process has lines, too.
    own = ("info", "thumbnail", "unknown")
    lines = [x for x in lines if x["event"] == "request" and x["call"] in own]
    assert [(line["call"], line["status"]) for line in lines] == [
        ("info", "OK"),
        ("thumbnail", "NOT_FOUND"),
        ("unknown", "NOT_FOUND"),
    ]
    assert lines[0]["request_id"] == "mine-1"
    assert reply.headers["x-request-id"] == lines[2]["request_id"]


def test_the_page_is_served_over_tls(colors, colors_url, tmp_path):
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
        "from serving.search.app.app import run\n"
        "from serving.web.tls import read_ssl_config\n"
        "tls = read_ssl_config(sys.argv[3])\n"
        "run(sys.argv[1], sys.argv[2], port=0, compare=sys.argv[1], tls=tls)\n"
    )
    command = [sys.executable, "-c", program, colors / "index", colors_url, file]
    with running_process(command) as process:
        url = re.match(r"Image search: (\S+)", process.stdout.readline())[1]
        assert url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context()
        authority.configure_trust(context)
        reply = httpx2.get(
            f"{url}/api/info", verify=context, trust_env=False, timeout=60
        )
        indexes = [(own["name"], own["images"]) for own in reply.json()["indexes"]]
        assert indexes == [("index", 9), ("index (2)", 9)]
