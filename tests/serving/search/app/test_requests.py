"""Requests that the search service refuses, with the reason."""

import struct
import zlib

import pytest

from tests.support.search_fixtures import (
    DIMENSION,
    MAX_UPLOAD_BYTES,
    encoded,
    error_of,
    post,
)

# Parameters

WRONG = {
    "k": ["0", "101", "-1", "2.5", "", "many", "9" * 5000],
    "limit": ["0", "101", "-1", "many", "9" * 5000],
    "threshold": ["2", "0.49", "-1", "nan", "x", ""],
}
RULES = {
    "k": "`k` must be a whole number from 1 to 100.",
    "limit": "`limit` must be a whole number from 1 to 100.",
    "threshold": "`threshold` must be a number from 0.5 to 1",
}
PATHS = [
    ("/api/similar", "k"),
    ("/api/images", "limit"),
    ("/api/images/sample", "limit"),
    ("/api/duplicates", "limit"),
    ("/api/duplicates", "threshold"),
]


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [(path, name, value) for path, name in PATHS for value in WRONG[name]],
)
def test_a_wrong_parameter_is_refused(page, path, name, value):
    given = {"id": "red/pale.png", name: value}
    text = error_of(page.get(path, params=given), 400)
    assert text.startswith(RULES[name])
    assert f"{value[:15]!r}"[:-1] in text
    assert len(text) < 200


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        *(({"k": value}, RULES["k"]) for value in WRONG["k"]),
        ({"where": "[]"}, "`where` must be a JSON object"),
        ({"exclude": "a"}, "`exclude` must be JSON"),
        ({"crop": "1,2"}, "`crop` must be four numbers"),
        ({"color": "red"}, "Received: 'color'"),
    ],
)
def test_a_wrong_field_of_a_form_is_refused(page, fields, reason):
    assert reason in error_of(post(page, encoded((1, 2, 3)), **fields), 400)


# Uploads


def png_of_size(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body))
        + name
        + body
        + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"hello", "not an image that can be searched with"),
        (b"", "is empty"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image that can"),
        (encoded((1, 2, 3))[:60], "cannot be read as an image"),
        (png_of_size(20_000, 4_000), "too many pixels. At most 64 million"),
        (png_of_size(60_000, 60_000), "too many pixels"),
    ],
)
def test_an_upload_that_is_no_good_image_is_refused_with_the_reason(
    page, content, reason
):
    text = error_of(post(page, content), 400)
    assert reason in text
    assert "image bytes" not in text


def test_an_upload_above_the_limit_is_refused(page):
    text = error_of(post(page, b"x" * (MAX_UPLOAD_BYTES + 1)), 413)
    assert text == "This file is too large. At most 0.2 MB are allowed."
    assert "too large" in error_of(post(page, b"x" * 5 * MAX_UPLOAD_BYTES), 413)


def test_an_upload_of_unstated_length_above_the_limit_is_refused(page):
    def chunks():
        yield b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n'
        yield b"\r\n"
        for _ in range(60):
            yield b"x" * (MAX_UPLOAD_BYTES // 10)

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    response = page.post("/api/search", content=chunks(), headers=headers)
    assert "too large" in error_of(response, 413)


def test_a_request_without_an_image_is_refused(page):
    boundary = {"Content-Type": "multipart/form-data; boundary=b"}
    empty = page.post("/api/search", content=b"--b--\r\n", headers=boundary)
    assert "form field `image`" in error_of(empty, 400)
    part = b'--b\r\nContent-Disposition: form-data; name="image"\r\n\r\nx\r\n--b--\r\n'
    text = page.post("/api/search", content=part, headers=boundary)
    assert "form field `image`" in error_of(text, 400)
    headers = {"Content-Type": "multipart/form-data"}
    assert error_of(page.post("/api/search", content=b"x", headers=headers), 400)
    assert "Send multipart" in error_of(page.post("/api/search", data={"k": 1}), 415)
    assert error_of(page.get("/api/search"), 405)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "The body must be JSON"),
        ("[]", "The body must be a JSON object"),
        ("{}", "one of `image`, `url`, `embedding`, `id` and `text`. Received: none."),
        ('{"id": "a", "url": "b"}', "Received: id, url."),
        ('{"id": "a", "x": 1}', "must not have 'x'"),
        ('{"id": 1}', "`id` must be a string"),
        ('{"image": "aGVsbG8="}', '`image` must be {"b64": "..."}'),
        ('{"image": {"b64": "?"}}', "`b64` must be base64"),
        ('{"image": {"b64": "é"}}', "`b64` must be base64"),
        ('{"image": {"b64": ""}}', "is empty"),
        *(
            (f'{{"id": "red/pale.png", "k": "{value}"}}', RULES["k"])
            for value in WRONG["k"]
        ),
        ('{"embedding": [1, 2]}', f"must have {DIMENSION} numbers. Received: 2."),
        ('{"embedding": [true]}', "`embedding` must be a list of numbers"),
        ('{"embedding": [NaN]}', "a number is not finite"),
        ('{"embedding": [1e999]}', "a number is not finite"),
        (f'{{"embedding": {[0.0] * DIMENSION}}}', "a row of zeros"),
        (f'{{"embedding": {[1.0] * DIMENSION}, "crop": [0, 0, 1, 1]}}', "`crop` must"),
        (
            '{"id": "red/pale.png", "where": {"size": 1}}',
            "`where` must name attributes",
        ),
        ('{"id": "red/pale.png", "where": {"class": 1}}', "must compare with"),
        ('{"id": "red/pale.png", "where": {"class": null}}', "must be a value"),
        ('{"id": "red/pale.png", "where": [1]}', "`where` must be an object"),
        ('{"id": "red/pale.png", "where": []}', "`where` must be an object"),
        ('{"id": "red/pale.png", "exclude": 0}', "`exclude` must be a list"),
        ('{"id": "red/pale.png", "where": {"class": 1' + "0" * 30 + "}}", "64 bits"),
        ('{"id": "a", "where": ' + '{"not":' * 50 + "1" + "}" * 51, "deep"),
        ("[" * 40_000, "must be JSON"),
        ('{"id": "\\ud800"}', "must be JSON"),
        ('{"id": "red/pale.png", "exclude": "a"}', "must be JSON"),
        ('{"id": "red/pale.png", "exclude": [1]}', "`exclude` must be a list of ids"),
        ('{"id": "red/pale.png", "exclude": ["\\u0000"]}', "NUL"),
        ('{"id": "red/pale.png", "index": 1}', "`index` must be a string"),
        ('{"id": "red/pale.png", "crop": "1,2"}', "`crop` must be four numbers"),
        ('{"id": "red/pale.png", "crop": "a,b,c,d"}', "`crop` must be four numbers"),
        ('{"id": "red/pale.png", "crop": [0, 0, 2, 1]}', "inside it"),
        ('{"id": "red/pale.png", "crop": [0, 0, 0, 1]}', "inside it"),
        ('{"id": "red/pale.png", "crop": "nan,0,1,1"}', "inside it"),
    ],
)
def test_a_wrong_body_is_refused_with_the_reason(page, body, reason):
    headers = {"Content-Type": "application/json"}
    response = page.post("/api/search", content=body.encode(), headers=headers)
    assert reason in error_of(response, 400)
