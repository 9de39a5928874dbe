"""What is no HTTP, or not all of it: an answer or a closed connection, soon."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.mutated_bytes import fuzzing, mutated
from tests.fuzz.nearly_right_json import BODIES
from tests.fuzz.raw_http import exchange, request

pytestmark = pytest.mark.slow

PREDICT = b"/v1/models/example:predict"
BODY = BODIES[4]
RIGHT = request(PREDICT, BODY)
CHUNKED = (
    b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
    % (PREDICT, len(BODY), BODY)
)
STATUS = request(b"/v1/models/example", method=b"GET")


def with_header(header):
    return request(PREDICT, BODY, headers=header)


def with_length(length, body=BODY):
    return (
        b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %s\r\n"
        b"\r\n%s" % (PREDICT, length, body)
    )


ODD = {
    "nothing": b"",
    "newline": b"\r\n",
    "zeros": bytes(1000),
    "tls": bytes.fromhex("16030100f8010000f40303") + bytes(200),
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "no version": b"GET /v1/models/example\r\n\r\n",
    "version 9": b"GET /v1/models/example HTTP/9.9\r\n\r\n",
    "no host": b"GET /v1/models/example HTTP/1.1\r\n\r\n",
    "two hosts": with_header(b"Host: y\r\n"),
    "half a request line": b"POST /v1/mod",
    "half the headers": RIGHT[:60],
    "half a body": RIGHT[:-10],
    "endless request line": b"GET /" + b"a" * 300_000,
    "endless header": b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000,
    "many headers": with_header(b"".join(b"X-%d: 1\r\n" % n for n in range(5000))),
    "folded header": with_header(b"X: 1\r\n 2\r\n"),
    "header without a colon": with_header(b"X\r\n"),
    "header without a name": with_header(b": x\r\n"),
    "space before the colon": with_header(b"X : 1\r\n"),
    "NUL in a header": with_header(b"X: \x00\r\n"),
    "length of 20 digits": with_length(b"9" * 20),
    "length of 5000 digits": with_length(b"9" * 5000),
    "length below zero": with_length(b"-1"),
    "length in hexadecimal": with_length(b"0x10"),
    "length with a plus": with_length(b"+58"),
    "length of a letter": with_length(b"a"),
    "length in other digits": with_length("\u0661".encode()),
    "two lengths": with_header(b"Content-Length: 3\r\n"),
    "length too short": with_length(b"3"),
    "length too long": with_length(b"1000"),
    "length of a bomb": with_length(b"%d" % 10**12),
    "length and chunked": with_header(b"Transfer-Encoding: chunked\r\n"),
    "unknown transfer encoding": with_header(b"Transfer-Encoding: gzip\r\n"),
    "wrong chunk size": CHUNKED.replace(b"\r\n\r\n", b"\r\n\r\nzz\r\n", 1),
    "huge chunk size": CHUNKED.replace(b"\r\n\r\n", b"\r\n\r\n" + b"f" * 16, 1),
    "chunk size below zero": CHUNKED.replace(b"\r\n\r\n", b"\r\n\r\n-", 1),
    "no last chunk": CHUNKED[:-5],
    "endless chunk extension": CHUNKED.replace(
        b"\r\n\r\n", b"\r\n\r\n1;" + b"a" * 200_000, 1
    ),
    "expectation": with_header(b"Expect: 100-continue\r\n"),
    "unknown expectation": with_header(b"Expect: wonders\r\n"),
    "upgrade": with_header(b"Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n"),
    "connect": request(b"127.0.0.1:22", method=b"CONNECT"),
    "absolute address": request(b"http://example.org" + PREDICT, BODY),
    "star": request(b"*", method=b"OPTIONS"),
}


def check(answers):
    """Fail unless each is an answer of ours, in JSON, that blames the request."""
    for answer in answers:
        assert answer.content_type == "application/json"
        assert answer.status in {200, 400, 404, 408, 413, 415, 431, 501}, answer
        if answer.body:
            assert isinstance(json.loads(answer.body), dict)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_odd_request_ends_its_own_connection_only(example_server, odd):
    example_server.revive()
    check(exchange(example_server.port, odd, may_be_cut_short=True))
    example_server.check_alive(odd)
    example_server.check_good_request()


def test_damaged_requests_get_an_answer_or_a_closed_connection(
    example_server, examples
):
    damaged = set()

    @fuzzing(examples)
    @given(mutated((RIGHT, CHUNKED, STATUS, RIGHT[: RIGHT.index(b"{")])))
    def send(data):
        example_server.revive()
        check(exchange(example_server.port, data, may_be_cut_short=True))
        damaged.add(data)
        example_server.check_alive(data)

    send()
    example_server.check_good_request()
    assert len(damaged) >= examples / 2


def test_damage_between_packets_changes_nothing(example_server, examples):
    @fuzzing(examples)
    @given(st.sampled_from((RIGHT, CHUNKED, STATUS)), st.data())
    @example(RIGHT, None)
    def send(data, choices):
        example_server.revive()
        at = choices.draw(st.integers(1, len(data) - 1)) if choices else 1
        (answer,) = exchange(example_server.port, data[:at], data[at:])
        assert answer.status == 200, answer
        example_server.check_alive(data)

    send()


def test_requests_in_one_packet_are_answered_in_their_order(example_server):
    keep = STATUS.replace(b"Connection: close\r\n", b"")
    wrong = request(b"/v1/models/example:predict", b"{").replace(
        b"Connection: close\r\n", b""
    )
    answers = exchange(example_server.port, keep + wrong + keep + RIGHT)
    assert [answer.status for answer in answers] == [200, 400, 200, 200]
    assert json.loads(answers[1].body)["error"].startswith("JSON Parse error")
    assert b"outputs" in answers[3].body


@pytest.mark.parametrize("path", [b"/v1/models/%0A:predict", b"*", b"/%0a", b"example"])
def test_every_path_that_is_no_call_is_refused_in_json(example_server, path):
    (answer,) = exchange(example_server.port, request(path))
    assert answer.status in {400, 404}
    assert answer.content_type == "application/json"
    assert list(json.loads(answer.body)) == ["error"]


def test_whole_address_in_the_request_line_is_as_good_as_the_path(example_server):
    # RFC 9112, 3.2.2: a server must take it, though only clients of proxies send it.
    whole = b"http://127.0.0.1:8501" + PREDICT
    answers = exchange(example_server.port, request(whole, BODY))
    assert answers == exchange(example_server.port, RIGHT)
    assert answers[0].status == 200


@pytest.mark.full
def test_half_a_request_is_not_waited_for_without_end(example_server):
    # The client neither sends more nor says that it will not.
    assert exchange(example_server.port, RIGHT[:60]) == []
    example_server.check_good_request()
