"""One line an epoch, and within it a bar in a terminal or a line a minute."""

import io
import sys
from types import SimpleNamespace

import pytest

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
    monkeypatch.setattr("training.run.console.time.monotonic", lambda: moment.now)
    return moment


def run_epoch(console, clock, epoch, logs, steps=5):
    console.on_epoch_begin(epoch)
    for step in range(steps):
        clock.now += 9.0 if step == 0 else 0.25  # the first is compiled
        console.on_train_batch_end(step, {"loss": 1.5})
    clock.now += 3.0  # validation
    console.on_epoch_end(epoch, logs)


def test_line_of_an_epoch(capsys, clock):
    progress = SimpleNamespace(best_epoch=2, is_over=False, epochs_done=2)
    console = Console(10, 5, progress)
    run_epoch(console, clock, 1, LOGS)
    captured = capsys.readouterr()
    # 8 more epochs of 5 steps of 0.25 s and of 3 s.
    assert captured.out == (
        "Epoch  2/10: loss 1.235, misplaced pairs 0.5; validation Precision@1 71.2%, "
        "MAP@R 40.0%, label distance@10 12.35; rate 0.0001, 250 ms per step, "
        "0:34 left; best so far\n"
    )
    assert captured.err == ""  # no terminal, no bar


def test_a_log_gets_a_line_a_minute_within_an_epoch(capsys, clock):
    progress = SimpleNamespace(best_epoch=0, is_over=False, epochs_done=0)
    console = Console(2, 10, progress)
    console.on_epoch_begin(0)
    for step in range(10):
        clock.now += 25.0
        console.on_train_batch_end(step, {"loss": 1.5})
    assert capsys.readouterr().out.splitlines() == [
        "The first step took 25 seconds, most of them to compile it: the next ones are "
        "fast.",
        "  step 3/10: loss 1.5, 25.0 s per step, 7:05 left",
        "  step 6/10: loss 1.5, 25.0 s per step, 5:50 left",
        "  step 9/10: loss 1.5, 25.0 s per step, 4:35 left",
    ]


def test_line_without_validation_and_of_one_step(capsys, clock):
    progress = SimpleNamespace(best_epoch=0, is_over=False, epochs_done=1)
    console = Console(1, 1, progress)
    run_epoch(console, clock, 0, {"loss": 2.0}, steps=1)
    console.on_train_end()
    assert capsys.readouterr().out == "Epoch 1/1: loss 2\n"


def test_bar_shows_steps_and_loss_in_a_terminal(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = SimpleNamespace(best_epoch=1, is_over=False, epochs_done=1, loss=1.5)
    console = Console(3, 5, progress)
    console.on_epoch_begin(0)
    for step in range(5):
        console.on_train_batch_end(step, {})  # its loss is not waited for
    console.on_epoch_end(0, LOGS)
    shown = terminal.getvalue()
    assert "epoch 1/3" in shown
    assert "5/5" in shown
    assert "loss=1.5" in shown
    assert shown.endswith("\r")  # the bar is taken away
    assert capsys.readouterr().out.count("\n") == 1


def test_early_end_is_reported(capsys):
    progress = SimpleNamespace(best_epoch=3, is_over=True, epochs_done=5)
    Console(9, 1, progress).on_train_end()
    assert capsys.readouterr().out == (
        "Stopped after epoch 5: none of the last `patience` epochs was better than "
        "epoch 3.\n"
    )
