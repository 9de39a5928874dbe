import argparse

import pytest

from tfdml.command_line import run_command


def parser_that(action):
    def run(parsed):
        if action is not None:
            raise action

    parser = argparse.ArgumentParser()
    parser.set_defaults(run_command=run)
    return parser


@pytest.mark.parametrize(
    ("action", "code", "printed"),
    [
        (None, 0, ""),
        (ValueError("`k` must be 1."), 1, "error: `k` must be 1.\n"),
        (FileNotFoundError("no x.png"), 1, "error: no x.png\n"),
        (MemoryError(), 1, "error: MemoryError\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_becomes_one_line_and_an_exit_code(action, code, printed, capsys):
    assert run_command(parser_that(action), []) == code
    assert capsys.readouterr().err == printed


@pytest.mark.parametrize("bug", [ZeroDivisionError, TypeError, KeyError])
def test_a_bug_keeps_its_traceback(bug):
    with pytest.raises(bug):
        run_command(parser_that(bug()), [])
