"""A web application on a real socket, in a thread of the test."""

import contextlib
import threading
import time

import uvicorn

from serving.web.sockets import open_socket, url_of


@contextlib.contextmanager
def running(app):
    """Run an ASGI application on a free loopback port; yields its address."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        ws="none",
        # A client that stood still may use its connection again.
        timeout_keep_alive=600,
    )
    with running_uvicorn(config) as listener:
        yield url_of(listener)


@contextlib.contextmanager
def running_uvicorn(config, listener=None):
    """Run uvicorn, by default on a free loopback port; yields the socket."""
    listener = listener or open_socket("127.0.0.1", 0)
    # A request that a client has given up must not keep the server from stopping.
    config.timeout_graceful_shutdown = config.timeout_graceful_shutdown or 10
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            assert time.monotonic() < deadline, "the server did not start in 60 s"
            time.sleep(0.01)
        yield listener
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        assert not thread.is_alive(), "the server did not stop in 60 s"
