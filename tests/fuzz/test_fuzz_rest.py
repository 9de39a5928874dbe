"""Malformed REST requests: refused with a code and a text, and the server goes on.

What a malformed request may be answered with comes from TF Serving's table of codes:
4xx. 500 would say that the server is at fault.
"""

import gzip
import json
import zlib

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.conftest import MAX_BODY_BYTES
from tests.fuzz.mutated_bytes import fuzzing, mutated
from tests.fuzz.nearly_right_json import BODIES, bodies
from tests.fuzz.raw_http import exchange, request
from tests.fuzz.server_process import ANSWER_SECONDS

pytestmark = pytest.mark.slow

PREDICT = b"/v1/models/example:predict"


@pytest.fixture(scope="module")
def client():
    with httpx2.Client(timeout=ANSWER_SECONDS, trust_env=False) as connection:
        yield connection


def is_refusal(status, content_type, body, codes):
    """Whether the request was refused; fails if the answer breaks the protocol."""
    if status == 200:
        return False
    assert status in codes, (status, body[:500])
    assert content_type == "application/json"
    document = json.loads(body)
    assert list(document) == ["error"]
    assert document["error"]
    return True


def test_wrong_bodies_are_refused(example_server, client, examples):
    refused = set()

    @fuzzing(examples)
    @given(bodies())
    # A string with a lone surrogate in the name of a signature, of an input, a value.
    @example(b'{"signature_name": "\\ud800", "instances": [1]}')
    @example(b'{"instances": [{"\\ud800": 1}]}')
    @example(b'{"signature_name": "total", "inputs": "\\ud800"}')
    def send(body):
        example_server.revive()
        response = client.post(f"{example_server.url}:predict", content=body)
        kind = response.headers["content-type"]
        if is_refusal(response.status_code, kind, response.content, {400, 413}):
            refused.add(body)
        example_server.check_alive(body)

    send()
    example_server.check_good_request()
    assert len(refused) >= examples / 2


# zlib at its best makes a thousandth of zeros.
BOMB = gzip.compress(bytes(300 * MAX_BODY_BYTES))
COMPRESSED = tuple(map(gzip.compress, BODIES))
CODINGS = st.sampled_from(
    [
        *("gzip", "gzip", "gzip", "gzip", "GZIP", "gzip, gzip", "gzip,identity"),
        *("deflate", "br", "x-gzip", "", " ", "gzip;q=1", "identity, gzip", "\xff"),
        *("identity", "compress", "g" * 5000),
    ]
)
GZIP_BODIES = st.one_of(
    mutated(COMPRESSED),
    mutated(COMPRESSED),
    st.sampled_from(COMPRESSED).map(gzip.compress),
    st.sampled_from(COMPRESSED).map(lambda data: data + data),
    st.sampled_from(BODIES).map(zlib.compress),
    st.sampled_from([b"", BOMB, gzip.compress(BOMB), COMPRESSED[0] + BOMB]),
    mutated((BOMB,)),
)


def test_wrong_content_encodings_are_refused(example_server, examples):
    refused = set()

    @fuzzing(examples)
    @given(GZIP_BODIES, CODINGS)
    @example(BOMB, "gzip")
    @example(gzip.compress(BOMB), "gzip")
    def send(body, coding):
        example_server.revive()
        header = b"Content-Encoding: %s\r\n" % coding.encode("latin-1")
        sent = request(PREDICT, body, headers=header)
        (answer,) = exchange(example_server.port, sent)
        if is_refusal(answer.status, answer.content_type, answer.body, {400, 413, 415}):
            refused.add((body, coding))
        example_server.check_alive(sent)

    send()
    example_server.check_good_request()
    assert len(refused) >= examples / 2


NUMBERS = st.sampled_from(
    [
        *("0", "-1", "+1", "1.0", "01", "1e0", "00000000000000000001", "9" * 19),
        *(str(2**63 - 1), str(2**63), str(2**64 + 1), "9" * 20, "9" * 5000, "", "x"),
        *("%31", "%D9%A1", "\xb2", "1%00", "1%20", " 1", "1_0", "0x1", "2"),
    ]
)
NAMES = st.sampled_from(
    [
        *("example", "example", "ex%61mple", "exampl%", "example%zz", "%", "%2", "x"),
        *("..", "%2e%2e", "..%2f..%2fetc", "%2e%2e%2f" * 50, "example%2F1", "%00"),
        *("example%00", "example%3Apredict", "%ff%fe", "%ed%a0%80", "\xff", "{}"),
        *("e" * 3000, "%41" * 3000, "example ", "example?", "example#", "example;x"),
        *("EXAMPLE", "", "example:predict", "example\\", "<b>", "'", '"', "%0d%0aX:1"),
    ]
)
TAILS = st.sampled_from(
    [
        *(":predict", ":classify", ":regress", ":PREDICT", ":predict/", ":predict?x=1"),
        *("", "/metadata", "/metadata/", "/", ":", "::predict", ":predict:predict"),
        *(":explain", ":predict%00", "%3Apredict", "/metadata:predict", "/../x"),
    ]
)
METHODS = st.sampled_from(
    ["GET", "POST", "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "FOO"]
)


@st.composite
def addresses(draw):
    """Paths that are almost those of a call."""
    path = draw(st.sampled_from(["/v1/models/", "/V1/Models/", "/v1/models", "/v1//"]))
    path += draw(NAMES)
    kind = draw(st.sampled_from(["", "/versions/", "/labels/", "/Versions/", "/v/"]))
    if kind:
        path += kind + draw(NUMBERS)
    return path + draw(TAILS)


def test_wrong_addresses_are_refused(example_server, examples):
    refused = set()

    @fuzzing(examples)
    @given(METHODS, addresses(), st.sampled_from([BODIES[0], b"{}", b""]))
    def send(method, path, body):
        example_server.revive()
        sent = request(path.encode("latin-1"), body, method=method.encode())
        (answer,) = exchange(example_server.port, sent)
        # A space or a byte above 127 in the request line is no HTTP; what reads HTTP
        # then answers before our application.
        if b"The request is not valid HTTP" in answer.body:
            assert answer.status == 400
            assert any(not "!" <= letter <= "~" for letter in path)
            refused.add((method, path))
        elif method == "HEAD":
            assert answer.status in {400, 404, 405}
            assert answer.body == b""
            refused.add((method, path))
        elif is_refusal(answer.status, answer.content_type, answer.body, {400, 404}):
            refused.add((method, path))
        example_server.check_alive(sent)

    send()
    example_server.check_good_request()
    assert len(refused) >= examples / 2
