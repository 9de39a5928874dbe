"""What setup.py says, without an installation that may be older."""

import functools
import runpy
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]


@functools.cache
def setup_arguments():
    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    return setup.call_args.kwargs


def requirements():
    """Return the requirements of the extras as the metadata of a wheel write them."""
    found = []
    for extra, listed in setup_arguments()["extras_require"].items():
        for requirement in listed:
            name, _, marker = requirement.partition(";")
            other = f"({marker.strip()}) and " if marker else ""
            found.append(f'{name}; {other}extra == "{extra}"')
    return found
