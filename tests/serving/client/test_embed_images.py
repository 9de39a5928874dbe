"""Folders into NumPy files through the real endpoint; stopped runs go on."""

import contextlib
import json
import os
import shutil

import numpy as np
import pytest

from serving.__main__ import main
from serving.client import Credentials, EndpointClient, EndpointError, Retries
from serving.client.embed_images import embed_images
from serving.client.journal import Journal
from tests.support.image_files import MAX_PIXELS, NO_FILES, UNREADABLE
from tests.support.search_fixtures import (
    DIMENSION,
    PURE,
    SHADES,
    serve_model,
    write_color_model,
    write_gallery_images,
    write_image,
)
from tfdml.images import UnreadableImageError, read_image

PATHS = sorted(f"{name}/{shade}.png" for name in PURE for shade in SHADES)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The folders of the model `colors` and of a `tinted` one. Not to be changed."""
    folder = tmp_path_factory.mktemp("models")
    write_color_model(folder / "colors" / "1")
    write_color_model(folder / "tinted" / "1", tint=(1, 0.5, 0.5))
    return folder


@pytest.fixture(scope="module")
def endpoint_url(models):
    with serve_model(models / "colors") as url:
        yield url


@pytest.fixture
def images(tmp_path):
    return write_gallery_images(tmp_path / "images")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "made" / "embeddings.npz"


def embed(images, file, url, **options):
    return embed_images(
        images, file, url, **{"batch_size": 2, "concurrency": 2, **options}
    )


def test_command_writes_embeddings_and_paths(images, file, endpoint_url, capsys):
    assert main(["embed", str(images), str(file), "--endpoint", endpoint_url]) == 0
    assert f"Wrote 9 embeddings to {file}." in capsys.readouterr().out
    with np.load(file) as data:
        assert list(data["paths"]) == PATHS
        assert data["embeddings"].dtype == np.float32
        assert str(data["model_name"]) == "colors"
        assert int(data["model_version"]) == 1
        assert not len(data["skipped_paths"])
        with EndpointClient(endpoint_url) as client:
            rows = client.embed([images / path for path in PATHS])
        np.testing.assert_allclose(data["embeddings"], rows, atol=1e-6)
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_unreadable_file_ends_the_run_and_what_was_done_is_not_done_again(
    images, file, endpoint_url, monkeypatch
):
    broken = images / "green" / "notes.png"
    broken.write_text("no image")
    with pytest.raises(UnreadableImageError, match=r"notes\.png.*`--skip-unreadable`"):
        embed(images, file, endpoint_url)
    assert not file.exists()
    partial = file.with_name("embeddings.npz.partial")
    done = [json.loads(line)["path"] for line in partial.read_text().splitlines()[1:]]
    assert done == sorted([*PATHS, "green/notes.png"])[: len(done)]
    assert "green/clear.png" in done

    write_image(broken, (9, 9, 9))
    read = []
    monkeypatch.setattr(
        "serving.client.images.read_image",
        lambda image, **options: read.append(image) or read_image(image, **options),
    )
    report = embed(images, file, endpoint_url)
    assert report.resumed == len(done)
    assert report.count == 10
    assert not partial.exists()
    rest = sorted([*PATHS, "green/notes.png"])[len(done) :]
    assert sorted(read[-len(rest) :]) == [images / path for path in rest]
    assert len(read) <= len(rest) + 4  # a few to see that the model is the same
    with np.load(file) as data:
        assert data["embeddings"].shape == (10, DIMENSION)
        assert np.isfinite(data["embeddings"]).all()


def test_unreadable_files_can_be_left_out_and_are_listed(images, file, endpoint_url):
    (images / "green" / "notes.png").write_text("no image")
    report = embed(images, file, endpoint_url, skip_unreadable=True)
    assert report.count == 9
    assert list(report.skipped) == ["green/notes.png"]
    assert "no image format" in str(report)
    with np.load(file) as data:
        assert list(data["paths"]) == PATHS
        assert list(data["skipped_paths"]) == ["green/notes.png"]
        assert "no image format" in data["skipped_reasons"][0]


def test_whatever_cannot_be_read_is_named_or_skipped(images, file, endpoint_url):
    for number, (make, _) in enumerate(UNREADABLE.values()):
        make(images / "green" / f"{number}.png")
    for name, make in NO_FILES.items():
        make(images / "red" / f"{name}.png")
    (images / "x.svg").touch()
    settings = {"max_pixels": MAX_PIXELS}
    with pytest.raises(UnreadableImageError, match=r"green/0\.png.*--skip-unreadable"):
        embed(images, file, endpoint_url, **settings)
    report = embed(images, file, endpoint_url, skip_unreadable=True, **settings)
    assert report.count == 9
    for number, (_, why) in enumerate(UNREADABLE.values()):
        assert why in report.skipped[f"green/{number}.png"]
    assert "this format is not read: 1 file (1 .svg)" in str(report)
    assert "not a regular file: 2 files" in str(report)


def test_folder_of_nothing_readable_is_refused(tmp_path, file, endpoint_url):
    (tmp_path / "notes.png").write_text("no image")
    with pytest.raises(UnreadableImageError, match=r"None of the 1 images.*notes\.png"):
        embed(tmp_path, file, endpoint_url, skip_unreadable=True)
    assert not file.exists()


def test_endpoint_that_goes_away_loses_nothing(
    images, file, models, endpoint_url, monkeypatch
):
    stop = []

    def add_and_stop(journal, embedding):
        add(journal, embedding)
        if len(journal) == 3:
            stop.pop().close()

    add = Journal.add
    monkeypatch.setattr(Journal, "add", add_and_stop)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serve_model(models / "colors"))
        stop.append(stack)
        with pytest.raises(EndpointError, match="cannot be reached"):
            embed(
                images,
                file,
                url,
                batch_size=1,
                concurrency=1,
                retries=Retries(count=0),
            )
    monkeypatch.undo()
    report = embed(images, file, endpoint_url)
    assert 3 <= report.resumed < 9
    with np.load(file) as data, EndpointClient(endpoint_url) as client:
        rows = client.embed([images / path for path in PATHS])
        np.testing.assert_allclose(data["embeddings"], rows, atol=1e-6)


def test_images_of_another_version_are_not_mixed_in(
    images, file, models, endpoint_url, tmp_path
):
    (images / "green" / "notes.png").write_text("no image")
    with pytest.raises(UnreadableImageError):
        embed(images, file, endpoint_url)
    shutil.copytree(models / "tinted" / "1", tmp_path / "colors" / "2")
    with (
        serve_model(tmp_path / "colors") as url,
        pytest.raises(ValueError, match=r"another model\. Delete it"),
    ):
        embed(images, file, url, skip_unreadable=True)


def test_model_that_was_replaced_under_its_version_is_not_mixed_in(
    images, file, models, endpoint_url, tmp_path
):
    (images / "green" / "notes.png").write_text("no image")
    with pytest.raises(UnreadableImageError):
        embed(images, file, endpoint_url)
    partial = file.with_name("embeddings.npz.partial")
    before = partial.read_bytes()
    shutil.copytree(models / "tinted" / "1", tmp_path / "colors" / "1")
    with (
        serve_model(tmp_path / "colors") as url,
        pytest.raises(ValueError, match=r"partial holds.*another model.*Delete it"),
    ):
        embed(images, file, url, skip_unreadable=True)
    assert partial.read_bytes() == before
    assert embed(images, file, endpoint_url, skip_unreadable=True).resumed


@pytest.mark.parametrize("how", ["content", "size", "gone", "left out"])
def test_image_that_has_changed_since_it_was_done_is_refused(
    images, file, endpoint_url, how
):
    done = images / "blue" / "clear.png"
    left_out = images / "blue" / "a.png"
    left_out.write_text("no image")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serving.client.embed_images._write", _fail)
        with pytest.raises(OSError, match="disk full"):
            embed(images, file, endpoint_url, skip_unreadable=True)
    content, status = done.read_bytes(), done.stat()
    if how == "content":  # of the same length
        done.write_bytes(content[:-1] + b"x")
        os.utime(done, ns=(status.st_atime_ns, status.st_mtime_ns + 1000))
    elif how == "size":
        done.write_bytes(content + b"x")
        os.utime(done, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif how == "gone":
        done.unlink()
        done.symlink_to("nowhere.png")
    else:
        write_image(left_out, (9, 9, 9))
    name = "blue/a.png" if how == "left out" else "blue/clear.png"
    with pytest.raises(ValueError, match=rf"'{name}', which has changed.*Delete it"):
        embed(images, file, endpoint_url, skip_unreadable=True)
    assert file.with_name("embeddings.npz.partial").exists()


def test_earlier_file_stays_until_the_new_one_is_complete(images, file, endpoint_url):
    file.parent.mkdir()
    file.write_text("of before")
    (images / "green" / "notes.png").write_text("no image")
    with pytest.raises(UnreadableImageError):
        embed(images, file, endpoint_url)
    assert file.read_text() == "of before"
    embed(images, file, endpoint_url, skip_unreadable=True)
    assert np.load(file)["embeddings"].shape == (9, DIMENSION)


def test_what_an_earlier_run_left_out_is_not_left_out_in_silence(
    images, file, endpoint_url
):
    (images / "blue" / "a.png").write_text("no image")
    (images / "red" / "z.png").write_text("no image")
    partial = file.with_name("embeddings.npz.partial")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serving.client.embed_images._write", _fail)
        with pytest.raises(OSError, match="disk full"):
            embed(images, file, endpoint_url, skip_unreadable=True)
    assert partial.exists()
    with pytest.raises(UnreadableImageError, match=r"An earlier run left.*a\.png"):
        embed(images, file, endpoint_url)
    assert embed(images, file, endpoint_url, skip_unreadable=True).resumed == 11


def _fail(*arguments):
    raise OSError("disk full")


def test_other_file_name_is_refused(images, tmp_path, endpoint_url):
    with pytest.raises(ValueError, match=r"must end in \.npz"):
        embed(images, tmp_path / "embeddings.csv", endpoint_url)


TOKENS = "# of the endpoint\n\n  s3cret  \nanother\n"


@pytest.mark.parametrize("content", ["s3cret", "s3cret\n", TOKENS])
def test_command_takes_token_and_certificates_from_files(
    content, tmp_path, monkeypatch
):
    calls = []
    monkeypatch.setattr(
        "serving.client.embed_images.embed_images", lambda *a, **k: calls.append((a, k))
    )
    (tmp_path / "token").write_text(content)
    words = ["embed", "a", "b.npz", "--endpoint", "grpcs://h/m", "--concurrency", "7"]
    words += ["--token-file", str(tmp_path / "token"), "--ca-file", "ca.pem"]
    words += ["--certificate-file", "own.pem", "--key-file", "own.key"]
    assert main(words) == 0
    ((where, options),) = calls
    assert where == ("a", "b.npz", "grpcs://h/m")
    assert options["credentials"] == Credentials(
        "s3cret", "ca.pem", "own.pem", "own.key"
    )
    assert options["concurrency"] == 7
    assert not options["skip_unreadable"]


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["embed", "a", "b.npz"], "--token-file"),
        (["page", "a"], "--endpoint-token-file"),
    ],
)
def test_file_without_a_token_and_certificate_without_a_key_are_refused(
    command, option, tmp_path, capsys
):
    (tmp_path / "token").write_text("# none yet\n\n")
    words = [*command, "--endpoint", "grpcs://h/m"]
    assert main([*words, option, str(tmp_path / "token")]) == 1
    assert "token must have at least one token" in capsys.readouterr().err
    assert main([*words, "--certificate-file", "own.pem"]) == 1
    assert "must be given together" in capsys.readouterr().err


# The journal alone

JOB = {"model": "m", "images": 3}
NAMES = ["a.png", "b.png", "c.png"]


STAMPS = [[1, 1], [1, 2], []]


def open_journal(file, job=JOB, stamps=STAMPS):
    return Journal(file, job, NAMES, stamps, remedy="Delete it.")


@pytest.mark.parametrize("lost", [1, 5, 30])
def test_line_that_was_not_finished_is_dropped(tmp_path, lost):
    with open_journal(tmp_path / "j") as journal:
        journal.add(np.array([1, 2], np.float32))
        journal.add(np.array([3, 4], np.float32))
    content = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(content[:-lost])
    with open_journal(tmp_path / "j") as journal:
        assert len(journal) == 1
        journal.leave_out("broken")
        journal.add(np.array([5, 6], np.float32))
    with open_journal(tmp_path / "j") as journal:
        assert journal.embedded == ["a.png", "c.png"]
        assert journal.embeddings.tolist() == [[1, 2], [5, 6]]
        assert journal.skipped == {"b.png": "broken"}


@pytest.mark.parametrize("kept", [0, 1, 9, -1])
def test_first_line_that_was_not_finished_begins_anew(tmp_path, kept):
    with open_journal(tmp_path / "j"):
        pass
    (tmp_path / "j").write_bytes((tmp_path / "j").read_bytes()[:kept])
    with open_journal(tmp_path / "j") as journal:
        assert len(journal) == 0
    with open_journal(tmp_path / "j") as journal:
        assert len(journal) == 0


@pytest.mark.parametrize("content", [b"x", b'{"model"', b"a,b\n1,2", b"\xff" * 9])
def test_file_of_somebody_else_is_refused_and_stays(tmp_path, content):
    (tmp_path / "{j}").write_bytes(content)
    with pytest.raises(ValueError, match=r"\{j\} was begun with other.*Delete it"):
        open_journal(tmp_path / "{j}")
    assert (tmp_path / "{j}").read_bytes() == content


def test_image_with_another_stamp_is_refused_and_one_that_is_to_come_is_not(tmp_path):
    with open_journal(tmp_path / "j") as journal:
        journal.add(np.ones(2, np.float32))
    with open_journal(tmp_path / "j", stamps=[[1, 1], [5, 5], [5, 5]]) as journal:
        assert len(journal) == 1
    with pytest.raises(ValueError, match=r"'a.png', which has changed.*Delete it"):
        open_journal(tmp_path / "j", stamps=[[1, 2], [1, 2], []])


@pytest.mark.parametrize(
    "line",
    [
        b"text\n",
        b"[]\n",
        b'{"path": "b.png", "stamp": [1, 1], "reason": ""}\n',
        b'{"path": "a.png", "stamp": [1, 1]}\n',
        b'{"path": "a.png", "reason": ""}\n',
        b'{"path": "a.png", "stamp": [1, 1], "embedding": "AAA"}\n',
        b'{"path": "a.png", "stamp": [1, 1], "embedding": "AAAA"}\n',
    ],
)
def test_damaged_journal_is_refused_with_the_remedy(tmp_path, line):
    with open_journal(tmp_path / "j"):
        pass
    with (tmp_path / "j").open("ab") as file:
        file.write(line)
    with pytest.raises(ValueError, match=r"is damaged\. Delete it"):
        open_journal(tmp_path / "j")


def test_journal_of_another_job_is_refused_and_stays(tmp_path):
    with open_journal(tmp_path / "j") as journal:
        journal.add(np.ones(2, np.float32))
    before = (tmp_path / "j").read_bytes()
    with pytest.raises(ValueError, match=r"other images or another model\. Delete it"):
        open_journal(tmp_path / "j", {**JOB, "images": 4})
    assert (tmp_path / "j").read_bytes() == before


def test_journal_is_open_once_at_a_time(tmp_path):
    with (
        open_journal(tmp_path / "j"),
        pytest.raises(OSError, match="Another process is writing"),
    ):
        open_journal(tmp_path / "j")
