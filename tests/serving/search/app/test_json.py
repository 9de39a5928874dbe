"""JSON that strangers send: bounded, strict, and the image in it decoded apart."""

import base64
import json

import numpy as np
import pytest
from starlette.exceptions import HTTPException

from serving.search.app.json_image import cut_body, decoded
from serving.search.app.strict_json import LONGEST_JSON, read_json

# Longer than what is parsed, and than one piece of what is decoded.
IMAGE = np.random.default_rng(0).bytes(900_001)
TEXT = base64.b64encode(IMAGE)


def body_of(text, before="", after=""):
    return f'{{{before}"image": {{"b64": "{text.decode()}"}}{after}}}'.encode()


def refused(call, *arguments):
    with pytest.raises(HTTPException) as caught:
        call(*arguments)
    return caught.value.status_code, caught.value.detail


def test_json_of_more_than_a_million_bytes_is_refused():
    longest = b'"' + b"x" * (LONGEST_JSON - 2) + b'"'
    assert len(read_json("It", longest)) == LONGEST_JSON - 2
    status, text = refused(read_json, "It", longest + b" ")
    assert status == 413
    assert text.startswith("It may have at most 1 MB of JSON, besides the image")


@pytest.mark.parametrize("unit", ["1,", "[],", '{"":1},', "null,"])
def test_json_of_very_many_values_is_refused(unit):
    text = "[" + unit * 50_001 + "1]"
    status, reason = refused(read_json, "It", text.encode())
    assert status == 413
    assert "at most 50,000 commas and opening brackets" in reason
    assert len(read_json("It", ("[" + "1," * 49_999 + "1]").encode())) == 50_000


def test_a_short_body_is_not_cut():
    assert cut_body(bytearray(body_of(TEXT[:400]))) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ('"k": 3, ', ', "index": "b64"'),
        ('"where": {"b64": "b64"}, ', ', "exclude": ["\\"b64\\":\\""]'),
    ],
)
def test_a_long_body_is_cut_at_its_image(before, after):
    cut = cut_body(bytearray(body_of(TEXT, before, after)))
    values = json.loads(cut.rest)
    ((mark, text),) = cut.texts.items()
    assert values.pop("image") == {"b64": mark}
    own = json.loads(body_of(b"", before, after))
    assert values == {name: own[name] for name in own if name != "image"}
    assert decoded(text) == IMAGE


def test_a_long_body_is_cut_at_each_of_its_images():
    images = [IMAGE, b"", IMAGE[:50_000], IMAGE[::-1]]
    queries = [{"image": {"b64": base64.b64encode(each).decode()}} for each in images]
    body = {"queries": [*queries, {"id": "b64"}], "k": 3, "index": "b64"}
    cut = cut_body(bytearray(json.dumps(body).encode()))
    values = json.loads(cut.rest)
    *found, member = values["queries"]
    assert (member, values["k"], values["index"]) == ({"id": "b64"}, 3, "b64")
    marks = [each["image"]["b64"] for each in found]
    assert [mark for mark in marks if mark] == list(cut.texts)
    whole = [decoded(cut.texts[mark]) if mark else b"" for mark in marks]
    assert whole == images


def test_of_very_many_images_some_stay_in_the_body():
    text = base64.b64encode(bytes(9_000)).decode()
    body = json.dumps({"queries": [{"image": {"b64": text}}] * 100})
    cut = cut_body(bytearray(body.encode()))
    assert len(cut.texts) == 64
    assert len(json.loads(cut.rest)["queries"]) == 100


@pytest.mark.parametrize(
    "body",
    [
        b"x" * (LONGEST_JSON + 1),
        b'"b64"' * 250_000,
        b'{"image": {"b64": "' + b"A" * LONGEST_JSON,  # without an end
        body_of(TEXT, '"exclude": ["' + "x" * LONGEST_JSON + '"], '),
        body_of(TEXT, "", ', "exclude": ["' + "x" * LONGEST_JSON + '"]'),
    ],
)
def test_a_long_body_that_is_no_image_is_refused(body):
    status, text = refused(cut_body, bytearray(body))
    assert status == 413
    assert text.startswith("The body may have at most 1 MB")


@pytest.mark.parametrize(
    "escapes",
    [{"/": "\\/"}, {"+": "\\u002B", "=": "\\u003d"}, {"A": "\\u0041"}],
)
def test_base64_with_the_escapes_of_json_is_decoded(escapes):
    text = TEXT.decode()
    for sign, escape in escapes.items():
        text = text.replace(sign, escape)
    assert len(text) > len(TEXT)
    assert decoded(text.encode()) == IMAGE


@pytest.mark.parametrize("size", [0, 1, 2, 3, 3 * 2**14 - 1, 3 * 2**14, 3 * 2**14 + 1])
def test_images_of_any_size_are_decoded(size):
    content = IMAGE[:size]
    assert decoded(base64.b64encode(content)) == content
    assert decoded(memoryview(base64.b64encode(content))) == content


@pytest.mark.parametrize(
    "text",
    [
        b"?",
        b"A",
        b"AAA",
        b"====",
        b"AA==AAAA",
        b"A A=",
        b"\xff",
        b"AA\\",
        b"AA\\\\",
        b"\\u00e9AAA",
        TEXT[: 2**16 - 4] + b"AA==" + TEXT,  # at the end of a piece
        TEXT[: 2**16 - 1] + b"\\" * 4 + TEXT[: 2**16 + 4],
        TEXT + b"\n",
    ],
)
def test_what_is_no_base64_is_refused(text):
    with pytest.raises(
        ValueError, match=r"(?i)padding|base64|character|codec|escape|string"
    ):
        decoded(text)
