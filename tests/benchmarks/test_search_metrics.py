"""The benchmark of the metrics measures what it says."""

import json

import pytest

from benchmarks.search import __main__ as search
from benchmarks.search import metrics


def test_table_has_medians_and_the_ratios_of_the_rounds():
    rounds = [
        {"without_ms": 2.0, "with_ms": 2.2, "control_ms": 2.0, "calls_ms": 0.01},
        {"without_ms": 3.0, "with_ms": 2.7, "control_ms": 3.6, "calls_ms": 0.03},
        {"without_ms": 4.0, "with_ms": 4.0, "control_ms": 2.0, "calls_ms": 0.02},
    ]
    for each in rounds:
        each["kind"] = "id"
    line = metrics.summary(rounds).splitlines()[2]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == [
        *("id", "3.00 ms", "1.00 (0.90 to 1.10)", "1.00 (0.50 to 1.20)"),
        *("0.020 ms", "0.67%"),
    ]


def test_calls_of_a_search_are_timed():
    assert metrics.calls_ms("image") > 0
    assert metrics.calls_ms("id") > 0


@pytest.mark.full
def test_pages_are_searched_in_turn_over_real_processes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(metrics, "use_threads", lambda threads: None)
    out = tmp_path / "out.jsonl"
    few = ["--images", "60", "--rounds", "2", "--searches", "5", "--out", str(out)]
    assert search.main(["metrics", *few]) == 0
    found = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [each["kind"] for each in found] == ["image", "id"] * 2
    assert all(each["calls_ms"] > 0 for each in found)
    assert "The goal is a share below 1%." in capsys.readouterr().out
