"""A gallery that keeps the first dimensions of its embeddings."""

import json
import shutil

import numpy as np
import pytest

from serving.__main__ import main
from serving.endpoint.models.calibration import save_calibration
from serving.search.gallery.changing import add_images
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.indexing import embed_shard, index_images, merge_shards
from serving.search.gallery.opening import open_local_search, open_search
from serving.search.gallery.query import Embedding, File, Query
from serving.search.gallery.shards import Part
from tests.support.search_fixtures import calibration_at, encoded, write_image
from tfdml.neighbors import first_dimensions

QUERY = Query(File(encoded((0, 0, 200))), 9)


@pytest.fixture
def model(colors):
    return colors / "models" / "colors"


@pytest.fixture
def index_folder(colors, model, tmp_path):
    report = index_images(colors / "images", tmp_path / "index", model, dimensions=6)
    assert "dimension 6 of 12" in str(report)
    return tmp_path / "index"


def test_queries_of_all_dimensions_are_cut_as_the_gallery(
    colors, colors_url, model, index_folder
):
    with (
        open_local_search(index_folder, model) as local,
        open_local_search(colors / "index", model) as whole,
        open_search(index_folder, colors_url) as remote,
    ):
        assert (local.index.dimension, local.index.embedding_dimension) == (6, 12)
        rows = whole.index.get(whole.index.ids.tolist())
        (blue,) = whole.client.embed([np.full((16, 16, 3), (0, 0, 200), "uint8")])
        cut = first_dimensions(rows.embeddings, 6)
        expected = cut @ first_dimensions(blue[None], 6)[0]
        for search in (local, remote):
            hits = search.nearest(QUERY)
            found = {hit.item.id: hit.similarity for hit in hits}
            for id_, score in zip(rows.ids.tolist(), expected, strict=True):
                assert found[id_] == pytest.approx(score, abs=1e-5)
        again = local.nearest(Query(Embedding(blue.tolist()), 9))
        assert [hit.item.id for hit in again[:3]] == [hit.item.id for hit in hits[:3]]


def test_images_are_added_to_the_same_dimensions(
    colors_url, model, index_folder, tmp_path
):
    for number, embedder in enumerate(({"model": model}, {"endpoint": colors_url})):
        folder = tmp_path / f"more-{number}"
        write_image(folder / "gray" / f"{number}.png", (90, 90, 90 + number))
        assert add_images(index_folder, folder, **embedder).added == 1
    index, _ = load_gallery(index_folder)
    with index:
        assert (index.count(), index.dimension) == (11, 6)


def test_merged_shards_are_cut_as_one_build(colors, model, index_folder, tmp_path):
    shards = [tmp_path / "1", tmp_path / "2"]
    for number, shard in enumerate(shards, start=1):
        embed_shard(colors / "images", shard, model, Part(number, 2))
    merge_shards(tmp_path / "merged", shards, dimensions=6)
    merged, whole = (load_gallery(tmp_path / n)[0] for n in ("merged", "index"))
    ids = whole.ids.tolist()
    np.testing.assert_array_equal(merged.get(ids).embeddings, whole.get(ids).embeddings)


def test_threshold_of_all_dimensions_is_left_out(colors, model, tmp_path):
    calibrated = shutil.copytree(model / "1", tmp_path / "colors" / "1")
    save_calibration(calibrated, calibration_at(0.9))
    for dimensions, is_kept in ((None, True), (12, True), (6, False)):
        folder = tmp_path / str(dimensions)
        images = colors / "images"
        report = index_images(images, folder, calibrated, dimensions=dimensions)
        assert (report.gallery.calibration is not None) == is_kept
        assert any("threshold" in note for note in report.notes) != is_kept


def test_what_cannot_be_built_is_refused_before_anything_is_embedded(
    colors, model, tmp_path, monkeypatch
):
    monkeypatch.setattr("serving.search.gallery.indexing.embed_files", None)
    for options, message in (
        ({"dimensions": 13}, "`dimensions` must be from 1 to 12"),
        ({"codes": "float32"}, "`code_dimensions` must be given"),
        ({"code_dimensions": 4}, "must come with `codes`"),
        ({"target_recall": 2}, "`target_recall` must be above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            index_images(colors / "images", tmp_path / "index", model, **options)


def test_commands_tell_the_dimensions(colors, model, tmp_path, capsys):
    index = str(tmp_path / "index")
    build = ["index", "build", str(colors / "images"), index, "--model", str(model)]
    assert main([*build, "--dimensions", "6", "--json"]) == 0
    built = json.loads(capsys.readouterr().out)
    assert (built["dimension"], built["embedding_dimension"]) == (6, 12)
    assert main(["index", "stats", index]) == 0
    assert "dimension of embeddings" in capsys.readouterr().out
    assert main(["index", "stats", index, "--json"]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert stats["details"]["embedding_dimension"] == 12
    assert main([*build, "--dimensions", "6", "--shard", "1/2"]) == 1
    assert "--dimensions must not be given with --shard" in capsys.readouterr().err
