"""`python -m serving index`: tables, JSON, errors and exit codes of its commands."""

import json
import shutil
import sys

import numpy as np
import pytest

from serving.search.gallery.gallery import Gallery, load_gallery, save_gallery
from tests.support.search_fixtures import write_image
from tests.support.serving_commands import (
    EVERY,
    lines_of_table,
    model_of,
    values_of,
)
from tfdml.index import LocalIndex
from tfdml.index.engines._settings import EngineLimits


@pytest.fixture
def folder(built, tmp_path):
    """A gallery that a test may change: a moved index, with images of its own."""
    shutil.copytree(built / "index", tmp_path / "index")
    (tmp_path / "models").symlink_to(built / "models")
    return tmp_path


# index build and merge


def test_build_and_merge_print_what_they_built(built, tmp_path, run, run_json):
    images, model = built / "images", model_of(built)
    code, out, _ = run("index", "build", images, tmp_path / "whole", *model)
    assert code == 0
    values = values_of(out)
    assert values["images"] == "9"
    assert values["classes"] == "3"
    assert values["model"] == "colors, version 1"
    for number in (1, 2):
        shard = run_json(
            "index", "build", images, tmp_path / str(number), *model,
            "--shard", f"{number}/2",
        )  # fmt: skip
        assert shard["images"] == 9
        assert shard["embedded"] == (5, 4)[number - 1]
    merged = run_json(
        "index", "merge", tmp_path / "merged", tmp_path / "1", tmp_path / "2"
    )
    assert merged["images"] == 9
    assert merged["model"] == {"name": "colors", "version": 1}
    assert (merged["method"], merged["engine"]) == ("exact", "exact")
    assert merged["skipped"] == []
    whole, _ = load_gallery(tmp_path / "whole")
    index, _ = load_gallery(tmp_path / "merged")
    assert index.ids.tolist() == whole.ids.tolist() == EVERY


def test_recall_that_is_wanted_reaches_the_index(built, tmp_path, run, run_json):
    command = ["index", "build", built / "images", tmp_path / "a", *model_of(built)]
    document = run_json(*command, "--target-recall", "0.9")
    assert document["recall"] == 1
    code, _, err = run(*command, "--target-recall", "1.5")
    assert code == 1
    assert "recall" in err
    for option in (["--target-recall", "0.9"], ["--engine", "exact"]):
        code, _, err = run(*command, *option, "--shard", "1/2")
        assert code == 1
        assert f"{option[0]} must not be given with --shard" in err
        assert "index merge" in err


def test_engine_that_is_wanted_reaches_the_index(built, tmp_path, run_json):
    pytest.importorskip("faiss")
    command = ["index", "build", built / "images", tmp_path / "a", *model_of(built)]
    run_json(*command, "--engine", "faiss")
    with LocalIndex.load(tmp_path / "a") as index:
        assert index.stats().details["wanted_engine"] == "faiss"
    command[3] = tmp_path / "shard"
    run_json(*command, "--shard", "1/1")
    run_json("index", "merge", tmp_path / "b", tmp_path / "shard", "--engine", "exact")
    with LocalIndex.load(tmp_path / "b") as index:
        assert index.stats().details["wanted_engine"] == "exact"


def test_stats_say_why_an_index_is_slower_than_it_was_built(
    tmp_path, run, run_json, monkeypatch
):
    limits = EngineLimits(hashing_from=40, measured_from=40)
    monkeypatch.setattr(LocalIndex, "engine_limits", limits)
    for name in ("scann", "faiss"):
        monkeypatch.setitem(sys.modules, name, None)
        for loaded in [one for one in sys.modules if one.startswith(f"{name}.")]:
            monkeypatch.delitem(sys.modules, loaded)
    rows = np.random.default_rng(0).normal(size=(50, 4))
    index = LocalIndex.build(rows, ids=[f"{row}.png" for row in range(50)])
    with index:
        save_gallery(tmp_path / "index", index, Gallery(tmp_path, "none", 1))
    code, out, _ = run("index", "stats", tmp_path / "index")
    assert code == 0
    assert values_of(out)["engine"] == "exact"
    assert "slower because" in values_of(out)
    settings = run_json("index", "stats", tmp_path / "index")["details"]["settings"]
    for name in ("ScaNN", "FAISS"):
        assert f"{name} cannot be imported here" in settings["reason"]


