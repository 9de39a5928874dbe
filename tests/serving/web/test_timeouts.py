"""Time limits of a connection, with clients that do as little as they can."""

import contextlib
import re
import socket
import ssl
import threading
from types import SimpleNamespace

import pytest
import trustme
import uvicorn

from serving.web.timeouts import PromptH11Protocol
from tests.support.running_server import running_uvicorn

pytestmark = pytest.mark.slow

SHORT = 0.3
LONG = 60.0
REPLY_BYTES = 32 * 2**20  # more than the buffers of the sockets hold


async def app(scope, receive, send):
    """Answer /early at once, and all else when the body is there."""
    if scope["type"] != "http":
        return
    if scope["path"] != "/early":
        while (await receive()).get("more_body"):
            pass
    body = bytes(REPLY_BYTES) if scope["path"] == "/long" else b"done"
    length = str(len(body)).encode()
    headers = [(b"content-length", length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def connected(address, buffer_bytes=4096):
    """Connect with a small buffer, so that what is not read stays at the server."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    client.settimeout(60)
    client.connect(address)
    return client


def read_reply(client):
    """Read one reply that has a Content-Length."""
    reply = bytearray()
    length = None
    while length is None or len(reply) < length:
        data = client.recv(2**20)
        assert data, bytes(reply[:200])
        reply += data
        if length is None and b"\r\n\r\n" in reply:
            body = int(re.search(rb"content-length: (\d+)", reply)[1])
            length = reply.index(b"\r\n\r\n") + 4 + body
    return bytes(reply)


@contextlib.contextmanager
def running(tls=None, *, head=LONG, write=LONG):
    """Run it on a free port; yields `address`, and `ended`, set at each end."""
    ended = threading.Event()

    class Watched(PromptH11Protocol):
        head_seconds, write_seconds = head, write

        def connection_lost(self, exc):
            super().connection_lost(exc)
            ended.set()

    config = uvicorn.Config(
        app,
        http=Watched,
        ws="none",
        lifespan="off",
        log_level="warning",
        timeout_keep_alive=int(LONG),
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )
    with running_uvicorn(config) as listener:
        yield SimpleNamespace(address=listener.getsockname(), ended=ended)


EARLY = b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
GET_LONG = GET.replace(b"/ ", b"/long ", 1)


@pytest.mark.parametrize("sent", [b"", b"G", GET[:-2], GET + b"GE"])
def test_connection_without_a_whole_head_is_closed(sent):
    with running(head=SHORT) as server, connected(server.address) as client:
        if sent.startswith(GET):
            client.sendall(GET)
            assert read_reply(client).endswith(b"done")
            sent = sent.removeprefix(GET)
        client.sendall(sent)
        assert client.recv(100) == b""


def test_rest_of_a_body_that_was_answered_must_come_in_time():
    with running(head=SHORT) as server, connected(server.address) as client:
        client.sendall(EARLY)
        assert read_reply(client).endswith(b"done")
        client.sendall(b"x")
        assert client.recv(100) == b""


def test_byte_after_byte_of_an_answered_body_gives_no_more_time():
    with running(head=SHORT) as server, connected(server.address) as client:
        client.sendall(EARLY.replace(b": 100", b": 1000000"))
        assert read_reply(client).endswith(b"done")
        with contextlib.suppress(ConnectionError):
            for _ in range(500):
                if server.ended.wait(0.02):
                    break
                client.sendall(b"x")
        assert server.ended.is_set()


def test_connection_goes_on_after_the_rest_of_an_answered_body():
    with running() as server, connected(server.address) as client:
        for _ in range(3):
            client.sendall(EARLY)
            assert read_reply(client).endswith(b"done")
            client.sendall(b"x" * 100)
        client.sendall(GET)
        assert read_reply(client).endswith(b"done")


def test_body_that_is_read_may_take_longer_than_a_head():
    with running(head=SHORT) as server, connected(server.address) as client:
        client.sendall(EARLY.replace(b"/early", b"/") + b"x" * 50)
        with connected(server.address) as clock:
            assert clock.recv(100) == b""
        client.sendall(b"x" * 50)
        assert read_reply(client).endswith(b"done")


@pytest.mark.parametrize("is_last", [False, True], ids=["kept alive", "closing"])
def test_reply_that_nobody_reads_is_dropped(is_last):
    request = GET_LONG
    if is_last:
        request = GET_LONG[:-2] + b"Connection: close\r\n\r\n"
    with running(write=SHORT) as server, connected(server.address) as client:
        client.sendall(request)
        assert server.ended.wait(60)
        received = 0
        with contextlib.suppress(ConnectionError):
            while data := client.recv(2**20):
                received += len(data)
        assert 0 < received < REPLY_BYTES


def test_reply_is_whole_for_a_client_that_reads_it_and_so_is_the_next_one():
    with running() as server, connected(server.address) as client:
        for _ in range(2):
            client.sendall(GET_LONG)
            head, _, body = read_reply(client).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert len(body) == REPLY_BYTES


def test_limit_on_reading_ends_when_all_was_read():
    with running(write=0.5) as server, connected(server.address, 2**22) as client:
        client.sendall(GET_LONG)
        assert len(read_reply(client)) > REPLY_BYTES
        assert not server.ended.wait(0.6)
        client.sendall(GET)
        assert read_reply(client).endswith(b"done")


def test_reply_that_nobody_reads_is_dropped_under_tls_too():
    authority = trustme.CA()
    for_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(for_server)
    for_client = ssl.create_default_context()
    authority.configure_trust(for_client)
    with (
        running(for_server, write=SHORT) as server,
        connected(server.address) as plain,
        for_client.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        client.sendall(GET_LONG[:-2] + b"Connection: close\r\n\r\n")
        # asyncio itself gives up a closing TLS connection only after 30 seconds.
        assert server.ended.wait(60)
