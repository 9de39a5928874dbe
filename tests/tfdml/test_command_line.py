import argparse

import pytest

from tfdml.command_line import run_command
from tfdml.messages import LONGEST


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


def test_an_error_is_short_and_printable_whatever_a_file_holds(capsys):
    long = ValueError("`k` must be 1.\n\x1b[31m" + "x" * 10**6 + " Give 1.")
    assert run_command(parser_that(long), []) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: `k` must be 1.\n\\x1b[31mxxx")
    assert printed.endswith("xxx Give 1.\n")
    assert len(printed) <= len("error: ") + LONGEST + 1


@pytest.mark.parametrize("bug", [ZeroDivisionError, TypeError, KeyError])
def test_a_bug_keeps_its_traceback(bug):
    with pytest.raises(bug):
        run_command(parser_that(bug()), [])
