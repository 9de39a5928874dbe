"""The command that does the papers' runs does each once, whatever ends it."""

import contextlib
import functools
import types

import pytest

from benchmarks.papers import __main__ as papers
from benchmarks.papers import processes
from benchmarks.papers import run as command
from benchmarks.papers.runs import FLOORS, Run, read_results
from benchmarks.papers.sets import tables_of
from benchmarks.papers.studies import Study, Variant
from benchmarks.papers.tuning import RATES
from benchmarks.session import write
from tests.support.papers_work import work

ABOUT = {"seconds": 1.0, "backend": "b", "device": "d", "date": "2026-01-01"}


def run_of(series, **more):
    return Run("s", series, tables_of("emoji"), **more)


# Processes


def done(names, side_by_side):
    """Do runs of these names; returns which process did each of those kept."""
    kept = []
    with processes.Processes(side_by_side) as several:
        complete = several.do(
            [run_of(name) for name in names],
            work,
            lambda run, found: kept.append((run.series, found["process"])),
        )
    return complete, kept


@pytest.mark.slow
def test_run_that_fails_or_whose_process_dies_is_reported_and_ends_no_other(capsys):
    complete, kept = done(["a", "dies", "b", "broken", "c", "d"], 2)
    assert not complete
    assert sorted(name for name, _ in kept) == ["a", "b", "c", "d"]
    told = capsys.readouterr().out
    assert told.count("failed") == 2
    assert "s broken of emoji failed" in told
    assert "s dies of emoji failed" in told


@pytest.mark.slow
def test_no_run_is_begun_once_the_time_is_over():
    complete, kept = done(["a", "late", "b"], 1)
    assert not complete
    assert [name for name, _ in kept] == ["a"]


# The command


@pytest.fixture
def packed(tmp_path):
    """A folder with a set that nothing reads."""
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / "emoji.npz").touch()
    return folder


class Fake:
    """Does runs here, with made-up results, and remembers them."""

    def __init__(self):
        self.calls = []
        """The processes of each call and what was done in it."""
        self.left = 10**6
        """How many are done until the time is over."""
        self.best = RATES[2]
        """At which learning rate most is reached."""
        self.diverging = None
        """The loss whose runs diverge."""

    def processes(self, number):
        several = types.SimpleNamespace(do=functools.partial(self.do, number))
        return contextlib.nullcontext(several)

    def do(self, number, runs, work, keep):
        if not runs:
            return True
        self.calls.append((number, []))
        found = [(run, work(run)) for run in runs]
        for run, result in found:
            if result is not None:
                self.calls[-1][1].append(run)
                keep(run, result)
        return all(result is not None for _, result in found)

    def work(self, packed, weights, until, run):
        if not self.left:
            return None
        self.left -= 1
        if run.is_timed:
            return {"step_ms": 2.5} | ABOUT
        if run.tables.get("loss", {}).get("name") == self.diverging:
            return {"diverged_at": 100} | ABOUT
        rate = run.tables["fit"].get("learning_rate", 0.0)
        metrics = {"precision_at_1": 0.5, "map_at_r": 1 - abs(rate - self.best)}
        return {"metrics": metrics, "queries": "01"} | ABOUT

    def studies(self):
        return [sorted({run.study for run in runs}) for _, runs in self.calls]


@pytest.fixture
def fake(monkeypatch):
    """Two studies that share a run, one of times, and no processes."""

    def of(*scales):
        return lambda set_: (
            Variant("NCA", scale, changes={"loss": {"scale": scale}})
            for scale in scales
        )

    studies = {
        "times": Study("Times", of(10.0), is_timed=True),
        "few": Study("Few", of(10.0, 40.0), "scale"),
        "more": Study("More", of(40.0, 80.0), "scale"),
        "proxies": Study("Proxies", lambda set_: iter([Variant("Proxy Anchor")])),
    }
    made = Fake()
    # The other commands import Keras.
    monkeypatch.setattr(papers, "_COMMANDS", ("run",))
    monkeypatch.setattr(command, "STUDIES", studies)
    monkeypatch.setattr(command, "Processes", made.processes)
    monkeypatch.setattr(command, "_work", made.work)
    return made


