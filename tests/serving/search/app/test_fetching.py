"""Images at addresses: of the public internet alone, and within limits."""

import asyncio
import base64
import socket

import pytest
from starlette.applications import Starlette
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from serving.search.app import fetching
from serving.search.app.fetching import Fetcher, FetchError, is_elsewhere, is_public
from serving.search.gallery.opening import open_search
from tests.support.running_server import running
from tests.support.search_fixtures import encoded, page_of

IMAGE = encoded((10, 10, 240))
ANY_PORT = range(1, 65536)


async def image(request):
    return Response(IMAGE, media_type="image/png")


async def redirect(request):
    return RedirectResponse(request.query_params["to"])


async def again(request):
    return RedirectResponse("/again")


async def endless(request):
    async def chunks():
        while True:
            yield b"x" * 10_000
            await asyncio.sleep(0.001)

    return StreamingResponse(chunks())


async def slow(request):
    async def chunks():
        for _ in range(100):
            yield b"x"
            await asyncio.sleep(0.1)

    return StreamingResponse(chunks())


async def packed(request):
    return Response(b"x", headers={"content-encoding": "gzip"})


@pytest.fixture(scope="module")
def port():
    app = Starlette(
        routes=[
            Route("/image", image),
            Route("/redirect", redirect),
            Route("/again", again),
            Route("/endless", endless),
            Route("/slow", slow),
            Route("/packed", packed),
        ]
    )
    with running(app) as address:
        yield int(address.rsplit(":", 1)[1])


def fetch(url, names=None, **options):
    """Fetch with names that are given; by default only 127.0.0.1 may be reached."""

    async def resolve(host, port):
        if host not in (names or {}):
            raise OSError("no such host")
        return names[host]

    usual = {
        "is_allowed": lambda address: address == "127.0.0.1",
        "ports": ANY_PORT,
        "seconds": 60.0,
    }
    options = usual | options
    return asyncio.run(Fetcher(resolve=resolve, **options).fetch(url))


LOCAL = {"images.test": ["127.0.0.1"]}


def test_an_image_is_fetched_from_the_address_that_was_checked(port):
    assert fetch(f"http://images.test:{port}/image", LOCAL) == IMAGE


def test_a_redirect_is_followed_and_checked_again(port):
    base = f"http://images.test:{port}"
    assert fetch(f"{base}/redirect?to=/image", LOCAL) == IMAGE
    inside = {"inside.test": ["10.0.0.1"], **LOCAL}
    with pytest.raises(FetchError, match=r"public address.*host='inside.test'"):
        fetch(f"{base}/redirect?to=http://inside.test/", inside)
    for target in ("file:///etc/passwd", "gopher://images.test/"):
        with pytest.raises(FetchError, match="must begin with http"):
            fetch(f"{base}/redirect?to={target}", LOCAL)
    with pytest.raises(FetchError, match="redirected more than 3 times"):
        fetch(f"{base}/again", LOCAL)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",  # noqa: S104 (nothing is bound)
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:1::1",
        "2001:db8::1",
        "localhost",
        "",
        "168.63.129.16",
        "192.88.99.1",
        "fec0::1",
        "64:ff9b::808:808",
        "5f00::1",
        "3fff::1",
        "2606:4700::5efe:10.0.0.1",
        "2606:4700::1111%eth0",
    ],
)
def test_addresses_that_are_not_of_the_public_internet_are_refused(address):
    assert not is_public(address)
    with pytest.raises(FetchError, match="must have a public address") as caught:
        fetch("http://name.test/", {"name.test": [address]}, is_allowed=is_public)
    assert caught.value.is_refused


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111"])
def test_addresses_of_the_public_internet_are_let_pass(address):
    assert is_public(address)


def test_an_address_of_this_machine_is_not_elsewhere(monkeypatch):
    assert is_elsewhere("8.8.8.8")
    assert not is_elsewhere("10.0.0.1")
    monkeypatch.setattr(fetching, "is_public", lambda address: True)
    assert not is_elsewhere("127.0.0.1")


