"""A gallery for the commands, and how to run them in this process."""

from functools import partial

import pytest

from tests.support.serving_commands import json_of, run_command


@pytest.fixture
def built(colors, tmp_path):
    """A folder with the search of the session, which no test changes."""
    folder = tmp_path / "search"
    folder.mkdir()
    for name in ("images", "index", "models"):
        (folder / name).symlink_to(colors / name)
    return folder


@pytest.fixture
def run(capsys):
    return partial(run_command, capsys)


@pytest.fixture
def run_json(capsys):
    return partial(json_of, capsys)