@pytest.fixture
def call(packed, tmp_path, fake):
    """Calls the command; returns its status."""
    out = tmp_path / "results.jsonl"

    def called(*more, commit="abc", study=("times", "few", "more")):
        arguments = ["run", "--packed", str(packed), "--out", str(out)]
        arguments += ["--seeds", "0", "--commit", commit, "--study", *study]
        return papers.main([*arguments, "--processes", "3", *more])

    called.out = out
    return called


def test_rates_are_chosen_first_and_times_taken_last_one_at_a_time(call, fake):
    assert call() == 0
    assert fake.studies() == [["floor", "tuning"], ["few", "more"], ["times"]]
    assert [side_by_side for side_by_side, _ in fake.calls] == [3, 3, 1]
    rates = {
        run.tables["fit"]["learning_rate"] for _, runs in fake.calls[1:] for run in runs
    }
    assert rates == {RATES[2]}
    assert all(run.is_timed for run in fake.calls[2][1])


@pytest.mark.parametrize(("best", "end"), [(0, 0), (3, 4)])
def test_end_of_the_grid_is_tried_where_the_rate_next_to_it_is_best(
    call, fake, best, end
):
    fake.best = RATES[best]
    assert call(study=["few"]) == 0
    assert fake.studies() == [["floor", "tuning"], ["tuning"], ["few"]]
    assert [run.point for run in fake.calls[1][1]] == [RATES[end]]
    rates = {run.tables["fit"]["learning_rate"] for run in fake.calls[2][1]}
    assert rates == {RATES[best]}


def test_studies_share_what_is_the_same_work(call, fake):
    assert call() == 0
    assert [run.point for run in fake.calls[1][1]] == [10.0, 40.0, 80.0]
    records = read_results([call.out]).values()
    told = [(r["study"], r["point"]) for r in records if r["study"] in ("few", "more")]
    assert sorted(told) == [("few", 10), ("few", 40), ("more", 40), ("more", 80)]


def test_command_that_was_done_does_nothing_again(call, fake):
    assert call() == 0
    before = call.out.read_bytes()
    fake.calls.clear()
    assert call() == 0
    assert fake.calls == []
    assert call.out.read_bytes() == before


@pytest.mark.parametrize("done_before", [6])
def test_command_that_was_ended_goes_on_where_it_was(call, fake, done_before):
    fake.left = done_before
    assert call() == 1
    assert len(read_results([call.out])) >= done_before
    fake.left = 10**6
    assert call() == 0
    works = [run.work for _, runs in fake.calls for run in runs]
    # The floors, the grid of one loss, three runs of two studies and one time.
    expected = len(FLOORS) + len(RATES[1:-1]) + 3 + 1
    assert len(works) == len(set(works)) == expected


def test_results_of_other_commits_are_counted_and_not_copied(call, fake, capsys):
    assert call(study=["few"]) == 0
    count = len(read_results([call.out]))
    fake.calls.clear()
    capsys.readouterr()
    assert call(study=["few", "more"], commit="def") == 0
    assert f"has {count} results of other commits" in capsys.readouterr().out
    ((_, runs),) = fake.calls
    assert [(run.study, run.point) for run in runs] == [("more", 40), ("more", 80)]
    commits = {r["study"]: r["commit"] for r in read_results([call.out]).values()}
    assert (commits["few"], commits["more"]) == ("abc", "def")


# One run


# The commit


def test_result_that_is_cut_short_is_left_out_and_the_next_begins_a_line(
    tmp_path, capsys
):
    file = tmp_path / "results.jsonl"
    for name in ("a", "b"):
        write(file, run_of(name).record())
    file.write_bytes(file.read_bytes()[:-200])
    write(file, run_of("c").record())
    assert [record["series"] for record in read_results([file]).values()] == ["a", "c"]
    assert f"Left out of {file}" in capsys.readouterr().out