def test_images_left_out_are_listed(built, tmp_path, run, run_json):
    shutil.copytree(built / "images", tmp_path / "images")
    (tmp_path / "images" / "red" / "broken.png").write_bytes(b"no image")
    command = ["index", "build", tmp_path / "images", tmp_path / "a", *model_of(built)]
    code, _, err = run(*command)
    assert code == 1
    assert "--skip-unreadable" in err
    code, out, _ = run(*command, "--skip-unreadable")
    assert code == 0
    assert "1 unreadable images skipped:" in out
    assert "broken.png" in out
    (tmp_path / "images" / "red" / "IMG_1.CR2").touch()
    document = run_json(*command, "--skip-unreadable")
    (reason,), (note,) = document["skipped"], document["notes"]
    assert "broken.png" in reason
    assert "this format is not read: 1 file (1 .cr2)" in note


def test_images_larger_than_usual_are_indexed_where_that_is_allowed(
    built, tmp_path, run, run_json
):
    write_image(tmp_path / "images" / "red" / "1.png", (255, 0, 0))
    command = ["index", "build", tmp_path / "images", tmp_path / "a", *model_of(built)]
    code, _, err = run(*command, "--max-pixels", "3")
    assert code == 1
    assert "1.png: an image may have at most 3 pixels" in err
    assert "Allow more with `--max-pixels`" in err
    assert run(*command, "--max-pixels", "0")[0] == 1
    assert run_json(*command, "--max-pixels", "1000000")["images"] == 1


# index add and remove


def test_images_are_added_found_and_removed(folder, run, run_json):
    more = folder / "more"
    write_image(more / "yellow" / "one.png", (255, 255, 0))
    write_image(more / "yellow" / "two.png", (250, 250, 10))
    added = run_json("index", "add", folder / "index", more, *model_of(folder))
    assert (added["added"], added["images"]) == (2, 11)
    query = write_image(folder / "query.png", (255, 255, 0))
    search = ["search", query, "--index", folder / "index", *model_of(folder)]
    (result,) = run_json(*search, "-k", "2")["results"]
    assert [hit["class"] for hit in result["hits"]] == ["yellow", "yellow"]
    assert run_json("index", "stats", folder / "index")["details"]["added"] == 2
    code, out, _ = run("index", "remove", folder / "index", result["hits"][0]["id"])
    assert code == 0
    assert values_of(out)["removed"] == "1"
    (result,) = run_json(*search, "-k", "1")["results"]
    assert result["hits"][0]["id"] == "yellow/two.png"


def test_images_that_are_there_are_added_only_with_skip_existing(
    built, folder, run, run_json
):
    command = ["index", "add", folder / "index", built / "images", *model_of(folder)]
    code, _, err = run(*command)
    assert code == 1
    assert "--skip-existing" in err
    document = run_json(*command, "--skip-existing")
    assert (document["added"], document["existing"]) == (0, 9)


def test_ids_to_remove_may_stand_in_a_file(folder, run_json):
    ids = folder / "ids.txt"
    text = "# two shades of red\r\nred/pale.png\r\n\r\nred/paler.png \r\n"
    ids.write_bytes(text.encode("utf-16"))
    document = run_json(
        "index", "remove", folder / "index", "blue/clear.png", "--from-file", ids
    )
    assert document["removed"] == 3
    index, _ = load_gallery(folder / "index")
    gone = {"red/pale.png", "red/paler.png", "blue/clear.png"}
    assert set(index.ids.tolist()) == set(EVERY) - gone


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["red/pale.png", "nothing.png"], "nothing.png"),
        (["red/pale.png", "red/pale.png"], "must not repeat"),
        ([], "Give the ids"),
    ],
)
def test_nothing_is_removed_where_an_id_is_wrong(folder, ids, message, run):
    code, out, err = run("index", "remove", folder / "index", *ids)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert message in err
    assert load_gallery(folder / "index")[0].ids.tolist() == EVERY


# index stats, verify, duplicates and map


def test_stats_tell_what_an_index_holds(calibrated, run, run_json):
    code, out, err = run("index", "stats", calibrated)
    assert (code, err) == (0, "")
    values = values_of(out)
    assert values["images"] == "9"
    assert values["classes"] == "3"
    assert values["dimension"] == "12"
    assert (values["method"], values["engine"]) == ("exact", "exact")
    assert "slower because" not in values
    assert values["no match below"] == "0.9000"
    assert values["recall of matches"] == "0.8000"
    assert values["attributes"] == "class (string)"
    document = run_json("index", "stats", calibrated)
    assert document["images"] == 9
    assert document["classes"] == 3
    assert document["engine"] == document["details"]["engine"] == "exact"
    assert document["attributes"] == {"class": "string"}
    assert document["calibration"]["threshold"] == 0.9
    assert document["details"]["removed"] == 0


