"""A threshold goes from the run over model and index to the answers of a search."""

import json
import shutil

import keras
import pytest

from serving.__main__ import main
from serving.endpoint.models.saved_model import model_fingerprint
from serving.export.calibration import calibration_of_model, save_calibration
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.indexing import embed_shard, index_images, merge_shards
from serving.search.gallery.opening import open_search
from serving.search.gallery.query import Query, Upload
from serving.search.gallery.shards import Part
from tests.support.search_fixtures import (
    build_search,
    calibration_at,
    page_of,
    serve_model,
    write_color_model,
    write_gallery_images,
    write_picture,
)
from tfdml.index.storage import write_version

THRESHOLD = 0.9
KNOWN = calibration_at(THRESHOLD)
MODEL = "models/colors/1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_search(tmp_path_factory.mktemp("search"), threshold=THRESHOLD)


@pytest.fixture(scope="module")
def search(folder):
    with (
        serve_model(folder / "models" / "colors") as url,
        open_search(folder / "index", url) as search,
    ):
        yield search


@pytest.fixture(scope="module")
def page(search):
    with page_of(search) as client:
        yield client


# From the run to the model


@pytest.fixture
def run(tmp_path):
    """A run folder with two embedders, of which one is calibrated."""
    inputs = keras.Input((8, 8, 3))
    embedder = keras.Model(inputs, keras.layers.Flatten()(inputs))
    (tmp_path / "run").mkdir()
    for name in ("embedder.keras", "last.keras"):
        embedder.save(tmp_path / "run" / name)
    (tmp_path / "run/calibration.json").write_text(json.dumps(KNOWN.to_json()))
    return tmp_path / "run"


def test_export_copies_the_calibration_of_the_run(run, tmp_path, capsys):
    assert (
        main(["export", str(run), str(tmp_path / "m" / "1"), "--warm-up-count", "0"])
        == 0
    )
    assert calibration_of_model(tmp_path / "m" / "1") == KNOWN
    extra = tmp_path / "m/1/assets.extra"
    assert [file.name for file in extra.iterdir()] == ["calibration.json"]
    assert str(KNOWN) in capsys.readouterr().out


def test_export_of_other_weights_has_no_calibration(run, tmp_path):
    assert (
        main(
            [
                "export",
                str(run / "last.keras"),
                str(tmp_path / "m" / "1"),
                "--warm-up-count",
                "0",
            ]
        )
        == 0
    )
    assert calibration_of_model(tmp_path / "m" / "1") is None


def test_export_of_a_run_without_a_calibration_has_none(run, tmp_path):
    (run / "calibration.json").unlink()
    assert (
        main(["export", str(run), str(tmp_path / "m" / "1"), "--warm-up-count", "0"])
        == 0
    )
    assert not (tmp_path / "m/1/assets.extra").exists()


def test_damaged_calibration_ends_the_export_before_anything_is_written(
    run, tmp_path, capsys
):
    (run / "calibration.json").write_text('{"threshold": NaN}')
    assert (
        main(["export", str(run), str(tmp_path / "m" / "1"), "--warm-up-count", "0"])
        == 1
    )
    assert "calibration.json holds no calibration" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


# From the model to the index


def test_index_takes_the_calibration_of_the_model(folder):
    assert load_gallery(folder / "index")[1].calibration == KNOWN


def test_report_of_the_index_tells_the_threshold(folder, tmp_path):
    report = index_images(folder / "images", tmp_path, folder / MODEL)
    line = "No match below a similarity of 0.9000, chosen in a gallery of 200."
    assert line in str(report).splitlines()


def test_calibration_leaves_the_fingerprint_of_the_model(folder, tmp_path):
    bare = shutil.copytree(folder / MODEL, tmp_path / "1")
    shutil.rmtree(bare / "assets.extra")
    assert model_fingerprint(bare) == model_fingerprint(folder / MODEL)


def test_merge_keeps_the_calibration(folder, tmp_path):
    shards = [tmp_path / "1", tmp_path / "2"]
    for number, shard in enumerate(shards, start=1):
        embed_shard(folder / "images", shard, folder / MODEL, Part(number, 2))
    report = merge_shards(tmp_path / "merged", shards)
    assert report.gallery == load_gallery(folder / "index")[1]
    assert load_gallery(tmp_path / "merged")[1].calibration == KNOWN


