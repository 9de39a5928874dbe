"""Folders in the cloud: what is listed, copied and refused."""

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from serving.storage.remote_folder import RemoteFolder, is_remote, without_secrets
from tests.support.running_s3 import KEY, SECRET, running_s3, s3_at
from tests.support.running_server import running

REFUSAL = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>"""


@pytest.mark.parametrize("path", ["s3://b/x", "gs://b", "az://c/x", "file:///x"])
def test_an_address_is_told_from_a_path(path):
    assert is_remote(path)


@pytest.mark.parametrize("path", ["models", "/models", "C:\\models", "a/b://c"])
def test_a_path_is_told_from_an_address(path, tmp_path):
    assert not is_remote(path)
    assert not is_remote(tmp_path)


@pytest.mark.parametrize("url", ["ftp://host/x", "file:///x", "s3://", "s3:///x"])
def test_addresses_of_other_kinds_are_refused(url):
    with pytest.raises(ValueError, match="must begin with s3://BUCKET") as caught:
        RemoteFolder(url)
    assert url in str(caught.value)


@pytest.mark.parametrize(
    "url", ["s3://key:hidden@bucket/x", "az://c/x?sig=hidden", "s3://bucket/x#hidden"]
)
def test_credentials_in_an_address_are_refused_and_not_shown(url):
    with pytest.raises(ValueError, match="must be a bucket and a path") as caught:
        RemoteFolder(url)
    assert "hidden" not in str(caught.value)


def test_credentials_of_the_environment_are_struck_out(monkeypatch):
    monkeypatch.setenv("SOME_SECRET_KEY", "long-enough-value")
    monkeypatch.setenv("OTHER_KEY", "x")
    text = without_secrets("x was signed by long-enough-value")
    assert text == "x was signed by ***"


@pytest.mark.slow
def test_files_are_listed_as_they_are_now_and_copied(monkeypatch, tmp_path):
    with running_s3(monkeypatch) as s3:
        s3.mkdir("bucket")
        s3.pipe("bucket/models/1/a.txt", b"abc")
        s3.pipe("bucket/models/1/deep/er/b.txt", b"")
        s3.pipe("bucket/models2/1/other.txt", b"x")
        folder = RemoteFolder("s3://bucket/models/")
        before = folder.files()
        assert {name: file.size for name, file in before.items()} == {
            "1/a.txt": 3,
            "1/deep/er/b.txt": 0,
        }
        found = {name: folder.has(name) for name in ("1/a.txt", "1/none", "1")}
        assert found == {"1/a.txt": True, "1/none": False, "1": False}
        (folder / "1").copy("a.txt", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == b"abc"

        s3.pipe("bucket/models/1/a.txt", b"xyz")
        after = folder.files()
        assert after["1/a.txt"].size == 3
        assert after["1/a.txt"] != before["1/a.txt"]
        assert after["1/deep/er/b.txt"] == before["1/deep/er/b.txt"]

        assert RemoteFolder("s3://bucket/nothing").files() == {}
        for read in (
            lambda: (folder / "1").copy("none", tmp_path / "none"),
            RemoteFolder("s3://no-such-bucket/x").files,
        ):
            with pytest.raises(FileNotFoundError, match=r"s3://.* cannot be read"):
                read()


@pytest.mark.slow
def test_a_bucket_that_refuses_is_named_without_credentials(monkeypatch):
    def refuse(request):
        # Some servers tell what they were sent.
        text = REFUSAL.format(message=f"No entry for {KEY}, {SECRET}.")
        return Response(text, 403, media_type="application/xml")

    app = Starlette(routes=[Route("/{path:path}", refuse)])
    with (
        running(app) as url,
        s3_at(monkeypatch, url),
        pytest.raises(PermissionError) as caught,
    ):
        RemoteFolder("s3://closed/models").files()
    text = str(caught.value)
    assert "s3://closed/models cannot be read (PermissionError: No entry for" in text
    assert KEY not in text
    assert SECRET not in text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.slow
def test_a_bucket_that_refuses_does_not_say_that_a_file_is_missing(monkeypatch):
    def refuse(request):
        return Response("", 403)

    app = Starlette(routes=[Route("/{path:path}", refuse)])
    with running(app) as url, s3_at(monkeypatch, url), pytest.raises(PermissionError):
        RemoteFolder("s3://closed/models").has("1/a.txt")
