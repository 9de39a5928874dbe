"""The commands of an index whose items a database keeps, and the page on top of it."""

import json
import shutil

import pytest

from serving.search.gallery.editing import GalleryEditor
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.opening import open_search
from tests.support.index_kinds import skip_unless_installed
from tests.support.refuses import refusals
from tests.support.search_fixtures import encoded, error_of, page_of, post, write_image
from tests.support.serving_commands import EVERY, model_of, values_of
from tfdml.index import LockedError, MilvusIndex


@pytest.fixture
def milvus(tmp_path):
    skip_unless_installed("milvus")
    return ["--store", tmp_path / "milvus.db"]


@pytest.fixture(params=["milvus"])
def store(request):
    """The options of `index build` that name a database, of each kind in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def index(built, tmp_path, store, run_json):
    """A gallery in a database, of images that a test may change."""
    shutil.copytree(built / "images", tmp_path / "images")
    folder = tmp_path / "my index"
    command = ["index", "build", tmp_path / "images", folder, *model_of(built)]
    report = run_json(*command, *store)
    assert (report["images"], report["classes"]) == (9, 3)
    return folder


def test_whole_flow_runs_on_a_database(index, built, tmp_path, run, run_json):
    model = model_of(built)
    stats = run_json("index", "stats", index)
    assert stats["kind"] != "LocalIndex"
    assert (stats["images"], stats["classes"]) == (9, 3)
    assert stats["attributes"] == {"class": "string"}
    assert stats["details"]["collection"] == "my_index"
    code, out, _ = run("index", "stats", index)
    assert code == 0
    assert values_of(out)["collection"] == "my_index"
    write_image(tmp_path / "more" / "mixed" / "yellow.png", (200, 200, 0))
    added = run_json("index", "add", index, tmp_path / "more", *model)
    assert (added["added"], added["stored"], added["images"]) == (1, 1, 10)
    searched = "search", tmp_path / "more/mixed/yellow.png"
    hits = run_json(*searched, "--index", index, *model)
    (best, *_) = hits["results"][0]["hits"]
    assert best["id"] == "mixed/yellow.png"
    assert best["similarity"] == pytest.approx(1, abs=1e-5)
    assert run_json("index", "verify", index)["ok"]
    groups = run_json("index", "duplicates", index, "--threshold", "0.9999")
    assert groups["images"] == 10
    removed = run_json("index", "remove", index, "mixed/yellow.png", "red/pale.png")
    assert (removed["removed"], removed["images"]) == (2, 8)
    assert not list((index / "pictures").iterdir())
    again, _ = load_gallery(index)
    with again:
        assert again.ids.tolist() == [id_ for id_ in EVERY if id_ != "red/pale.png"]
    # All of it is where the database keeps it; the folder may be copied.
    shutil.copytree(index, tmp_path / "copy")
    assert run_json("index", "stats", tmp_path / "copy")["images"] == 8


def test_page_searches_lists_and_changes_a_database(index, colors_url):
    with (
        open_search(index, colors_url) as search,
        page_of(search, editable=True, with_metrics=True) as page,
    ):
        hits = post(page, encoded((255, 0, 0)), k=3).json()["hits"]
        assert hits[0]["id"] == "red/clear.png"
        (described,) = page.get("/api/info").json()["indexes"]
        assert (described["images"], described["classes"]) == (9, 3)
        listed = page.get("/api/images", params={"offset": 7}).json()
        assert [image["id"] for image in listed["images"]] == EVERY[7:]
        only = {"where": json.dumps({"class": "blue"})}
        assert page.get("/api/images", params=only).json()["total"] == 3
        stats = page.get("/api/stats").json()
        assert stats["values"] == {"class": {"blue": 3, "green": 3, "red": 3}}
        assert "milvus.db" not in json.dumps(stats)  # where it is, is not for visitors
        new = encoded((0, 200, 200))
        form = {"files": {"image": ("new", new)}, "data": {"id": "new/cyan.png"}}
        assert page.post("/api/images", **form).status_code == 201
        assert post(page, new, k=1).json()["hits"][0]["id"] == "new/cyan.png"
        error_of(page.post("/api/images", **form), 409)
        with pytest.raises(LockedError), load_gallery(index)[0] as other:
            GalleryEditor(other)
        gone = page.delete("/api/images", params={"id": "new/cyan.png"})
        assert gone.status_code == 200
        assert page.get("/api/info").json()["indexes"][0]["images"] == 9
        assert "tfdml_search_index_images" in page.get("/metrics").text


def test_shards_are_merged_into_a_database(built, tmp_path, store, run_json):
    command = ["index", "build", built / "images", tmp_path / "shard", *model_of(built)]
    run_json(*command, "--shard", "1/1")
    command = ["index", "merge", tmp_path / "merged", tmp_path / "shard"]
    run_json(*command, *store, "--collection", "other")
    stats = run_json("index", "stats", tmp_path / "merged")
    assert (stats["images"], stats["details"]["collection"]) == (9, "other")


def test_failed_build_leaves_nothing_in_the_database(
    built, tmp_path, store, run, run_json, monkeypatch
):
    def fail(*arguments):
        raise OSError("the disk is full")

    command = ["index", "build", built / "images", tmp_path / "index", *model_of(built)]
    with monkeypatch.context() as patch:
        patch.setattr("serving.search.gallery.indexing.save_gallery", fail)
        code, _, err = run(*command, *store)
    assert (code, "the disk is full" in err) == (1, True)
    assert run_json(*command, *store)["images"] == 9
    # A second index of that name would take the items of the first one.
    command[3] = tmp_path / "second"
    code, _, err = run(*command, *store, "--collection", "index")
    assert (code, "`collection` must be new" in err) == (1, True)


@refusals(
    ("--store", "ftp://host", "`store` must be the address of Milvus"),
    ("--store", "gallery", "`store` must be the address of Milvus"),
    ("--collection", "letters", "`collection` must be given with `store`"),
)
def test_bad_addresses_are_refused(argument, value, rule, built, tmp_path, run):
    command = ["index", "build", built / "images", tmp_path / "index", *model_of(built)]
    code, _, err = run(*command, argument, value)
    assert code == 1
    assert rule in err
    assert not (tmp_path / "index").exists()


def test_cluster_that_is_away_is_named(built, tmp_path, run):
    skip_unless_installed("milvus")
    command = ["index", "build", built / "images", tmp_path / "index", *model_of(built)]
    code, _, err = run(*command, "--store", "http://127.0.0.1:9")
    assert (code, "Milvus at http://127.0.0.1:9 does not answer" in err) == (1, True)
    assert not (tmp_path / "index").exists()


def test_option_of_an_index_in_memory_is_refused(built, tmp_path, milvus, run):
    command = ["index", "build", built / "images", tmp_path / "index", *model_of(built)]
    code, _, err = run(*command, *milvus, "--engine", "exact")
    assert (code, "`engine` must not be given with `store`" in err) == (1, True)


def test_dropped_collection_is_named(index, run):
    with MilvusIndex.load(index) as there:
        there.drop()
    code, _, err = run("index", "stats", index)
    assert code == 1
    assert "'my_index'" in err
