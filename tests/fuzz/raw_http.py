"""HTTP over a plain socket: whatever bytes a test wants to send."""

import contextlib
import re
import select
import socket
from dataclasses import dataclass

from tests.fuzz.server_process import ANSWER_SECONDS

_PATIENCE_SECONDS = 0.1


@dataclass(frozen=True)
class Answer:
    """One response."""

    status: int
    content_type: str
    body: bytes


def request(
    target: bytes, body: bytes = b"", *, method: bytes = b"POST", headers: bytes = b""
) -> bytes:
    """Make a request that ends its connection; `headers` end with CRLF each."""
    return (
        b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n%s\r\n%s" % (method, target, len(body), headers, body)
    )


def exchange(port: int, *pieces: bytes, may_be_cut_short: bool = False) -> list[Answer]:
    """Send bytes on a new connection and read until the server closes it.

    Args:
        port: Port on the loopback address.
        pieces: What is sent, each in a packet of its own.
        may_be_cut_short: Whether the server may wait for more. The client then ends
            its half of the connection where no answer comes at once.

    Returns:
        The responses, possibly none.

    Raises:
        TimeoutError: The server neither answered nor closed in time.
        ValueError: What came back is not HTTP.
    """
    address = ("127.0.0.1", port)
    received = bytearray()
    with socket.create_connection(address, timeout=ANSWER_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                connection.sendall(piece)
        except TimeoutError:
            raise
        except OSError:
            pass  # refused before all of it was sent; the answer may be there
        # What is unread of a refused request resets the connection.
        with contextlib.suppress(ConnectionResetError):
            while may_be_cut_short:
                if not select.select([connection], [], [], _PATIENCE_SECONDS)[0]:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_WR)
                    break
                if not (chunk := connection.recv(2**16)):
                    break
                received += chunk
            while chunk := connection.recv(2**16):
                received += chunk
    return _answers(bytes(received))


def _answers(data: bytes) -> list[Answer]:
    answers = []
    while data:
        head, found, data = data.partition(b"\r\n\r\n")
        first, *fields = head.split(b"\r\n")
        status = re.fullmatch(rb"HTTP/1\.[01] ([1-5]\d\d) [ -~]*", first)
        if not found or not status:
            raise ValueError(f"This is no response of HTTP: {head[:200]!r}.")
        if status[1][:1] == b"1":
            continue
        headers = dict(field.lower().split(b": ", 1) for field in fields)
        length = int(headers.get(b"content-length", len(data)))
        kind = headers.get(b"content-type", b"").decode("ascii")
        answers.append(Answer(int(status[1]), kind, data[:length]))
        data = data[length:]
    return answers
