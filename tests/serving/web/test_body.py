import asyncio
import contextlib
import gzip
import http.client
import resource
import socket
import threading

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from serving.web.body import BodyReader
from tests.support.running_server import running

MAX_BYTES = 100_000
SECONDS = 0.2
TOO_LONG = (
    "The request body may have at most 100000 bytes. Send fewer or smaller instances."
)


@pytest.fixture(scope="module")
def release():
    """Lets requests to /hold end, which hold their body until then."""
    return threading.Event()


@pytest.fixture(scope="module")
def url(release):
    reader = BodyReader(MAX_BYTES, max_total_bytes=150_000, seconds=600.0)

    async def echo(request):
        async with reader.read(request) as body:
            return PlainTextResponse(bytes(body))

    impatient_reader = BodyReader(MAX_BYTES, max_total_bytes=150_000, seconds=SECONDS)

    async def impatient(request):
        async with impatient_reader.read(request) as body:
            return PlainTextResponse(bytes(body))

    async def hold(request):
        async with reader.read(request) as body:
            while not release.is_set():
                await asyncio.sleep(0.01)
            return PlainTextResponse(bytes(body))

    routes = [
        Route("/", echo, methods=["POST"]),
        Route("/impatient", impatient, methods=["POST"]),
        Route("/hold", hold, methods=["POST"]),
    ]
    with running(Starlette(routes=routes)) as address:
        yield address


def pieces(count, piece=b"x" * 50_000):
    """Content of unknown length, so that it is sent in chunks."""
    for _ in range(count):
        yield piece


def test_longest_body_is_taken(url):
    body = b"x" * MAX_BYTES
    assert httpx2.post(url, content=body, timeout=60).content == body


def test_chunked_body_is_taken(url):
    assert httpx2.post(url, content=pieces(2), timeout=60).content == b"x" * MAX_BYTES


@pytest.mark.parametrize("content", [b"x" * (MAX_BYTES + 1), pieces(3)])
def test_longer_body_is_refused(url, content):
    answer = httpx2.post(url, content=content, timeout=60)
    assert (answer.status_code, answer.text) == (413, TOO_LONG)


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "chunked"])
def test_client_that_writes_all_before_it_reads_gets_the_answer(url, announced):
    address = httpx2.URL(url)
    connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
    headers = {"Content-Length": "20000000"} if announced else {}
    connection.request("POST", "/", body=pieces(400), headers=headers)
    answer = connection.getresponse()
    assert (answer.status, answer.read().decode()) == (413, TOO_LONG)
    connection.close()


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "chunked"])
def test_hundred_megabytes_are_refused_and_not_held(url, announced):
    headers = {"Content-Length": str(10**8)} if announced else {}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = httpx2.post(url, content=pieces(2000), headers=headers, timeout=60)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (answer.status_code, answer.text) == (413, TOO_LONG)
    assert after - before < 20_000  # kilobytes


def test_too_long_body_holds_nothing_while_its_rest_is_discarded():
    async def check():
        reader = BodyReader(100, max_total_bytes=100, seconds=5.0)
        pieces = [b"x" * 60, b"x" * 60, b"x" * 60]
        held = []

        async def receive():
            held.append(reader._held)
            body = pieces.pop() if pieces else b""
            return {"type": "http.request", "body": body, "more_body": bool(pieces)}

        scope = {"type": "http", "headers": []}
        with pytest.raises(HTTPException, match="at most 100 bytes"):
            async with reader.read(Request(scope, receive)):
                pass
        return [*held, reader._held]

    assert asyncio.run(check()) == [0, 60, 0, 0]


def test_long_bodies_leave_room_for_short_ones():
    async def check():
        reader = BodyReader(6400, max_total_bytes=8000, seconds=60.0)

        def read(length):
            async def receive():
                body = bytes(length)
                return {"type": "http.request", "body": body, "more_body": False}

            return reader.read(Request({"type": "http", "headers": []}, receive))

        async with read(6400), read(600):
            with pytest.raises(HTTPException, match="holds too many requests"):
                async with read(101):
                    pass
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(10):
                    await stack.enter_async_context(read(100))
                with pytest.raises(HTTPException, match="holds too many requests"):
                    await stack.enter_async_context(read(1))

    asyncio.run(check())


