"""A threshold goes from the run over model and index to the answers of a search."""

import json
import shutil

import keras
import pytest

from serving.__main__ import main
from serving.endpoint.models.calibration import calibration_of_model, save_calibration
from serving.endpoint.models.saved_model import model_fingerprint
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.indexing import embed_shard, index_images, merge_shards
from serving.search.gallery.opening import open_local_search, open_search
from serving.search.gallery.query import File, Query
from serving.search.gallery.shards import Part
from tests.support.search_fixtures import (
    calibration_at,
    encoded,
    page_of,
)
from tfdml.export import read_description
from tfdml.versioned_folder import write_version

THRESHOLD = 0.9
KNOWN = calibration_at(THRESHOLD)


@pytest.fixture
def run(tmp_path):
    """A run folder with two embedders, of which one is calibrated."""
    inputs = keras.Input((8, 8, 3))
    unit = keras.layers.UnitNormalization()(keras.layers.Flatten()(inputs))
    embedder = keras.Model(inputs, unit)
    (tmp_path / "run").mkdir()
    for name in ("embedder.keras", "last.keras"):
        embedder.save(tmp_path / "run" / name)
    (tmp_path / "run/calibration.json").write_text(json.dumps(KNOWN.to_json()))
    return tmp_path / "run"


def export(run, model):
    return main(["export", str(run), str(model), "--warm-up-count", "0"])


def test_the_threshold_of_a_run_decides_what_matches(run, colors, tmp_path, capsys):
    assert export(run, tmp_path / "m" / "1") == 0
    assert str(KNOWN) in capsys.readouterr().out
    assert calibration_of_model(tmp_path / "m" / "1") == KNOWN
    report = index_images(colors / "images", tmp_path / "index", tmp_path / "m")
    line = "No match below a similarity of 0.9000, chosen in a gallery of 200."
    assert line in str(report).splitlines()
    with open_local_search(tmp_path / "index", tmp_path / "m") as search:
        blue = search.nearest(Query(File(encoded((0, 0, 200))), 9))
        yellow = search.nearest(Query(File(encoded((200, 200, 0))), 9))
    # 255 / sqrt(255^2 + 2 w^2) for the whites w of 0, 60 and 120: 1, 0.949 and 0.832.
    matches = [hit.item.id for hit in blue if hit.is_match]
    assert matches == ["blue/clear.png", "blue/pale.png"]
    # (255 + 120) / sqrt(2 (255^2 + 2 120^2)) of yellow and the palest red: 0.8655.
    assert not any(hit.is_match for hit in yellow)


def test_export_without_a_calibration_of_these_weights_has_none(run, tmp_path):
    assert export(run / "last.keras", tmp_path / "m" / "1") == 0
    (run / "calibration.json").unlink()
    assert export(run, tmp_path / "m" / "2") == 0
    for version in "12":
        assert calibration_of_model(tmp_path / "m" / version) is None
        assert not (tmp_path / "m" / version / "assets.extra").exists()


def test_export_of_fewer_dimensions_has_no_threshold(run, tmp_path, capsys):
    model = tmp_path / "m" / "1"
    options = ["--warm-up-count", "0", "--dimensions", "7"]
    assert main(["export", str(run), str(model), *options]) == 0
    assert "one of all its dimensions" in capsys.readouterr().err
    assert calibration_of_model(model) is None
    assert read_description(model)["calibration"] is None


def test_damaged_calibration_ends_the_export_before_anything_is_written(
    run, tmp_path, capsys
):
    (run / "calibration.json").write_text('{"threshold": NaN}')
    assert export(run, tmp_path / "m" / "1") == 1
    assert "calibration.json holds no calibration" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


# Shards


@pytest.fixture
def calibrated_model(colors, tmp_path):
    model = shutil.copytree(colors / "models/colors/1", tmp_path / "colors" / "1")
    save_calibration(model, KNOWN)
    return model


def test_calibration_leaves_the_fingerprint_of_the_model(colors, calibrated_model):
    bare = colors / "models/colors/1"
    assert model_fingerprint(bare) == model_fingerprint(calibrated_model)


def test_merge_keeps_the_calibration(colors, calibrated_model, tmp_path):
    shards = [tmp_path / "1", tmp_path / "2"]
    for number, shard in enumerate(shards, start=1):
        embed_shard(colors / "images", shard, calibrated_model, Part(number, 2))
    report = merge_shards(tmp_path / "merged", shards)
    assert report.gallery.calibration == KNOWN
    assert load_gallery(tmp_path / "merged")[1].calibration == KNOWN


def test_shards_of_two_calibrations_are_not_merged(colors, calibrated_model, tmp_path):
    model, shards = calibrated_model, [tmp_path / "1", tmp_path / "2"]
    for number, shard in enumerate(shards, start=1):
        save_calibration(model, calibration_at(number / 10))
        embed_shard(colors / "images", shard, model, Part(number, 2))
    with pytest.raises(ValueError, match="do not belong together: `calibration` is"):
        merge_shards(tmp_path / "merged", shards)


def test_shard_of_an_earlier_version_is_merged_without_a_calibration(colors, tmp_path):
    model = colors / "models" / "colors"
    embed_shard(colors / "images", tmp_path / "new", model, Part())
    manifest = json.loads((tmp_path / "new" / "manifest.json").read_text())
    (data,) = (tmp_path / "new").glob("data-*")
    description = {n: manifest[n] for n in ("class", "job", "part", "skipped")}
    del description["job"]["calibration"]

    def write(target):
        shutil.copytree(data, target, dirs_exist_ok=True)

    write_version(tmp_path / "old", description, write)
    merge_shards(tmp_path / "merged", [tmp_path / "old"])
    assert load_gallery(tmp_path / "merged")[1].calibration is None


# Answers of the service


def test_replies_tell_the_threshold_and_what_reaches_it(calibrated, colors_url):
    with open_search(calibrated, colors_url) as search, page_of(search) as page:
        for item in page.get("/api/images").json()["images"]:
            reply = page.get("/api/similar", params={"id": item["id"]}).json()
            assert reply["threshold"] == THRESHOLD
            assert reply["match"] is reply["hits"][0]["match"]
            for hit in reply["hits"]:
                assert hit["match"] is (hit["similarity"] >= THRESHOLD)
        (index,) = page.get("/api/info").json()["indexes"]
        assert index["calibration"] == KNOWN.to_json()


def test_replies_without_a_calibration_say_nothing_of_matches(colors, colors_url):
    with open_search(colors / "index", colors_url) as search, page_of(search) as page:
        reply = page.get("/api/similar", params={"id": "red/pale.png"}).json()
        assert set(reply) == {"query", "hits", "seconds", "index", "model_version"}
        item = {"id", "class", "url", "attributes"}
        assert set(reply["hits"][0]) == {*item, "similarity"}
        (index,) = page.get("/api/info").json()["indexes"]
        assert "calibration" not in index
