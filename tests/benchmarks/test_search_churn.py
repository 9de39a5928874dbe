"""The benchmarks of a changing index measure what they say."""

import itertools
import json
import time

import numpy as np
import pytest

from benchmarks.search import __main__ as search
from benchmarks.search import churn, kill, killed_index
from benchmarks.search.churning import plan
from benchmarks.search.killed_index import CHANGES, Killed
from benchmarks.search.ledger import Ledger, Tally
from benchmarks.session import machine
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
        (lambda ids, scores: (ids[:2], scores[:2]), "not (3, 4)"),
        (lambda ids, scores: (ids[:, [0, 1, 2, 2]], scores[:, [0, 1, 2, 2]]), "twice"),
        (lambda ids, scores: (ids, scores + np.float32(1e-4)), "a score is wrong by"),
        (lambda ids, scores: (ids, scores * np.float32("nan")), "a score is wrong by"),
        (lambda ids, scores: (ids[:, ::-1], scores[:, ::-1]), "best does not come"),
        (lambda ids, scores: (np.where(ids == ids[1, 2], 30, ids), scores), "no id"),
        (lambda ids, scores: (np.where(ids == ids[1, 2], -1, ids), scores), "no id -1"),
        (lambda ids, scores: (ids[::-1], scores), "a score is wrong by"),
    ],
)
def test_wrong_answer_is_told(ledger, spoil, said):
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


def test_plan_makes_all_changes_in_mixed_order_and_batches_of_any_size():
    steps = plan(100_000, 50_000, np.random.default_rng(0))
    for name, total in (("add", 100_000), ("remove", 50_000)):
        counts = [count for do, count in steps if do == name]
        assert sum(counts) == total
        assert 1 <= min(counts) < 25
        assert 475 < max(counts) <= 500
    runs = [do for do, _ in itertools.groupby(do for do, _ in steps)]
    assert len(runs) > 100


@pytest.fixture
def churned(tmp_path, monkeypatch):
    """Run `churn` in small; gives status, looks and the record."""
    pytest.importorskip("scann")
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


@pytest.mark.slow
def test_churn_notices_an_index_that_forgets_and_fails(churned, monkeypatch):
    from tfdml.index import ScannIndex

    add = ScannIndex.add
    find = ScannIndex.search
    calls = itertools.count()

    def forget(index, embeddings, ids, attributes=None):
        add(index, embeddings[1:], ids[1:], attributes)

    def sometimes(index, queries, k=10, **options):
        if next(calls) % 5 == 4:
            raise OSError("no")
        ids, scores = find(index, queries, k, **options)
        return type(find(index, queries, k))(ids, scores + np.float32(0.001))

    def fail(index):
        raise MemoryError

    monkeypatch.setattr(ScannIndex, "add", forget)
    monkeypatch.setattr(ScannIndex, "search", sometimes)
    monkeypatch.setattr(ScannIndex, "compact", fail)
    # The looks search too, and their answers are not those of the threads.
    monkeypatch.setattr(churn.Churning, "_look", _patient(churn.Churning._look))
    # An item that was forgotten cannot be removed.
    status, _, whole = churned("--removes", "0")
    assert status == 1
    assert whole["lost"] > 0
    assert whole["wrong"] > 0
    assert whole["exceptions"] > 0
    assert whole["failed_compactions"] > 0
    assert whole["compactions"] == 0


def _patient(look):
    def again(churning, start):
        while True:
            try:
                return look(churning, start)
            except OSError:
                continue

    return again


# Kills


def test_kill_is_aimed_at_each_change_in_turn_and_goes_on(monkeypatch, tmp_path):
    asked = []

    def kill_at_random(folder, seconds, seed, **options):
        asked.append((folder.name, seconds, options))
        number = len(asked)
        if number == 3:
            return Killed(1, "save", unreadable="damaged")
        lost = ["7 is None, not 0"] if number == 5 else []
        took = {"load": [9.0], options["during"]: [0.5]}
        return Killed(number, "", lost, items={1: number}, seconds=took)

    monkeypatch.setattr(kill, "kill_at_random", kill_at_random)
    records = list(kill.kills(tmp_path, "ScannIndex", 11, seed=0))
    assert [options["during"] for _, _, options in asked] == [*CHANGES, *CHANGES, "add"]
    assert [name for name, _, _ in asked] == ["index-0"] * 3 + ["index-1"] * 8
    assert [options["items"] for _, _, options in asked[:5]] == [
        *({}, {1: 1}, {1: 2}, {}, {1: 4})
    ]
    # As long as the change took before; 5 ms where that is not known.
    assert max(seconds for _, seconds, _ in asked[:5]) <= 0.005
    assert max(seconds for _, seconds, _ in asked[5:]) > 0.005
    assert records[2]["error"] == "damaged"
    assert records[4]["lost"] == ["7 is None, not 0"]
    line = kill.summary(records).splitlines()[-1]
    changes = sum(range(1, 12)) - 2 - 11  # one of the damaged, and no load counts
    assert line == f"| ScannIndex | 11 | {changes} | 1 | 1 | 0 | 0 | 0 | 1 | 0 | 10 |"


def test_process_is_killed_once_so_many_changes_have_returned(tmp_path):
    killed = killed_index.kill_at_random(
        tmp_path / "index", 0, 3, changes=12, during="save"
    )
    assert killed.acknowledged >= 13  # with the load
    assert killed.lost == []
    assert killed.unreadable == ""


@pytest.mark.slow
def test_kills_are_written_and_lose_nothing(tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    few = ["--times", "3", "--kinds", "ExactIndex"]
    assert search.main(["kill", *few, "--out", str(out)]) == 0
    records = records_of(out)
    assert [record["during"] for record in records] == list(CHANGES)[:3]
    assert all(record["device"] == machine()["device"] for record in records)
    assert [record["lost"] for record in records] == [[], [], []]
    assert sum(record["acknowledged"] for record in records) > 0
    assert "| ExactIndex | 3 |" in capsys.readouterr().out