def test_shards_of_two_calibrations_are_not_merged(folder, tmp_path):
    models = shutil.copytree(folder / "models", tmp_path / "models")
    model, shards = models / "colors" / "1", [tmp_path / "1", tmp_path / "2"]
    for number, shard in enumerate(shards, start=1):
        save_calibration(model, calibration_at(number / 10))
        embed_shard(folder / "images", shard, model, Part(number, 2))
    with pytest.raises(ValueError, match="do not belong together: `calibration` is"):
        merge_shards(tmp_path / "merged", shards)


def test_shard_of_an_earlier_version_is_merged_without_a_calibration(tmp_path):
    write_color_model(tmp_path / "colors" / "1")
    images = write_gallery_images(tmp_path / "images")
    embed_shard(images, tmp_path / "new", tmp_path / "colors", Part())
    manifest = json.loads((tmp_path / "new" / "manifest.json").read_text())
    (data,) = (tmp_path / "new").glob("data-*")
    description = {n: manifest[n] for n in ("class", "job", "part", "skipped")}
    del description["job"]["calibration"]

    def write(target):
        shutil.copytree(data, target, dirs_exist_ok=True)

    write_version(tmp_path / "old", description, write)
    merge_shards(tmp_path / "merged", [tmp_path / "old"])
    assert load_gallery(tmp_path / "merged")[1].calibration is None


# From the index to the answer


def hits_of(page, tmp_path, color):
    image = write_picture(tmp_path / "query.png", color).read_bytes()
    reply = page.post("/api/search", files={"image": ("query", image)})
    assert reply.status_code == 200
    return reply.json()


def test_hits_from_the_threshold_on_are_matches(page, tmp_path):
    reply = hits_of(page, tmp_path, (0, 0, 200))
    assert (reply["match"], reply["threshold"]) == (True, THRESHOLD)
    matches = [hit["id"] for hit in reply["hits"] if hit["match"]]
    # 255 / sqrt(255^2 + 2 w^2) for the whites w of 0, 60 and 120: 1, 0.949 and 0.832.
    assert matches == ["blue/clear.png", "blue/pale.png"]
    for hit in reply["hits"]:
        assert hit["match"] == (hit["similarity"] >= THRESHOLD)


def test_query_of_no_class_of_the_gallery_has_no_match(page, tmp_path):
    reply = hits_of(page, tmp_path, (200, 200, 0))
    assert reply["match"] is False
    assert len(reply["hits"]) == 9
    assert not any(hit["match"] for hit in reply["hits"])
    # (255 + 120) / sqrt(2 (255^2 + 2 120^2)) of yellow and the palest red.
    assert reply["hits"][0]["similarity"] == pytest.approx(0.8655, abs=1e-3)


def test_image_of_the_gallery_is_answered_by_the_same_rule(page):
    for item in page.get("/api/images").json()["images"]:
        reply = page.get("/api/similar", params={"id": item["id"]}).json()
        assert reply["match"] == (reply["hits"][0]["similarity"] >= THRESHOLD)


def test_info_tells_the_calibration(page):
    (index,) = page.get("/api/info").json()["indexes"]
    assert index["calibration"] == KNOWN.to_json()


def test_search_marks_its_hits(search, tmp_path):
    image = write_picture(tmp_path / "q.png", (0, 0, 200)).read_bytes()
    assert [hit.is_match for hit in search.nearest(Query(Upload(image), 3))] == [
        True,
        True,
        False,
    ]


def test_replies_without_a_calibration_say_nothing_of_matches(tmp_path):
    folder = build_search(tmp_path)
    with (
        serve_model(folder / "models" / "colors") as url,
        open_search(folder / "index", url) as search,
        page_of(search) as page,
    ):
        reply = page.get("/api/similar", params={"id": "red/pale.png"}).json()
        assert set(reply) == {"query", "hits", "seconds", "index"}
        item = {"id", "class", "url", "attributes"}
        assert set(reply["hits"][0]) == {*item, "similarity"}
        (index,) = page.get("/api/info").json()["indexes"]
        assert "calibration" not in index