def test_only_the_ports_of_the_web_are_connected_to(port):
    asked = []

    async def resolve(host, port):
        asked.append(port)
        return ["127.0.0.1"]

    usual = Fetcher(resolve=resolve, is_allowed=lambda address: True)
    for url in (f"http://images.test:{port}/image", "https://images.test:22/"):
        with pytest.raises(FetchError, match="port of `url` must be one") as caught:
            asyncio.run(usual.fetch(url))
        assert caught.value.is_refused
    assert asked == []
    away = f"http://images.test:{port}/redirect?to=http://images.test:22/"
    with pytest.raises(FetchError, match=r"Received: port=22\."):
        fetch(away, LOCAL, ports={port})


def test_a_host_with_one_address_inside_is_refused():
    names = {"both.test": ["8.8.8.8", "127.0.0.1"]}
    with pytest.raises(FetchError, match="must have a public address"):
        fetch("http://both.test/", names, is_allowed=is_public)


def test_a_name_is_resolved_once_and_not_asked_again(port):
    """A name whose address changes after the check leads nowhere else."""
    answers = [["127.0.0.1"], ["10.0.0.1"]]
    asked = []

    async def resolve(host, port):
        asked.append(host)
        return answers.pop(0)

    fetcher = Fetcher(
        resolve=resolve,
        is_allowed=lambda address: address[:3] == "127",
        ports=ANY_PORT,
    )
    url = f"http://images.test:{port}/image"
    assert asyncio.run(fetcher.fetch(url)) == IMAGE
    assert asked == ["images.test"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "127.1"]
)
def test_addresses_in_other_spellings_are_resolved_and_refused(host):
    with pytest.raises(FetchError, match="must have a public address"):
        asyncio.run(Fetcher().fetch(f"http://{host}/"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "image.png",
        "file:///etc/passwd",
        "ftp://images.test/",
        "//images.test/",
        "http://",
        "http://user:password@images.test/",
        "http://images.test:99999/",
        "http://" + "a" * 3000,
        "http://\0/",
        "http://[::1/",
        "http://ü..test/",
    ],
)
def test_what_is_no_address_of_an_image_is_refused(url):
    with pytest.raises(FetchError) as caught:
        fetch(url, LOCAL)
    assert caught.value.is_refused
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("path", "options", "reason"),
    [
        ("missing", {}, "the answer has the status 404"),
        ("packed", {}, "is compressed"),
        ("endless", {"max_bytes": 100_000}, "more than 0.1 MB"),
        ("slow", {"seconds": 0.5}, "more than 0.5 seconds"),
    ],
)
def test_what_is_sent_instead_of_an_image_is_reported(port, path, options, reason):
    with pytest.raises(FetchError, match=reason) as caught:
        fetch(f"http://images.test:{port}/{path}", LOCAL, **options)
    assert not caught.value.is_refused


def test_a_server_that_says_nothing_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        number = silent.getsockname()[1]
        with pytest.raises(FetchError, match=r"more than 0\.5 seconds"):
            fetch(f"http://images.test:{number}/", LOCAL, seconds=0.5)


def test_the_service_searches_with_an_image_at_an_address(colors, colors_url, port):
    async def resolve(host, port):
        return LOCAL.get(host, ["10.0.0.1"])

    fetcher = Fetcher(
        resolve=resolve,
        is_allowed=lambda a: a == "127.0.0.1",
        ports=ANY_PORT,
        seconds=60,
    )
    base = f"http://images.test:{port}"
    with (
        open_search(colors / "index", colors_url) as search,
        page_of(search, allow_url=True, fetcher=fetcher) as page,
    ):
        assert page.get("/api/info").json()["can_fetch"] is True
        found = page.post("/api/search", json={"url": f"{base}/image", "k": 1})
        assert found.json()["hits"][0]["class"] == "blue"
        image = {"b64": base64.b64encode(IMAGE).decode()}
        same = page.post("/api/search", json={"image": image, "k": 1})
        assert same.json()["hits"] == found.json()["hits"]
        for url, status, reason in (
            ("http://10.0.0.1/", 400, "must have a public address"),
            ("http://inside.test/", 400, "must have a public address"),
            (f"{base}/missing", 502, "has the status 404"),
            (f"{base}/redirect?to=http://inside.test/", 400, "public address"),
        ):
            reply = page.post("/api/search", json={"url": url})
            assert reply.status_code == status
            assert reason in reply.json()["error"]
