"""`training emoji` where the network or the disk is bad: what a person reads."""

import base64
import errno
import hashlib
import os
import socket
from dataclasses import replace

import pytest

from tests.support.closed_port import closed_port
from tests.support.npm_registry import Registry, unset_npm
from tfdml.messages import LONGEST
from training.__main__ import main
from training.data.emoji.build import build_emoji
from training.data.emoji.sets import EMOJI_SETS

FIRST = EMOJI_SETS[0].package
WHOLE = 1000


@pytest.fixture(autouse=True)
def npm(tmp_path, monkeypatch):
    unset_npm(tmp_path, monkeypatch)
    monkeypatch.setenv("npm_config_fetch_retries", "1")


@pytest.fixture
def registry(monkeypatch):
    registry = Registry(WHOLE)
    monkeypatch.setenv("npm_config_registry", registry.host)
    yield registry
    registry.close()


@pytest.fixture
def failed(tmp_path, capsys):
    """Return a function: run the command, which fails, and return what it says."""

    def run(folder=tmp_path / "emoji"):
        assert main(["emoji", str(folder)]) == 1
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith("error: ")
        assert len(told.err) <= LONGEST + len("error: \n")
        assert not (folder / "manifest.csv").exists()  # so `make demo` asks again
        return told.err

    return run


def test_no_network(failed, monkeypatch):
    def unknown(*arguments, **options):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    said = failed()
    assert f"{FIRST.name}@{FIRST.version} could not be fetched from https://" in said
    assert "in 2 attempts: " in said
    assert "Temporary failure in name resolution. Check that the npm registry" in said


def test_a_proxy_that_is_not_there(failed, monkeypatch):
    with closed_port() as port:
        url = f"http://127.0.0.1:{port.getsockname()[1]}"
        monkeypatch.setenv("npm_config_proxy", url)
        monkeypatch.setenv("npm_config_registry", "http://registry.test/")
        assert "refused. Check that the npm registry can be reached" in failed()


def test_a_registry_that_says_nothing(failed, registry, monkeypatch):
    monkeypatch.setenv("npm_config_fetch_timeout", "300")
    registry.answers["*"] = ["silence"]
    assert "in 2 attempts: timed out. Check that" in failed()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"x" * WHOLE, "the SHA-512 of the package must begin with "),
        (b"x" * 10, "peer closed connection"),
    ],
    ids=["another archive", "half an archive"],
)
def test_a_broken_archive(failed, registry, answer, reason):
    registry.answers["*"] = [answer]
    assert reason in failed()


def test_a_full_disk(failed, registry, tmp_path, monkeypatch):
    def fail(handle):  # some disks say it only when a file is to be kept
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    archive = b"x" * WHOLE
    digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    first = replace(EMOJI_SETS[0], package=replace(FIRST, sha512=digest))
    monkeypatch.setitem(build_emoji.__kwdefaults__, "sets", (first,))
    monkeypatch.setattr(os, "fsync", fail)
    registry.answers["*"] = [archive]
    said = failed()
    packages = tmp_path / "emoji" / ".packages"
    assert f"The disk is full: there is no room for {packages}" in said
    assert said.endswith(". Make room on it, and run the command again.\n")
    assert not list(packages.iterdir())
