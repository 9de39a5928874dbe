"""Open listening sockets, and run web applications on them until a signal comes.

A socket is opened before anything slow is done, so that a port that is taken is known
at once and not after the model has been loaded.
"""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

import uvicorn
from starlette.types import ASGIApp

from tfdml.messages import shown

from .forwarded import behind_proxies
from .http_connection import Notice, connection_of_server

_HANDSHAKE_SECONDS = 10.0

_log = logging.getLogger(__name__)

GRACE_SECONDS = 20.0
"""How long requests under way may take after SIGTERM."""


class PortInUseError(OSError):
    """Another program listens on the port."""


def open_socket(host: str, port: int, option: str = "--port") -> socket.socket:
    """Open a socket that listens, so that nobody else can take the port.

    Clients that connect before `serve` runs wait until it does.

    Args:
        host: Address of this machine to listen on; "127.0.0.1" keeps other machines
            out, "0.0.0.0" lets them in.
        port: 1 to 65535, or 0 for any free port.
        option: The command-line option that sets the port, for the error.

    Returns:
        The listening socket. The caller closes it, or passes it to `serve`.

    Raises:
        PortInUseError: Another program listens there.
        OSError: The address is not of this machine, or the port is not allowed.
        ValueError: `port` is out of range.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"`port` must be 0 to 65535. Received: port={port}.")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(
            "`host` must be a name or address of this machine, such as 127.0.0.1 "
            f"({error.strerror}). Received: host={shown(host)}."
        ) from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # Without this, a restart has to wait a minute for the old connections. On
        # Windows it would let two programs listen on one port.
        if sys.platform == "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Two sockets with SO_REUSEADDR may both bind; only listening is exclusive.
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"Port {port} on {host} is in use. Stop the program that listens on "
                f"it, or choose another port with {option}."
            ) from error
        raise OSError(f"Cannot listen on {host}:{port} ({error.strerror}).") from error
    return listener


def url_of(listener: socket.socket, *, is_secure: bool = False) -> str:
    """Return the address that a browser on this machine opens for a socket."""
    scheme = "https" if is_secure else "http"
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104  (compared, not bound)
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def serve(
    applications: Sequence[tuple[ASGIApp, socket.socket]],
    *,
    tls: ssl.SSLContext | None = None,
    on_stop: Callable[[], None] = lambda: None,
    trusted_proxies: Sequence[str] = (),
) -> None:
    """Run web applications in this process until SIGINT or SIGTERM.

    The first signal stops new requests and lets those under way finish (20 seconds at
    most); a second one ends them. When one application stops, all do.

    Args:
        applications: Each application with the socket that it answers on, as returned
            by `open_socket`. The sockets are closed at the end.
        tls: Keys and certificates for HTTPS; None for HTTP.
        on_stop: Called at each signal; returns at once. For servers beside these.
        trusted_proxies: Addresses of proxies whose `X-Forwarded-` headers count, see
            `behind_proxies`; by default, those of this machine may name the client and
            the scheme.
    """
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(_serve(applications, tls, on_stop, trusted_proxies))


def exit_on_sigterm(seconds: float = GRACE_SECONDS) -> None:
    """Let SIGTERM end this process from now on, until `serve` takes the signal over.

    The first process of a container has no default action: without this, it could not
    be stopped while it loads a model. It ends with code 143, as any other process.

    Args:
        seconds: After which it ends whatever it does: code that a library calls back
            may swallow what ends a process.
    """

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        last = threading.Timer(seconds, os._exit, [128 + number])
        last.daemon = True
        last.start()
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)


class _Loop(asyncio.SelectorEventLoop):
    """Gives a client of TLS less time to shake hands than the 60 seconds of asyncio."""

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        """Listen."""
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", _HANDSHAKE_SECONDS)
        return await super().create_server(*args, **options)


def _tell_once_of_full_files(loop: asyncio.AbstractEventLoop) -> None:
    """Log once a minute that no more files can be opened.

    asyncio of Python 3.11 reports it for each connection that might wait, thousands of
    times a second, with a traceback.
    """
    full = Notice()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "out of system resource" not in context.get("message", ""):
            loop.default_exception_handler(context)
        elif full.is_due(loop.time()):
            _log.error(
                "No connection can be accepted (%s). Raise the limit of open files.",
                context.get("exception"),
            )

    loop.set_exception_handler(handle)


async def _serve(
    applications: Sequence[tuple[ASGIApp, socket.socket]],
    tls: ssl.SSLContext | None,
    on_stop: Callable[[], None],
    trusted_proxies: Sequence[str],
) -> None:
    _tell_once_of_full_files(asyncio.get_running_loop())
    servers = [
        _Server(
            uvicorn.Config(
                behind_proxies(application, trusted_proxies)
                if trusted_proxies
                else application,
                proxy_headers=not trusted_proxies,
                access_log=False,
                log_config=None,  # logging is configured by the process
                ssl_context_factory=None if tls is None else lambda *_: tls,
                timeout_graceful_shutdown=int(GRACE_SECONDS),
                ws="none",
                http=connection_of_server(),
            )
        )
        for application, _ in applications
    ]

    def stop() -> None:
        on_stop()
        for server in servers:
            server.force_exit = server.should_exit
            server.should_exit = True

    async def run(server: uvicorn.Server, listener: socket.socket) -> None:
        try:
            await server.serve(sockets=[listener])
        finally:
            for other in servers:
                other.should_exit = True

    with _on_signals(stop):
        await asyncio.gather(
            *(
                run(server, listener)
                for server, (_, listener) in zip(servers, applications, strict=True)
            )
        )


class _Server(uvicorn.Server):
    """Leaves the signals to `serve`.

    uvicorn's own handlers know one server only: with two, the first would never hear
    of the signal.
    """

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    handled = (signal.SIGINT, signal.SIGTERM)
    if sys.platform == "win32":  # whose loops take no handlers
        before = {
            number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
            for number in handled
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return
    for number in handled:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
