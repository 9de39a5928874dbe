"""The benchmark of ids and attributes measures what it says."""

import json

import pytest

from benchmarks.search import __main__ as search
from benchmarks.search import rows

ROUNDS = [
    {
        "tfdml": {"build": 0.2, "filter": 0.001, "long_id_bytes": 4e6},
        "beside": {"build": 2.0, "filter": 0.004, "long_id_bytes": 4e8},
        "polars": {"build": 0.05, "filter": 0.002},
    },
    {
        "tfdml": {"build": 4.0, "filter": 0.003, "long_id_bytes": 4e6},
        "beside": {"build": 20.0, "filter": 0.006, "long_id_bytes": 4e8},
        "polars": {"build": 1.0, "filter": 0.001},
    },
]


def test_table_gives_medians_and_the_median_ratio_of_the_rounds(monkeypatch):
    measured = {key: key for key in ROUNDS[0]["tfdml"]}
    monkeypatch.setattr(rows, "_WHAT", measured)
    assert rows.summary(ROUNDS).splitlines() == [
        "| what | tfdml | beside | polars |",
        "| --- | ---: | ---: | ---: |",
        "| build | 2.10 s | 11.00 s (0.15 x) | 525 ms (4 x) |",
        "| filter | 2 ms | 5 ms (0.38 x) | 1.5 ms (1.8 x) |",
        "| long_id_bytes | 4.0 MB | 400.0 MB (0.01 x) |  |",
    ]


@pytest.mark.slow
def test_rows_are_measured_beside_another_checkout_and_written(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(rows, "PEER_PYTHON", tmp_path / "none")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    out = tmp_path / "records.jsonl"
    few = ["--rows", "2000", "--rounds", "1", "--beside", str(rows.ROOT)]
    assert search.main(["rows", *few, "--out", str(out)]) == 0
    records = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [record["engine"] for record in records] == ["tfdml", "beside"]
    (ours,), (other,) = (record["rounds"] for record in records)
    assert ours.keys() == other.keys() == rows._WHAT.keys() | {"matches"}
    assert ours["matches"] == other["matches"] > 0
    assert min(ours[key] for key in ours if not key.endswith("bytes")) > 0
    printed = capsys.readouterr().out
    assert "make .peers/search/installed" in printed
    assert "| load |" in printed
