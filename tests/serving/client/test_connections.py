"""Connections that break, on real sockets with a server of the test's own."""

import contextlib
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from serving.client import EndpointClient, EndpointError, Retries
from tests.support.answering_model import METADATA
from tests.support.closed_port import closed_port
from tests.support.random_pixels import png, random_pixels

QUICK = Retries(first_wait=0.001, longest_wait=0.002)


def reply(document):
    body = json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


GOOD = reply({"predictions": [[0.0, 1.0]]})


@contextlib.contextmanager
def answering(*answers):
    """Answer one request a connection with these bytes, then close it."""
    requests = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for answer in answers:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the test has ended
                    return
                with connection:
                    requests.append(read_request(connection))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def read_request(connection):
    connection.settimeout(60)
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        body += connection.recv(65536)
    return head.split(b" ")[1].decode()


def embed_one(address):
    with EndpointClient(f"{address}/v1/models/colors", retries=QUICK) as client:
        return client.embed([png(random_pixels(5, 3, 4))])


def url_at(listener):
    return f"http://127.0.0.1:{listener.getsockname()[1]}/v1/models/colors"


def first_failure(client):
    """Return an event that is set when the client first fails to get the metadata."""
    failed, attempt = threading.Event(), client._model.connection.metadata

    def watched():
        try:
            return attempt()
        except EndpointError:
            failed.set()
            raise

    client._model.connection.metadata = watched
    return failed


def test_connection_that_closes_before_an_answer_is_tried_again():
    with answering(b"", reply(METADATA), b"", b"", GOOD) as (address, requests):
        np.testing.assert_array_equal(embed_one(address), [[0, 1]])
    model = "/v1/models/colors"
    assert requests == [f"{model}/metadata"] * 2 + [f"{model}:predict"] * 3


def test_answer_that_breaks_off_is_not_asked_for_again():
    with (
        answering(reply(METADATA), GOOD[:-5]) as (address, requests),
        pytest.raises(EndpointError, match="cannot be reached"),
    ):
        embed_one(address)
    assert len(requests) == 2


def test_server_that_comes_up_late_is_reached():
    often = Retries(count=10**6, seconds=60, first_wait=0.05, longest_wait=0.05)
    with (
        closed_port() as listener,
        EndpointClient(url_at(listener), retries=often) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        refused = first_failure(client)
        found = pool.submit(client.metadata)
        assert refused.wait(60)
        listener.listen()
        connection, _ = listener.accept()
        with connection:
            read_request(connection)
            connection.sendall(reply(METADATA))
        assert found.result().name == "colors"


def test_client_that_is_closed_stops_waiting():
    late = Retries(seconds=1000, first_wait=500, longest_wait=500)
    with (
        closed_port() as listener,
        EndpointClient(url_at(listener), retries=late) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        refused = first_failure(client)
        asked = pool.submit(client.metadata)
        assert refused.wait(60)
        client.close()
        with pytest.raises(EndpointError, match="cannot be reached"):
            asked.result(timeout=60)
