"""One line per epoch, and within it a bar in a terminal or a line now and then."""

import io
import math
import sys
from types import SimpleNamespace

import pytest

import tfdml.progress as progress_lines
from training.run.console import Console

LOGS = {
    "loss": 1.23456,
    "misplaced_pairs": 0.5,
    "val_precision_at_1": 0.712,
    "val_recall_at_1": 0.712,
    "val_map_at_r": 0.4,
    "val_label_distance_at_10": 12.34567,
    "learning_rate": 1e-4,
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    moment = SimpleNamespace(now=0.0)
    own = SimpleNamespace(monotonic=lambda: moment.now)
    for module in ("training.run.console", "tfdml.progress"):
        monkeypatch.setattr(f"{module}.time", own)
    return moment


def progress_after(epochs, best_epoch=0, is_impatient=False, loss=math.nan):
    return SimpleNamespace(
        best_epoch=best_epoch,
        is_impatient=is_impatient,
        epochs_done=epochs,
        loss=loss,
        seconds_left=150.0,
        test_curve={},
    )


def run_epoch(console, clock, epoch, logs, steps=5):
    console.on_train_begin()
    console.on_epoch_begin(epoch)
    for step in range(steps):
        clock.now += 9.0 if step == 0 else 0.25  # the first is compiled
        console.on_train_batch_end(step, {"loss": 1.5})
    clock.now += 3.0  # validation
    console.on_epoch_end(epoch, logs)
    console.close()


def test_value_on_test_images_is_told_apart(capsys, clock):
    progress = progress_after(2)
    progress.test_curve = {
        "epoch": [1, 2],
        "step": [5, 10],
        "precision_at_1": [0.5, 0.6],
        "map_at_r": [0.2, 0.3],
    }
    console = Console(10, 5, progress)
    run_epoch(console, clock, 1, LOGS)
    assert "; test Precision@1 60.0% (for the record); " in capsys.readouterr().out
    run_epoch(console, clock, 2, LOGS)
    assert "test" not in capsys.readouterr().out


def test_line_of_an_epoch(capsys, clock):
    console = Console(10, 5, progress_after(2, best_epoch=2))
    run_epoch(console, clock, 1, LOGS)
    captured = capsys.readouterr()
    # 8 more epochs of 5 steps of 0.25 s and of 3 s.
    assert captured.out == (
        "Epoch  2/10: loss 1.235, misplaced pairs 0.5; validation Precision@1 71.2%, "
        "MAP@R 40.0%, label distance@10 12.35; rate 0.0001, 250 ms per step, "
        "0:34 left; best so far\n"
    )
    assert captured.err == ""  # no terminal, no bar


def test_a_log_gets_lines_within_an_epoch(capsys, clock, monkeypatch):
    display = progress_lines._Lines()
    monkeypatch.setattr(progress_lines, "_LINES", display)
    progress = progress_after(0)
    console = Console(2, 10, progress)
    console.on_train_begin()
    console.on_epoch_begin(0)
    clock.now += 12.0
    display.report()
    for step in range(4):
        clock.now += 25.0
        console.on_train_batch_end(step, {})  # its loss is not waited for
        progress.loss = 1.5
        display.report()
    console.close()
    captured = capsys.readouterr()
    assert captured.out == (
        "The first step took 37 seconds, most of them to compile it: the next ones are "
        "fast.\n"
    )
    assert captured.err.splitlines() == [
        "epoch 1/2: 0 of 20 steps, 0:12 so far, compiling",
        "epoch 1/2: 3 of 20 steps, 2.4 steps per minute, 7:05 left, loss 1.5",
        "epoch 1/2: 4 steps in 1:52",
    ]


def test_run_that_its_time_ends_says_how_much_of_it_is_left(capsys, clock, monkeypatch):
    display = progress_lines._Lines()
    monkeypatch.setattr(progress_lines, "_LINES", display)
    console = Console(None, 5, progress_after(1, loss=1.5))
    console.on_train_begin()
    console.on_epoch_begin(1)
    for step in range(3):  # the time ends within the epoch
        clock.now += 35.0
        console.on_train_batch_end(step, {})
        display.report()
    console.on_epoch_end(1, {"loss": 1.25})
    console.on_train_end()
    captured = capsys.readouterr()
    line = "Epoch 2: loss 1.25; 35.0 s per step, 2:30 left"
    assert captured.out.splitlines()[-1] == line
    assert (
        captured.err.splitlines()[0]
        == "epoch 2: 7 steps, 1.7 steps per minute, 2:30 left, loss 1.5"
    )


def test_line_without_validation_and_of_one_step(capsys, clock):
    console = Console(1, 1, progress_after(1))
    run_epoch(console, clock, 0, {"loss": 2.0}, steps=1)
    console.on_train_end()
    assert capsys.readouterr().out == "Epoch 1/1: loss 2\n"


def test_bar_shows_steps_and_loss_in_a_terminal(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    console = Console(3, 5, progress_after(1, best_epoch=1, loss=1.5))
    console.on_train_begin()
    console.on_epoch_begin(1)
    for step in range(5):
        console.on_train_batch_end(step, {})
    console.on_epoch_end(1, LOGS)
    console.on_train_end()
    shown = terminal.getvalue()
    assert "epoch 2/3" in shown
    assert "10 of 15 steps" in shown
    assert "loss 1.5" in shown
    assert capsys.readouterr().out.count("\n") == 1


def test_early_end_is_reported(capsys):
    Console(9, 1, progress_after(5, best_epoch=3, is_impatient=True)).on_train_end()
    assert capsys.readouterr().out == (
        "Stopped after epoch 5: none of the last `patience` epochs was better than "
        "epoch 3.\n"
    )