def test_other_work_goes_on_while_a_body_is_decompressed():
    async def check():
        reader = BodyReader(10**8, max_total_bytes=10**8, seconds=60.0)
        packed = gzip.compress(bytes(10 * 2**20), 1)
        turns = 0

        async def receive():
            return {"type": "http.request", "body": packed, "more_body": False}

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        scope = {"type": "http", "headers": [(b"content-encoding", b"gzip")]}
        counting = asyncio.create_task(count())
        async with reader.read(Request(scope, receive)) as body:
            counting.cancel()
            return len(body), turns

    length, turns = asyncio.run(check())
    assert length == 10 * 2**20
    assert turns >= 9


def test_client_that_asks_first_is_refused_before_it_sends(url):
    address = httpx2.URL(url)
    with socket.create_connection((address.host, address.port), timeout=60) as client:
        client.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


def test_body_that_does_not_come_is_refused(url):
    address = httpx2.URL(url)
    with socket.create_connection((address.host, address.port), timeout=60) as client:
        client.sendall(
            b"POST /impatient HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nslow"
        )
        assert client.recv(100).startswith(b"HTTP/1.1 408 ")


def test_bodies_of_all_requests_together_are_bounded(url, release):
    release.clear()
    answers = []
    first = threading.Thread(
        target=lambda: answers.append(
            httpx2.post(f"{url}/hold", content=b"x" * MAX_BYTES, timeout=60)
        )
    )
    first.start()
    try:
        # Until the first body has arrived, the second one is still taken.
        for _ in range(500):
            second = httpx2.post(url, content=b"x" * MAX_BYTES, timeout=60)
            if second.status_code == 503:
                break
        assert (second.status_code, second.text) == (
            503,
            "The server holds too many requests. Retry.",
        )
        assert httpx2.post(url, content=b"small", timeout=60).status_code == 200
    finally:
        release.set()
        first.join()
    assert answers[0].status_code == 200
    assert httpx2.post(url, content=b"x" * MAX_BYTES, timeout=60).status_code == 200


class TestCompression:
    def post(self, url, content, encoding="gzip"):
        return httpx2.post(
            url, content=content, headers={"Content-Encoding": encoding}, timeout=60
        )

    def test_gzip_is_decompressed(self, url):
        assert self.post(url, gzip.compress(b"hello")).content == b"hello"

    def test_gzip_of_the_longest_body_is_taken(self, url):
        body = b"x" * MAX_BYTES
        assert self.post(url, gzip.compress(body)).content == body

    @pytest.mark.parametrize("length", [MAX_BYTES + 1, 10**8])
    def test_gzip_of_a_longer_body_is_refused_and_not_held(self, url, length):
        content = gzip.compress(bytes(length))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer = self.post(url, content)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert (answer.status_code, answer.text) == (413, TOO_LONG)
        assert after - before < 20_000  # kilobytes

    def test_what_is_no_gzip_is_refused(self, url):
        answer = self.post(url, b"hello")
        assert answer.status_code == 400
        assert answer.text.startswith("The request body is not gzip data")

    def test_gzip_that_is_cut_short_is_refused(self, url):
        answer = self.post(url, gzip.compress(b"hello")[:-1])
        assert (answer.status_code, answer.text) == (
            400,
            "The gzip data of the request body is cut short.",
        )

    def test_gzip_with_something_behind_it_is_refused(self, url):
        answer = self.post(url, gzip.compress(b"hello") + b"more")
        assert answer.status_code == 400

    def test_other_encodings_are_refused(self, url):
        answer = self.post(url, b"hello", "br")
        assert (answer.status_code, answer.text) == (
            415,
            "Content-Encoding must be gzip or identity. Received: 'br'.",
        )
