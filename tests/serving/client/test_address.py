"""Addresses that users write. Oracle: the documentation of the client."""

import pytest

from serving.client.address import at_version, parse_address


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:8501/v1/models/emoji", (False, False, "h:8501", None, None)),
        ("http://h/v1/models/emoji/", (False, False, "h:80", None, None)),
        ("https://h/v1/models/emoji/versions/3", (False, True, "h:443", 3, None)),
        ("http://h/serving/v1/models/emoji", (False, False, "h:80", None, None)),
        ("http://h:1/v1/models/emoji/labels/new", (False, False, "h:1", None, "new")),
        ("grpc://h/emoji", (True, False, "h:8500", None, None)),
        ("grpc://h:9/emoji/versions/12", (True, False, "h:9", 12, None)),
        ("grpcs://h:9/emoji/labels/stable", (True, True, "h:9", None, "stable")),
        ("grpc://[::1]:9/v1/models/emoji", (True, False, "[::1]:9", None, None)),
        ("grpc://h:9/%65moji", (True, False, "h:9", None, None)),
    ],
)
def test_address_says_protocol_place_and_version(url, expected):
    parsed = parse_address(url)
    found = (parsed.is_grpc, parsed.is_encrypted, parsed.target)
    assert (*found, parsed.version, parsed.label) == expected
    assert parsed.name == "emoji"
    assert parsed.url == url.rstrip("/")


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("[::1]", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_only_this_machine_is_loopback(host, is_loopback):
    assert parse_address(f"grpc://{host}/m").is_loopback == is_loopback


@pytest.mark.parametrize(
    "url",
    [
        "grpc://h:8500",
        "grpc://h:8500/",
        "grpc:///emoji",
        "grpc://h:8500/models/emoji",
        "grpc://h:8500/emoji:predict",
        "grpc://h:8500/emoji/versions/one",
        "grpc://h:8500/emoji?version=1",
        "grpc://h:8500/emoji#1",
        "grpc://h:port/emoji",
        "http://h/v1/models/emoji/versions/9999999999999999999",
        "http://h/v1/models/emoji/versions/1/labels/stable",
        "https//h/v1/models/emoji",
    ],
)
def test_what_is_no_address_of_a_model_is_refused(url):
    with pytest.raises(ValueError, match="`url` must be the address of a model"):
        parse_address(url)


@pytest.mark.parametrize("scheme", ["http", "grpcs"])
def test_password_in_an_address_is_refused_and_not_shown(scheme):
    with pytest.raises(ValueError, match="must not hold a user name") as caught:
        parse_address(f"{scheme}://user:hunter2@h/v1/models/emoji")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("choice", ["", "/", "/versions/1", "/labels/stable"])
def test_version_takes_the_place_of_version_and_label(choice):
    found = at_version(f"grpc://h:8500/emoji{choice}", 7)
    assert found == "grpc://h:8500/emoji/versions/7"
