"""Packages from an npm registry: where it is, what it answers, what is kept."""

import base64
import hashlib
import json
import re

import pytest

from tests.support.closed_port import closed_port
from tests.support.npm_registry import Registry, unset_npm
from training.data.emoji import npm
from training.data.emoji.npm import FetchError, NpmPackage, fetch
from training.data.emoji.npm_settings import DEFAULT_REGISTRY, read_npm_settings

DATA = b"right" * 1000
PACKAGE = NpmPackage(
    "@scope/name", "1.2.3", base64.b64encode(hashlib.sha512(DATA).digest()).decode()
)
PLACE = "/npm/@scope/name/-/name-1.2.3.tgz"


@pytest.fixture
def registry():
    registry = Registry(len(DATA))
    yield registry
    registry.close()


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    """An npm that nobody has set up; the function writes the user's settings."""
    unset_npm(tmp_path, monkeypatch)

    def write(text, system=False):
        path = tmp_path / "system" / "npmrc" if system else tmp_path / "npmrc"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    return write


@pytest.fixture
def folder(tmp_path, registry, monkeypatch):
    monkeypatch.setenv("npm_config_registry", f"{registry.host}/npm")
    return tmp_path / "packages"


def refused(message, folder):
    with pytest.raises(FetchError, match=message) as raised:
        fetch(PACKAGE, folder)
    assert len(str(raised.value)) <= 500


def test_package_is_fetched_once(folder, registry):
    registry.answers[PLACE] = [DATA]
    path = fetch(PACKAGE, folder)
    assert path.name == "scope-name-1.2.3.tgz"
    assert path.read_bytes() == DATA
    assert fetch(PACKAGE, folder) == path
    assert registry.requests == [(PLACE, None)]
    assert list(folder.iterdir()) == [path]


def test_damaged_copy_is_fetched_again(folder, registry):
    registry.answers[PLACE] = [DATA]
    folder.mkdir()
    (folder / PACKAGE.tarball_name).write_bytes(DATA[:100])
    assert fetch(PACKAGE, folder).read_bytes() == DATA


@pytest.mark.parametrize(
    "broken", [503, 429, DATA[:100], b"x" * len(DATA), "silence"], ids=repr
)
def test_broken_answer_is_asked_for_again(folder, registry, monkeypatch, broken):
    monkeypatch.setenv("npm_config_fetch_timeout", "500")
    registry.answers[PLACE] = [broken, DATA]
    assert fetch(PACKAGE, folder).read_bytes() == DATA
    assert len(registry.requests) == 2


@pytest.mark.parametrize(
    ("answer", "reason", "requests"),
    [
        (503, "answers 503", 3),
        (
            b"x" * len(DATA),
            r"SHA-512 of the package must begin with \S{20}\. Rec",
            3,
        ),
        (DATA[:100], "peer closed connection", 3),
        ("silence", "timed out", 3),
        (401, "answers 401: the registry or proxy wants a login", 1),
        (418, "answers 418", 1),
        (404, "has no @scope/name@1.2.3. Is it a mirror", 2),
    ],
)
def test_answer_that_stays_broken_is_reported(
    folder, registry, monkeypatch, answer, reason, requests
):
    monkeypatch.setenv("npm_config_fetch_timeout", "300")
    registry.answers[PLACE] = [answer]
    refused(reason, folder)
    assert len(registry.requests) == requests
    assert not folder.exists()


def test_registry_that_cannot_be_reached_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("npm_config_fetch_retries", "1")
    message = r"@scope/name@1\.2\.3 could not be fetched .* in 2 attempts: .*refused"
    with closed_port() as port:
        url = f"http://127.0.0.1:{port.getsockname()[1]}/"
        monkeypatch.setenv("npm_config_registry", url)
        refused(message, tmp_path / "packages")


