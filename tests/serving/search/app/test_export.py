"""Hits packed into an archive with their images."""

import csv
import io
import shutil
import zipfile

import pytest
from PIL import Image

from serving.search.gallery.opening import open_search
from tests.support.search_fixtures import copy_search, error_of, page_of


def pack(page, hits, **options):
    return page.post("/api/export", json={"hits": hits}, **options)


def unpacked(response):
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/zip"
    archive = zipfile.ZipFile(io.BytesIO(response.content))
    assert archive.testzip() is None
    table = archive.read("hits.csv").decode()
    return archive, list(csv.DictReader(io.StringIO(table)))


def test_images_and_a_table_of_the_hits_are_packed_in_their_order(page):
    given = [("blue/pale.png", 0.75), ("red/clear.png", 0.5)]
    hits = [{"id": id_, "similarity": value} for id_, value in given]
    archive, rows = unpacked(pack(page, hits))
    assert [(row["id"], float(row["similarity"])) for row in rows] == given
    assert [row["rank"] for row in rows] == ["1", "2"]
    assert [row["class"] for row in rows] == ["blue", "red"]
    assert set(archive.namelist()) == {"hits.csv", *(row["file"] for row in rows)}
    with Image.open(io.BytesIO(archive.read(rows[1]["file"]))) as image:
        red, green, blue = image.convert("RGB").getpixel((4, 4))
        assert image.format == "JPEG"
        assert red > 240
        assert max(green, blue) < 15


def test_an_image_that_is_gone_is_listed_without_a_file(colors, colors_url, tmp_path):
    copy_search(colors, tmp_path)
    shutil.rmtree(tmp_path / "images" / "red")
    with (
        open_search(tmp_path / "index", colors_url) as search,
        page_of(search) as client,
    ):
        hits = [{"id": id_} for id_ in ("red/clear.png", "gone.png", "blue/pale.png")]
        archive, rows = unpacked(pack(client, hits))
    assert [row["file"] for row in rows[:2]] == ["", ""]
    assert [row["similarity"] for row in rows] == [""] * 3
    assert archive.namelist() == [rows[2]["file"], "hits.csv"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "`hits` must be a list of 1 to 100 hits."),
        ({"hits": []}, "`hits` must be a list of 1 to 100 hits."),
        ({"hits": [{"id": "a"}] * 101}, "`hits` must be a list of 1 to 100 hits."),
        ({"hits": [{"id": "a"}], "k": 1}, "The body must not have 'k'."),
        ({"hits": ["a"]}, "Each of `hits` must have an `id`"),
        ({"hits": [{"similarity": 1}]}, "The `id` of each of `hits` must be"),
        ({"hits": [{"id": "a\0"}]}, "The `id` of each of `hits` must be"),
        (
            {"hits": [{"id": "a", "similarity": "1"}]},
            "The `similarity` of each of `hits` must be a number.",
        ),
    ],
)
def test_what_cannot_be_packed_is_refused(page, body, text):
    assert text in error_of(page.post("/api/export", json=body), 400)


def test_too_long_a_request_and_an_unknown_index_are_refused(page):
    long = page.post("/api/export", json={"hits": [{"id": "x" * 200_000}]})
    error_of(long, 413)
    unknown = pack(page, [{"id": "red/clear.png"}], params={"index": "gone"})
    assert "There is no index 'gone'" in error_of(unknown, 404)


def test_another_page_may_not_have_an_archive_packed(page):
    headers = {"origin": "https://elsewhere.example"}
    refused = pack(page, [{"id": "red/clear.png"}], headers=headers)
    error_of(refused, 403)
