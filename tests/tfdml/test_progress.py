"""A long job shows how far it is: a bar in a terminal, lines in a file or a pipe."""

import io
import sys
import threading
import time
from types import SimpleNamespace

import pytest

import tfdml.progress
from tfdml.progress import Progress, clock, tracked


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def moment(monkeypatch):
    """A clock that the test moves."""
    now = SimpleNamespace(now=1000.0)
    own = SimpleNamespace(monotonic=lambda: now.now)
    monkeypatch.setattr(tfdml.progress, "time", own)
    return now


@pytest.fixture
def lines(monkeypatch):
    """What prints lines; the test asks it whether one is due."""
    monkeypatch.setattr(tfdml.progress, "_LOOK", 1000.0)
    display = tfdml.progress._Lines()
    monkeypatch.setattr(tfdml.progress, "_LINES", display)
    return display


def terminal(monkeypatch, name="xterm"):
    """Make the standard error a terminal. (Pytest would undo it after a fixture.)"""
    monkeypatch.setenv("TERM", name)
    monkeypatch.setenv("COLUMNS", "100")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


def after(seconds, moment, lines):
    moment.now += seconds
    lines.report()


def test_a_file_gets_a_line_after_ten_seconds_and_every_thirty(moment, lines, capsys):
    with Progress("embedding", 1000) as job:
        for _ in range(10):
            job.update(10)
            after(5, moment, lines)
        after(60, moment, lines)  # nothing is done for a while
        job.note = "last ones"
        after(30, moment, lines)
    # The speed is that since the first update: 10 images in 10 seconds.
    assert capsys.readouterr().err.splitlines() == [
        "embedding: 20 of 1,000 images, 1.0 images per second, 16:20 left",
        "embedding: 80 of 1,000 images, 1.8 images per second, 8:46 left",
        "embedding: 100 of 1,000 images, 49 images per minute, 18:20 left",
        "embedding: 100 of 1,000 images, 39 images per minute, 23:20 left, last ones",
        "embedding: 100 images in 2:20",
    ]


def test_a_short_job_prints_nothing(moment, lines, capsys):
    with Progress("embedding", 2) as job:
        after(9, moment, lines)
        job.update(2)
    assert capsys.readouterr() == ("", "")


def test_a_job_that_counts_nothing_says_how_long_it_takes(moment, lines, capsys):
    with Progress("building the index"):
        after(70, moment, lines)
    assert capsys.readouterr().err.splitlines() == [
        "building the index: 1:10 so far",
        "building the index: 1:10",
    ]


def test_lines_are_about_the_innermost_job_and_never_too_far_apart(
    moment, lines, capsys
):
    with Progress("fit"):
        for number in range(5):
            with Progress(f"stage {number}"):
                after(8, moment, lines)
        after(8, moment, lines)
    assert capsys.readouterr().err.splitlines() == [
        "stage 1: 0:08 so far",
        "stage 1: 0:08",
        "fit: 0:48 so far",
        "fit: 0:48",
    ]


def test_a_line_of_results_is_a_sign_of_life(moment, lines, capsys):
    with Progress("epoch 1/2", 10, "steps") as job:
        moment.now += 9
        job.say("Epoch 1/2: loss 1")
        after(25, moment, lines)
        assert capsys.readouterr() == ("Epoch 1/2: loss 1\n", "")
        after(10, moment, lines)
    assert capsys.readouterr().err.startswith("epoch 1/2: 0 of 10 steps, 0:44 so far\n")


def test_what_was_done_before_is_not_in_the_speed(moment):
    job = Progress("embedding", 1000, done=900)
    job.begin()
    job.update(10)
    moment.now += 10
    job.update(10)
    assert job.state() == "920 of 1,000 images, 1.0 images per second, 1:20 left"
    job.end()


def test_lines_come_without_being_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(tfdml.progress, "_LOOK", 0.01)
    monkeypatch.setattr(tfdml.progress, "_FIRST", 0.0)
    monkeypatch.setattr(tfdml.progress, "_LINES", tfdml.progress._Lines())
    printed = ""
    with Progress("waiting"):
        deadline = time.monotonic() + 60
        while "waiting: 0:0" not in printed and time.monotonic() < deadline:
            time.sleep(0.01)
            printed += capsys.readouterr().err
    assert "waiting: 0:0" in printed


def test_no_thread_outlives_a_job(lines):
    lines_before = [t for t in threading.enumerate() if t.name == "progress"]
    with Progress("job"):
        begun = [t for t in threading.enumerate() if t.name == "progress"]
    (own,) = set(begun) - set(lines_before)
    own.join(timeout=60)
    assert not own.is_alive()


def test_a_reader_that_has_gone_ends_no_job(moment, lines, monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    with Progress("job"):
        after(60, moment, lines)


def test_a_terminal_gets_bars_that_the_end_removes(monkeypatch):
    screen = terminal(monkeypatch)
    with Progress("fit [1/2]", 3, "steps") as outer:
        outer.update()
        with Progress("embedding", 5) as inner:
            inner.update(5)
    shown = screen.getvalue()
    assert "fit [1/2]" in shown
    assert "1 of 3 steps" in shown
    assert "5 of 5 images" in shown
    assert shown.endswith("\x1b[2K\x1b[?25h\r")  # an empty line, and the cursor


@pytest.mark.parametrize("name", ["dumb", "xterm"])
def test_a_terminal_without_cursor_gets_lines(monkeypatch, name):
    screen = terminal(monkeypatch, name)
    with Progress("job", 1):
        pass
    assert bool(screen.getvalue()) is (name != "dumb")


def test_what_is_printed_to_a_file_stays_out_of_the_terminal(monkeypatch, capsys):
    screen = terminal(monkeypatch)
    with Progress("job", 1) as job:
        print("a result")
        job.say("another")
    assert capsys.readouterr().out == "a result\nanother\n"
    assert "result" not in screen.getvalue()


def test_nothing_is_shown_unless_wanted(moment, lines, capsys, monkeypatch):
    with Progress("job", 1, shown=False):
        after(100, moment, lines)
    monkeypatch.setattr(sys, "stderr", None)  # as under pythonw
    with Progress("job", 1):
        after(100, moment, lines)
    monkeypatch.undo()
    assert capsys.readouterr() == ("", "")


def test_tracked_yields_all_and_ends_with_its_loop(moment, lines, capsys):
    found = []
    for item in tracked("abc", "reading", 3, "letters"):
        after(20, moment, lines)
        found.append(item)
    assert found == ["a", "b", "c"]
    assert capsys.readouterr().err.splitlines()[-1] == "reading: 3 letters in 1:00"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3723, "1:02:03")]
)
def test_clock(seconds, text):
    assert clock(seconds) == text
