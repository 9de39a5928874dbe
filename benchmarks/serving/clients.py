"""Hold the connections of one client of the endpoint, of both protocols."""

import gzip
import http.client
import socket
import time
from typing import Self

import grpc

TIMEOUT_SECONDS = 30.0
_IDLE_SECONDS = 1.0


class Clients:
    """A gRPC channel and an HTTP connection to one server, for one thread."""

    def __init__(self, rest_address: str, grpc_address: str) -> None:
        self.rest_address = rest_address
        self._http = http.client.HTTPConnection(rest_address, timeout=TIMEOUT_SECONDS)
        self._http_used = 0.0
        self._channel = grpc.insecure_channel(
            grpc_address,
            options=[
                ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
                ("grpc.max_send_message_length", -1),
            ],
        )

    def grpc(self, path: str, message: bytes) -> tuple[str, bytes]:
        """Make a call; returns the name of the status code and the answer."""
        try:
            call = self._channel.unary_unary(path)
            return "OK", call(message, timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            return error.code().name, str(error.details()).encode()

    def grpc_cancelled(self, path: str, message: bytes) -> None:
        """Make a call and leave it at once."""
        self._channel.unary_unary(path).future(message).cancel()

    def http(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes]:
        """Make a request; returns the status and the body of the answer."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        # A server may close an idle connection at the moment in which it is used.
        if time.monotonic() - self._http_used > _IDLE_SECONDS:
            self._http.close()
        try:
            self._http.request(method, path, body, sent)
            reply = self._http.getresponse()
            data = reply.read()
        except (OSError, http.client.HTTPException):
            self._http.close()
            raise
        self._http_used = time.monotonic()
        if reply.getheader("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        return reply.status, data

    def raw(self, data: bytes, answer: bool) -> bytes:
        """Write bytes to a new connection, read an answer if wanted, and hang up."""
        host, _, port = self.rest_address.rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_SECONDS) as connection:
            connection.sendall(data)
            return connection.recv(4096) if answer else b""

    def close(self) -> None:
        """Close both connections."""
        self._http.close()
        self._channel.close()

    def __enter__(self) -> Self:
        """Return the clients; the end of the block closes them."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connections."""
        self.close()
