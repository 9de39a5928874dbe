"""What is not HTTP is answered in words; connections that idle make room."""

import contextlib
import inspect
import json
import logging
import socket
import threading
from types import SimpleNamespace

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from serving.web.http_connection import (
    HttpConnection,
    Notice,
    connection_of_server,
    most_connections,
)
from serving.web.timeouts import PromptH11Protocol
from tests.support.running_server import running_uvicorn

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SECONDS = 60


@contextlib.contextmanager
def running(most=100):
    """Run an application; yields `address`, `entered`, `scopes`, and `go`.

    The path /slow is answered when the test says so, by `go`; a body is read before
    the answer.
    """
    entered, go = threading.Semaphore(0), threading.Event()
    scopes = []

    async def app(scope, receive, send):
        scopes.append(scope)
        while (await receive()).get("more_body"):
            pass
        if scope["path"] == "/slow":
            entered.release()
            while not go.is_set():
                await server.sleep(0.01)
        headers = [(b"content-length", b"4")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"done"})

    import asyncio

    server = SimpleNamespace(sleep=asyncio.sleep)
    config = uvicorn.Config(
        app,
        http=connection_of_server(most),
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=SECONDS,
    )
    try:
        with running_uvicorn(config) as listener:
            address = listener.getsockname()
            yield SimpleNamespace(
                address=address, entered=entered, go=go, scopes=scopes
            )
    finally:
        go.set()


def connected(server):
    client = socket.create_connection(server.address, timeout=SECONDS)
    client.settimeout(SECONDS)
    return client


def everything(client):
    """Read until the server closes the connection."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(2**16):
            data += piece
    return data


def asked(client, request=GET):
    client.sendall(request)
    reply = b""
    while not reply.endswith(b"done"):
        piece = client.recv(2**16)
        assert piece, reply
        reply += piece
    return reply


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (b"no HTTP at all\r\n\r\n", b"400", "illegal request line"),
        (b"GET / HTTP/1.1\r\nsecret\r\n\r\n", b"400", "illegal header line"),
        (GET[:-2] + b"X: secret\0\r\n\r\n", b"400", "illegal header line"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400", "Missing mandatory Host"),
        (
            GET[:-2] + b"Transfer-Encoding: gzip\r\n\r\n",
            b"501",
            "Only Transfer-Encoding: chunked",
        ),
        # All of it is read before it is too long, so that the answer arrives.
        (GET[:-2] + b"X: " + b"x" * (2**14 - 20), b"431", "too long"),
    ],
)
def test_what_is_not_http_is_answered_in_json_and_logged_once(
    sent, status, reason, caplog
):
    with (
        caplog.at_level(logging.INFO),
        running() as server,
        connected(server) as client,
    ):
        port = client.getsockname()[1]
        with contextlib.suppress(ConnectionError):
            client.sendall(sent)
        head, _, body = everything(client).partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert b"content-type: application/json" in head.lower()
    message = json.loads(body)["error"]
    assert message.startswith("The request is not valid HTTP (")
    assert reason.lower() in message.lower()
    (line,) = [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING
    ]
    assert line.startswith(f"127.0.0.1:{port} sent a request that is not HTTP: ")
    assert reason.lower() in line.lower()
    assert "secret" not in message + line


def test_broken_body_ends_the_request_under_way(caplog):
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with running() as server, connected(server) as client:
        client.sendall(head + b"no length\r\n")
        assert everything(client).startswith(b"HTTP/1.1 400")
    assert not [record for record in caplog.records if record.exc_info]


def test_connection_with_two_lengths_of_a_body_ends_after_the_answer():
    request = (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    with running() as server, connected(server) as client:
        client.sendall(request + GET)
        reply = everything(client)
    assert reply.count(b"HTTP/1.1 200") == 1
    assert b"connection: close" in reply.lower()


@pytest.mark.parametrize("target", [b"http://x/slow", b"HTTPS://x:80/slow?a=b"])
def test_whole_address_counts_as_its_path_and_host(target):
    with running() as server, connected(server) as client:
        client.sendall(GET.replace(b" / ", b" " + target + b" "))
        assert server.entered.acquire(timeout=SECONDS)
        server.go.set()
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")
    (scope,) = [scope for scope in server.scopes if scope["path"] == "/slow"]
    (host,) = [value for name, value in scope["headers"] if name == b"host"]
    assert host == target.split(b"/")[2]


def test_upgrade_is_passed_over_without_a_word(caplog):
    wanted = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with running() as server, connected(server) as client:
        assert asked(client, GET[:-2] + wanted).startswith(b"HTTP/1.1 200")
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "idle",
    [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx"],
    ids=["nothing", "head", "body"],
)
def test_connection_that_waits_longest_for_its_client_makes_room(idle, caplog):
    with running(2) as server, contextlib.ExitStack() as opened:
        first = opened.enter_context(connected(server))
        first.sendall(GET.replace(b"/ ", b"/slow ", 1))
        assert server.entered.acquire(timeout=SECONDS)
        second = opened.enter_context(connected(server))
        asked(second)
        second.sendall(idle)
        for _ in range(3):
            newest = opened.enter_context(connected(server))
            assert asked(newest).endswith(b"done")
        assert b"200" not in everything(second)
        server.go.set()
        assert asked(first, b"").startswith(b"HTTP/1.1 200")
    (line,) = [r.getMessage() for r in caplog.records if "connections" in r.msg]
    assert line.startswith("There are more than 2 connections")


def test_connection_is_refused_where_all_wait_for_the_server():
    with running(2) as server, contextlib.ExitStack() as opened:
        clients = [opened.enter_context(connected(server)) for _ in range(2)]
        for client in clients:
            client.sendall(GET.replace(b"/ ", b"/slow ", 1))
            assert server.entered.acquire(timeout=SECONDS)
        refused = everything(opened.enter_context(connected(server)))
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"too many connections" in refused
        server.go.set()
        for client in clients:
            assert asked(client, b"").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("files", "most"), [(64, 16), (1024, 448), (10**6, 1024), (-1, 1024)]
)
def test_connections_leave_files_for_everything_else(files, most, monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (files, files))
    assert most_connections() == most


def test_notice_is_due_once_in_its_time():
    notice = Notice(60)
    assert [notice.is_due(now) for now in (0, 1, 59, 60, 61, 200)] == [
        *(True, False, False),
        *(True, False, True),
    ]


@pytest.mark.parametrize("kind", [HttpConnection, PromptH11Protocol])
def test_what_is_overridden_is_what_this_uvicorn_calls(kind):
    """Private parts of uvicorn: a release that renames one must not pass unseen."""
    source = inspect.getsource(H11Protocol)
    overridden = {
        name
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and name in vars(H11Protocol)
    }
    expected = {
        HttpConnection: {"__init__", "connection_made", "handle_events"}
        | {"on_response_complete", "_should_upgrade"},
        PromptH11Protocol: {"connection_made", "data_received", "connection_lost"}
        | {"pause_writing", "resume_writing", "on_response_complete", "shutdown"}
        | {"timeout_keep_alive_handler"},
    }
    assert overridden == expected[kind]
    for attribute in ("conn", "cycle", "flow", "loop", "transport", "connections"):
        assert f"self.{attribute} = " in source or f"self.{attribute}: " in source
    assert "self.conn.next_event()" in source
