"""Time limits of a connection, with clients that do as little as they can."""

import contextlib
import re
import socket
import ssl
import threading
import time
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


class StandingTimers:
    """A loop whose timers run when the test lets time pass: no machine is too slow."""

    def __init__(self, loop, timers):
        self._loop, self._timers = loop, timers

    def __getattr__(self, name):
        return getattr(self._loop, name)

    def call_later(self, seconds, callback, *arguments):
        timer = self._loop.call_later(1e6, callback, *arguments)
        self._timers.append((seconds, timer, lambda: callback(*arguments)))
        return timer


@contextlib.contextmanager
def running(tls=None, *, head=LONG, write=LONG):
    """Run it on a free port; yields what the tests need.

    `address`; `ended`, set at each end; `received`, released for each piece of a
    client; `timers`, with their seconds; `wait`, which runs those of at most so many
    seconds; and `wait_until_ended`, which does so until a connection has ended.
    """
    ended, received = threading.Event(), threading.Semaphore(0)
    timers, loops = [], []

    class Watched(PromptH11Protocol):
        head_seconds, write_seconds = head, write

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            loops.append(self.loop)
            self.loop = StandingTimers(self.loop, timers)

        def data_received(self, data):
            super().data_received(data)
            received.release()

        def connection_lost(self, exc):
            super().connection_lost(exc)
            ended.set()

    def wait(seconds):
        have_run = threading.Event()

        def run():
            due = [each for each in timers if each[0] <= seconds]
            for each in due:
                timers.remove(each)
                _, timer, call = each
                if not timer.cancelled():
                    timer.cancel()
                    call()
            have_run.set()

        loops[0].call_soon_threadsafe(run)
        assert have_run.wait(60)

    def wait_until_ended(seconds):
        deadline = time.monotonic() + 60
        while not ended.wait(0.01):
            assert time.monotonic() < deadline
            if loops:
                wait(seconds)

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
        yield SimpleNamespace(
            address=listener.getsockname(),
            ended=ended,
            timers=timers,
            received=received,
            wait=wait,
            wait_until_ended=wait_until_ended,
        )


def is_closed(client):
    """Return whether the server closed the connection, whatever it had not read."""
    try:
        return client.recv(100) == b""
    except ConnectionError:
        return True


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
        server.wait_until_ended(SHORT)
        assert is_closed(client)


def test_rest_of_a_body_that_was_answered_must_come_in_time():
    with running(head=SHORT) as server, connected(server.address) as client:
        client.sendall(EARLY)
        assert read_reply(client).endswith(b"done")
        client.sendall(b"x")
        server.wait_until_ended(SHORT)
        assert is_closed(client)


def test_byte_after_byte_of_an_answered_body_gives_no_more_time():
    with running(head=SHORT) as server, connected(server.address) as client:
        client.sendall(EARLY.replace(b": 100", b": 1000000"))
        assert read_reply(client).endswith(b"done")
        while server.received.acquire(blocking=False):
            pass
        client.sendall(b"x")
        assert server.received.acquire(timeout=60)
        begun = [timer for seconds, timer, _ in server.timers if seconds == SHORT]
        for _ in range(5):
            client.sendall(b"x")
            assert server.received.acquire(timeout=60)
        assert begun == [
            timer for seconds, timer, _ in server.timers if seconds == SHORT
        ]
        assert not begun[-1].cancelled()
        server.wait_until_ended(SHORT)


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
        assert server.received.acquire(timeout=60)
        server.wait(SHORT)
        client.sendall(b"x" * 50)
        assert read_reply(client).endswith(b"done")


@pytest.mark.parametrize("is_last", [False, True], ids=["kept alive", "closing"])
def test_reply_that_nobody_reads_is_dropped(is_last):
    request = GET_LONG
    if is_last:
        request = GET_LONG[:-2] + b"Connection: close\r\n\r\n"
    with running(write=SHORT) as server, connected(server.address) as client:
        client.sendall(request)
        server.wait_until_ended(SHORT)
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
    with running(write=SHORT) as server, connected(server.address, 2**22) as client:
        client.sendall(GET_LONG)
        assert len(read_reply(client)) > REPLY_BYTES
        deadline = time.monotonic() + 60
        while not all(timer.cancelled() for s, timer, _ in server.timers if s == SHORT):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        server.wait(SHORT)
        assert not server.ended.is_set()
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
        server.wait_until_ended(SHORT)