def test_verify_of_an_intact_index_ends_well(built, run, run_json):
    code, out, err = run("index", "verify", built / "index")
    assert (code, err) == (0, "")
    assert values_of(out)["intact"] == "yes"
    document = run_json("index", "verify", built / "index")
    assert document["ok"] is True
    assert document["problems"] == []


def test_verify_of_a_damaged_index_fails(folder, run):
    (data,) = folder.glob("index/data-*/embeddings.npy")
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.write_bytes(content)
    code, out, err = run("index", "verify", folder / "index")
    assert code == 1
    assert values_of(out)["intact"] == "no"
    assert "problem: " in out
    assert err.splitlines()[-1].startswith("error: ")
    code, out, _ = run("index", "verify", folder / "index", "--json")
    assert code == 1
    assert json.loads(out)["ok"] is False


def test_verify_misses_an_image_that_was_added(folder, run, run_json):
    write_image(folder / "more" / "yellow" / "one.png", (255, 255, 0))
    run("index", "add", folder / "index", folder / "more", *model_of(folder))
    stats = run_json("index", "stats", folder / "index")
    assert stats["attributes"] == {"class": "string"}  # not what is our own affair
    assert run_json("index", "verify", folder / "index")["items"] == 10
    (image,) = (folder / "index" / "pictures").iterdir()
    content = image.read_bytes()
    for break_it in (lambda: image.write_bytes(content + b"0"), image.unlink):
        break_it()
        code, out, err = run("index", "verify", folder / "index")
        assert code == 1
        assert "problem: The image of 'yellow/one.png' is" in out
        assert err.count("\n") == 1


def test_duplicates_are_the_images_of_almost_one_color(folder, run, run_json):
    more = folder / "more"
    write_image(more / "copies" / "a.png", (255, 0, 0))
    write_image(more / "copies" / "b.png", (255, 3, 0))
    run("index", "add", folder / "index", more, *model_of(folder))
    command = ["index", "duplicates", folder / "index", "--threshold", "0.9995"]
    document = run_json(*command)
    (group,) = document["groups"]
    ids = {image["id"] for image in group["images"]}
    assert ids == {"red/clear.png", "copies/a.png", "copies/b.png"}
    assert document["images"] == 11
    assert len(document["pairs"]) == 3
    assert group["similarity"] >= 0.9995
    code, out, err = run(*command)
    assert (code, err) == (0, "")
    assert out.startswith("3 pairs in 1 groups among 11 images")
    rows = lines_of_table(out)
    assert [row[-1] for row in rows] == [image["id"] for image in group["images"]]
    assert rows[0][0] == "1"


def test_gallery_without_duplicates_has_no_table(built, run, run_json):
    command = ["index", "duplicates", built / "index", "--threshold", "1"]
    assert run_json(*command)["groups"] == []
    code, out, _ = run(*command)
    assert code == 0
    assert out.startswith("0 pairs in 0 groups among 9 images")
    assert len(out.splitlines()) == 1


def test_no_more_groups_are_printed_than_asked_for(built, run, run_json):
    command = ["index", "duplicates", built / "index", "--threshold", "0.94"]
    groups = run_json(*command)["groups"]
    assert len(groups) == 3
    _, out, _ = run(*command, "--limit", "1")
    assert "2 more groups" in out
    assert run(*command, "--limit", "0")[0] == 1


def test_map_puts_every_image_into_a_cluster(built, run, run_json):
    document = run_json("index", "map", built / "index")
    assert document["of"] == 9
    assert sorted(point["id"] for point in document["points"]) == EVERY
    for point in document["points"]:
        assert point["class"] == point["id"].partition("/")[0]
        assert 0 <= point["x"] <= 1
        assert 0 <= point["y"] <= 1
    code, out, err = run("index", "map", built / "index")
    assert (code, err) == (0, "")
    rows = lines_of_table(out)
    assert sum(int(row[1]) for row in rows) == 9
    assert len(run_json("index", "map", built / "index", "--limit", "4")["points"]) == 4


def test_map_without_its_packages_says_what_to_install(built, monkeypatch, run):
    monkeypatch.setitem(sys.modules, "serving.search.gallery.map_layout", None)
    code, out, err = run("index", "map", built / "index")
    assert (code, out) == (1, "")
    assert 'pip install "tfdml[evaluation]"' in err
