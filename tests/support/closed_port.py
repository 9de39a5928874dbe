"""A port at which nobody listens."""

import contextlib
import socket


@contextlib.contextmanager
def closed_port():
    """Keep a port of the loopback address from everybody; yields the bound socket.

    Connections are refused until it listens.
    """
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved
