"""Commands of `python -m serving`, run in this process, and what they print, read."""

import json

from serving.__main__ import main
from tests.support.search_fixtures import PURE, SHADES

EVERY = sorted(f"{name}/{shade}.png" for name in PURE for shade in SHADES)
"""The ids of the gallery of `tests.support.search_fixtures`."""


def run_command(capsys, *arguments):
    """Run a command; returns its exit code, and what it printed to both streams."""
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def json_of(capsys, *arguments):
    """Run a command that must end well, with `--json`; returns the document."""
    code, out, err = run_command(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def model_of(folder):
    """Return the option that names the model of a gallery of `search_fixtures`."""
    return "--model", folder / "models" / "colors"


def lines_of_table(text):
    """The rows below the line of dashes, split at the gaps."""
    lines = text.splitlines()
    (ruler,) = (i for i, line in enumerate(lines) if set(line) == {"-", " "})
    return [line.split() for line in lines[ruler + 1 :]]


def values_of(text):
    """What a list of details says, by name."""
    pairs = (line.split("  ", 1) for line in text.splitlines() if "  " in line)
    return {name: value.strip() for name, value in pairs}
