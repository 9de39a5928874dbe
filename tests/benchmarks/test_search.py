"""The benchmark of the search measures what it says."""

import json

import numpy as np
import pytest

from benchmarks.search import __main__ as search
from benchmarks.search import footprint, speed
from benchmarks.search.engines import Built
from benchmarks.search.measuring import Measuring
from benchmarks.search.sets import Gallery, draw
from tests.support.installed import skip_without

skip_without("scann")


def test_sets_are_unit_vectors_around_their_centers():
    gallery, queries = draw(Gallery(500, 16, 5, 0.3), 40)
    assert gallery.shape == (500, 16)
    assert queries.shape == (40, 16)
    np.testing.assert_allclose(np.linalg.norm(gallery, axis=1), 1, rtol=1e-5)
    nearest = (queries @ gallery.T).max(axis=1)
    assert nearest.min() > 0.8  # each query has items around its own center
    assert abs((gallery @ gallery.T).mean()) < 0.35  # which are several


def test_fastest_setting_that_reaches_the_target_is_chosen():
    true = np.tile(np.arange(10), (20, 1))

    def find(queries, k, setting):
        found = np.full((len(queries), k), -1)
        found[:, : setting["right"]] = np.arange(setting["right"])
        return found

    ladders = [[{"right": 5}, {"right": 9}], [{"right": 8}]]
    measuring = Measuring(Built(find, ladders, {}, None), np.ones((20, 4)), true)
    chosen = measuring.answer("choose", target=0.85)
    assert chosen["setting"] == {"right": 9}
    assert chosen["recall_at_10"] == pytest.approx(0.9)
    assert chosen["recall_at_1"] == 1
    assert measuring.answer("choose", target=0.95) is None


def test_table_gives_rates_and_multiples_and_names_failures():
    record = {
        "engine": "a",
        "recall_at_10": 0.995,
        "recall_at_1": 1.0,
        "batched_rate": 2_000.0,
        "single_rate": 100.0,
        "ours_batched": 1.5,
        "ours_batched_by_cpu": 1.25,
        "ours_single": 2.0,
        "ours_single_by_cpu": 3.0,
        "build_seconds": 7.0,
        "build_cpu_seconds": 9.0,
        "megabytes": 50.0,
    }
    failed = {"engine": "b", "error": "it fell"}
    short = {"engine": "c", "reaches_target": False}
    lines = speed.summary([record, failed, short]).splitlines()
    assert (
        "| a | 0.9950 | 1.0000 | 2,000 | 1.50 x | 1.25 x | 100 | 2.00 x | 3.00 x "
        "| 7 | 9 | 50 |"
    ) in lines
    assert lines[3].startswith("| b | it fell |")
    assert lines[4].startswith("| c | below target |")


@pytest.mark.slow
def test_speed_is_measured_beside_raw_scann_and_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(speed, "use_threads", lambda threads: None)
    out = tmp_path / "records.jsonl"
    size = ["--sets", "clustered", "--scale", "0.005", "--queries", "30"]
    quick = ["--rounds", "1", "--seconds", "0", "--engines", "tfdml", "scann"]
    assert search.main(["speed", *size, *quick, "--out", str(out)]) == 0
    ours, raw = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert (ours["engine"], raw["engine"]) == ("tfdml", "scann")
    assert ours["settings"]["method"] == "exact"
    assert ours["recall_at_10"] == raw["recall_at_10"] == 1
    assert min(ours["batched_rate"], raw["single_rate"], raw["ours_batched"]) > 0
    assert ours["save_peak"] >= 1
    assert ours["settings"]["engine"] == "exact"  # of so few items
    assert "overhead" not in ours
    assert "| tfdml | 1.0000 |" in capsys.readouterr().out


@pytest.mark.slow
def test_footprint_is_that_of_a_process_without_tensorflow(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(footprint, "use_threads", lambda threads: None)
    out = tmp_path / "records.jsonl"
    assert search.main(["footprint", "--scale", "0.005", "--out", str(out)]) == 0
    record = json.loads(out.read_text("utf-8"))
    assert (record["items"], record["tensorflow"]) == (1000, False)
    assert 20 < record["resident_megabytes"] <= record["peak_megabytes"]
    assert "without TensorFlow" in capsys.readouterr().out


def test_codes_are_measured_beside_exact_search(tmp_path, capsys):
    skip_without("faiss")
    out = tmp_path / "codes.jsonl"
    generator = np.random.default_rng(0)
    rows = np.repeat(generator.normal(size=(60, 32)), 30, axis=0)
    rows += 0.3 * generator.normal(size=rows.shape)
    np.save(tmp_path / "rows.npy", rows.astype("float32"))
    asked = ["--queries", "100", "--rounds", "1", "--target", "0.9", "--threads", "1"]
    given = ["--embeddings", str(tmp_path / "rows.npy"), "--out", str(out)]
    assert search.main(["codes", *asked, *given]) == 0
    records = [json.loads(line) for line in out.read_text().splitlines()]
    kinds = [record["kind"] for record in records]
    assert kinds == ["exact", "float32, 8", "int8", "binary"]
    assert [record["method"] for record in records[:1]] == ["exact"]
    for record in records:
        assert record["items"] == 1_700
        assert record["recall_at_10"] > 0.85
        assert record["said_recall"] >= 0.9
        assert record["batched_cpu_us"] > 0
    table = capsys.readouterr().out
    assert table.count("\n| ") >= 5
