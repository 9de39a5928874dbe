"""The benchmarks of a changing index measure what they say."""

import json
import time

import numpy as np
import pytest

from benchmarks.search import __main__ as search
from benchmarks.search import churn
from benchmarks.search.killed_index import CHANGES
from benchmarks.search.ledger import Ledger, Tally
from benchmarks.session import machine
from tests.support.installed import skip_without
from tfdml.index import ExactIndex


def records_of(out):
    return [json.loads(line) for line in out.read_text("utf-8").splitlines()]


def unit_rows(count, dimension=8, seed=0):
    rows = np.random.default_rng(seed).standard_normal((count, dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


# Churn


@pytest.fixture
def ledger():
    return Ledger(unit_rows(30), 20)


QUERIES = unit_rows(3, seed=1)


def answer(ledger, k=4):
    """Search the items that are there now, by exact search."""
    ids = ledger.ids()
    index = ExactIndex.build(ledger.rows[ids], ids)
    return index.search(QUERIES, k)


def test_right_answer_is_not_wrong(ledger):
    start = time.perf_counter()
    ids, scores = answer(ledger)
    assert ledger.wrong(QUERIES, 4, ids, scores, start, time.perf_counter()) is None
    np.testing.assert_array_equal(ledger.recall(QUERIES, ids), [1, 1, 1])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda ids, scores: (ids[:, :3], scores[:, :3]), "not (3, 4)"),
        (lambda ids, scores: (ids[:, [0, 1, 2, 2]], scores[:, [0, 1, 2, 2]]), "twice"),
        (lambda ids, scores: (ids, scores + np.float32(1e-4)), "a score is wrong by"),
        (lambda ids, scores: (ids[:, ::-1], scores[:, ::-1]), "best does not come"),
        (lambda ids, scores: (np.where(ids == ids[1, 2], 30, ids), scores), "no id"),
    ],
)
def test_wrong_answer_is_reported(ledger, spoil, said):
    ids, scores = spoil(*answer(ledger))
    assert said in ledger.wrong(QUERIES, 4, ids, scores, 0, time.perf_counter())


def test_hit_must_have_been_there_at_a_moment_of_the_call(ledger):
    before = time.perf_counter()
    ledger.adding(np.arange(20, 30))
    added = time.perf_counter()
    assert ledger.ids().tolist() == list(range(30))
    ids, scores = answer(ledger, 30)
    assert ledger.wrong(QUERIES, 30, ids, scores, before, added) is None
    # A call that ended before the call of `add` began.
    told = ledger.wrong(QUERIES, 30, ids, scores, before, before)
    assert told in [f"{number} was not there" for number in range(20, 30)]

    started = time.perf_counter()
    ledger.removed(np.array([3]))
    assert 3 not in ledger.ids()
    later = time.perf_counter()
    # A search that began before `remove` had returned may still find it.
    assert ledger.wrong(QUERIES, 30, ids, scores, started, later) is None
    told = ledger.wrong(QUERIES, 30, ids, scores, later, later)
    assert told == "3 was not there"


def test_recall_is_of_the_items_that_are_there(ledger):
    ids, _ = answer(ledger)
    ledger.removed(ids[0, :1])  # the true ones of the first query are others now
    again, _ = answer(ledger)
    expected = [len(set(a) & set(b)) / 4 for a, b in zip(ids, again, strict=True)]
    assert expected[0] == 0.75
    np.testing.assert_allclose(ledger.recall(QUERIES, ids), expected)


def test_tally_counts_queries_and_what_failed():
    tally = Tally()
    tally.answered(1, 0.002, None)
    tally.answered(10, 0.5, "an id came twice")
    tally.failed("exception", "OSError: full")
    assert tally.counts == {"calls": 2, "queries": 11, "wrong": 1, "exception": 1}
    assert tally.single_ms == [2.0]
    assert tally.examples == ["wrong: an id came twice", "exception: OSError: full"]


@pytest.fixture
def churned(tmp_path, monkeypatch):
    """Run `churn` in small; gives status, looks and the record."""
    skip_without("scann")
    monkeypatch.setattr(churn, "use_threads", lambda threads: None)

    def run(*more):
        out = tmp_path / "out.jsonl"
        size = ["--items", "3000", "--adds", "3000", "--removes", "1500"]
        size += ["--dimension", "16", "--moments", "3", "--sample", "20"]
        status = search.main(
            ["churn", *size, "--seconds", "2", "--out", str(out), *more]
        )
        *looks, whole = records_of(out)
        return status, looks, whole

    return run


@pytest.mark.slow
def test_churn_finds_no_wrong_answer_and_the_log_restores_all(
    churned, tmp_path, capsys
):
    status, looks, whole = churned("--folder", str(tmp_path / "index"))
    assert whole["examples"] == []
    assert status == 0
    assert [look["items"] for look in (looks[0], looks[-1])] == [3_000, 4_500]
    assert {look["recall"] for look in looks} == {1.0}  # so few are compared with
    assert whole["least_recall"] == whole["median_recall"] == 1.0
    assert whole["searches"] > whole["search_calls"] > 0
    assert whole["compactions"] >= 1  # 2,000 added items are enough
    assert (whole["lost"], whole["left"], whole["not_restored"]) == (0, 0, 0)
    assert (whole["added"], whole["removed"]) == (3_000, 1_500)
    assert whole["add_calls"] >= 3_000 / 500
    assert whole["adds_a_second"] < whole["adds_a_second_inside"]
    assert "| wrong answers | 0 of " in capsys.readouterr().out


# Kills


@pytest.mark.slow
def test_kills_are_written_and_lose_nothing(tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    few = ["--times", "1", "--kinds", "ExactIndex"]
    assert search.main(["kill", *few, "--out", str(out)]) == 0
    records = records_of(out)
    assert [record["during"] for record in records] == list(CHANGES)[:1]
    assert all(record["device"] == machine()["device"] for record in records)
    assert [record["lost"] for record in records] == [[]]
    assert sum(record["acknowledged"] for record in records) > 0
    assert "| ExactIndex | 1 |" in capsys.readouterr().out
