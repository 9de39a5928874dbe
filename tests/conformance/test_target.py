"""That a server which is named is found to be the one that it is."""

import dataclasses

import pytest

from tests.conformance.target import named_target


@pytest.fixture
def named(target, monkeypatch):
    """Name our own server, as `make test-conformance TARGET=...` does."""
    if not target.is_own:
        pytest.skip("a server is named already")

    def name(**variables):
        address = target.rest.removeprefix("http://")
        variables = {"TARGET": address, "GRPC_TARGET": target.grpc, **variables}
        for key, value in variables.items():
            monkeypatch.setenv(f"CONFORMANCE_{key}", value)
        return named_target()

    return name


@pytest.mark.parametrize(("label", "version"), [("stable", 1), ("canary", 2)])
def test_version_of_a_label_is_asked_of_a_named_server(named, target, label, version):
    assert named(LABEL=label) == dataclasses.replace(
        target, label=label, labeled_version=version, is_own=False
    )


def test_named_server_without_a_label_has_no_labeled_version(named):
    found = named()
    assert (found.label, found.labeled_version) == (None, None)


def test_proxy_of_the_environment_is_not_asked(named, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    assert named().model == "demo"


def test_target_without_a_port_is_refused(named):
    with pytest.raises(ValueError, match="TARGET must be the server's HOST:PORT"):
        named(TARGET="127.0.0.1")
