"""Bound the connections of HTTP, and answer what is not HTTP in words."""

import asyncio
import contextlib
import json
import logging
import math
import re
from collections.abc import Iterable
from typing import Any

import h11

from .timeouts import PromptH11Protocol

_KEPT_FILES = 128
_LEAST, _MOST = 16, 1024
_TELL_SECONDS = 60.0
_LONGEST_REASON = 200
_WHOLE_ADDRESS = re.compile(rb"https?://([^/?]*)(.*)", re.I)
_QUOTED = re.compile(r"""[: (]*(bytearray\()?b['"].*""", re.DOTALL)

_log = logging.getLogger(__name__)


def most_connections() -> int:
    """Return how many connections a port may have, by the limit of open files.

    A server of REST and gRPC has two ports. Some files are left for everything else.

    Returns:
        16 to 1024.
    """
    try:
        import resource
    except ImportError:  # not POSIX
        return _MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MOST
    return max(_LEAST, min(_MOST, (files - _KEPT_FILES) // 2))


class Notice:
    """Says when to write a line again that might else fill the log.

    Args:
        seconds: Between two lines.
    """

    def __init__(self, seconds: float = _TELL_SECONDS) -> None:
        self._seconds = seconds
        self._told_at = -math.inf

    def is_due(self, now: float) -> bool:
        """Return whether to write it now; then not again for a while."""
        if now < self._told_at + self._seconds:
            return False
        self._told_at = now
        return True


class ConnectionRoom:
    """The room that a server has for connections.

    Args:
        most: Connections at one time, at least 1; by default by the limit of files.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most_connections() if most is None else most
        self.full = Notice()


class HttpConnection(PromptH11Protocol):
    """A connection of a server that has room for so many.

    With one more, the one whose client has been waited for longest is closed: clients
    that idle or dribble lose their own connections first. Where all wait for the
    server, the new one gets 503.

    Attributes:
        room: That of the server, which its connections share.
    """

    room: ConnectionRoom

    _since = 0.0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        most = self.config.h11_max_incomplete_event_size
        limit = {} if most is None else {"max_incomplete_event_size": most}
        self.conn = self._reader = _Reader(h11.SERVER, **limit)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for it first."""
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > self.room.most:
            self._make_room()

    def handle_events(self) -> None:
        """Answer requests, and say what is wrong with one that cannot be read."""
        super().handle_events()
        fault = self._reader.fault
        if fault is not None and not self.transport.is_closing():
            # h11 quotes the line, which may hold a token.
            reason = _QUOTED.sub("", str(fault))[:_LONGEST_REASON]
            _log.warning("%s sent a request that is not HTTP: %s", self._peer(), reason)
            self._refuse(
                fault.error_status_hint, f"The request is not valid HTTP ({reason})."
            )

    def on_response_complete(self) -> None:
        """Wait for the client again."""
        self._since = self.loop.time()
        super().on_response_complete()

    def _should_upgrade(self) -> bool:
        # uvicorn would log how to install a library for it.
        return False

    def _make_room(self) -> None:
        others = [
            other
            for other in self.connections
            if isinstance(other, HttpConnection) and not other.transport.is_closing()
        ]
        if len(others) <= self.room.most:
            return
        if self.room.full.is_due(self.loop.time()):
            _log.warning(
                "There are more than %d connections: those that wait longest for their "
                "clients are closed. Raise the limit of open files for more.",
                self.room.most,
            )
        waiting = [other for other in others if other._waits_for_client(self)]
        if waiting:
            min(waiting, key=lambda other: other._since).transport.abort()
        else:
            self._refuse(503, "The server has too many connections. Retry.")

    def _waits_for_client(self, newest: "HttpConnection") -> bool:
        if self is newest:
            return False
        is_answered = self.cycle is None or self.cycle.response_complete
        is_arriving = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        return is_answered or is_arriving or self.flow.write_paused

    def _refuse(self, status: int, message: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": message}, indent=4).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            with contextlib.suppress(h11.LocalProtocolError):
                self.transport.write(
                    _joined(
                        self.conn.send(event)
                        for event in (
                            h11.Response(status_code=status, headers=headers),
                            h11.Data(data=body),
                            h11.EndOfMessage(),
                        )
                    )
                )
        self.transport.close()

    def _peer(self) -> str:
        return "A client" if self.client is None else ":".join(map(str, self.client))


def connection_of_server(most: int | None = None) -> type[HttpConnection]:
    """Make the class of connections of one server.

    Args:
        most: Connections at one time, at least 1; by default by the limit of files.
    """

    class Connection(HttpConnection):
        room = ConnectionRoom(most)

    return Connection


class _Reader(h11.Connection):
    """Keeps what is wrong with a request, which uvicorn would drop.

    Attributes:
        fault: What is wrong, if anything.
    """

    fault: h11.RemoteProtocolError | None = None

    def next_event(self) -> Any:
        """Return the next event; none where the request cannot be read."""
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.fault = error
            return h11.NEED_DATA
        if not isinstance(event, h11.Request):
            return event
        headers, target = list(event.headers), bytes(event.target)
        if _has_two_lengths(event):
            # RFC 9112, 6.1: the connection ends after the answer, since what follows
            # may be what another server took for the body.
            headers.append((b"connection", b"close"))
        if whole := _WHOLE_ADDRESS.fullmatch(target):
            # RFC 9112, 3.2.2: a client may send the whole address, as it does to a
            # proxy. Its host is then the one that counts.
            target = whole[2] if whole[2].startswith(b"/") else b"/" + whole[2]
            headers = [pair for pair in headers if pair[0] != b"host"]
            headers.append((b"host", whole[1]))
        if (headers, target) == (list(event.headers), event.target):
            return event
        return h11.Request(
            method=event.method,
            target=target,
            headers=headers,
            http_version=event.http_version,
        )


def _has_two_lengths(request: h11.Request) -> bool:
    names = {name for name, _ in request.headers}
    return {b"content-length", b"transfer-encoding"} <= names


def _joined(pieces: Iterable[bytes | None]) -> bytes:
    return b"".join(piece for piece in pieces if piece)