def test_package_that_takes_too_long_is_given_up(folder, registry, monkeypatch):
    monkeypatch.setattr(npm, "_MOST_SECONDS", -1.0)
    registry.answers[PLACE] = [DATA]
    refused(r"takes over -1 seconds: 5,000 bytes have come\. Try again", folder)
    assert len(registry.requests) == 1  # the next one would take as long


def test_what_is_fetched_is_told_meanwhile(folder, registry):
    registry.answers[PLACE] = [503, b"x" * len(DATA), DATA]
    said = []
    fetch(PACKAGE, folder, said.append)
    assert said[0] == "@scope/name"
    assert re.fullmatch(r"@scope/name once more \(.*answers 503\)", said[1])
    assert said[2] == "0.0 MB of name-1.2.3.tgz"
    assert "once more (the SHA-512" in said[3]


def test_tarball_may_be_elsewhere(folder, registry, settings):
    settings(f"//127.0.0.1:{registry.server.server_port}/npm/:_authToken=secret\n")
    about = {"dist": {"tarball": f"{registry.host}/files/name.tgz"}}
    text = json.dumps(about).encode()
    registry.answers["/npm/@scope%2Fname/1.2.3"] = [text.ljust(len(DATA))]
    registry.answers["/files/name.tgz"] = [DATA]
    assert fetch(PACKAGE, folder).read_bytes() == DATA
    assert registry.requests == [
        (PLACE, "Bearer secret"),
        ("/npm/@scope%2Fname/1.2.3", "Bearer secret"),
        ("/files/name.tgz", None),
    ]


def test_login_is_not_sent_to_where_a_registry_leads(folder, registry, settings):
    settings(f"//127.0.0.1:{registry.server.server_port}/:_auth=secret\n")
    registry.answers[PLACE] = [f"http://localhost:{registry.server.server_port}/there"]
    registry.answers["/there"] = [DATA]
    assert fetch(PACKAGE, folder).read_bytes() == DATA
    assert registry.requests == [(PLACE, "Basic secret"), ("/there", None)]


def test_environment_stands_before_the_user_and_the_user_before_the_system(
    settings, monkeypatch
):
    assert read_npm_settings().registry("name") == DEFAULT_REGISTRY
    settings("registry = https://system/\nfetch-retries=7\n", system=True)
    assert read_npm_settings().registry("name") == "https://system/"
    monkeypatch.setenv("TOKEN", "abc")
    settings(
        '; a comment\n# another\nregistry="https://user/npm"\naudit\n'
        "@own:registry = https://own/\n//user/npm/:_authToken = ${TOKEN}\n"
    )
    found = read_npm_settings()
    assert found.registry("name") == "https://user/npm/"
    assert found.registry("@other/name") == "https://user/npm/"
    assert found.registry("@own/name") == "https://own/"
    assert found.retries == 7
    token = {"Authorization": "Bearer abc"}
    assert found.authorization("https://user/npm/") == token
    assert found.authorization("https://user/") == {}
    assert found.authorization("https://user/npm-other/") == {}
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://environment")
    assert read_npm_settings().registry("name") == "http://environment/"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("registry = ftp://x/", "`registry` must be a URL of http or https. Rec"),
        ("registry = /folder", "Received: '/folder'"),
        ("cafile = none.pem", "`cafile` must name a file of certificates. Rec"),
        ("cafile = {npmrc}", "`cafile` must name a file of certificates. Rec"),
        ("fetch-timeout = soon", "`fetch-timeout` must be a whole number. Rec"),
        ("fetch-retries = -1", "`fetch-retries` must be a whole number. Rec"),
        ("proxy = ftp://x", "`proxy` must be a URL of http or https. Rec"),
    ],
)
def test_settings_that_cannot_be_used_are_named(tmp_path, settings, text, message):
    settings(text.format(npmrc=tmp_path / "npmrc"))
    refused(message, tmp_path / "packages")


def test_settings_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "npmrc").mkdir()
    refused("npm's settings in .*npmrc cannot be read: ", tmp_path / "packages")
