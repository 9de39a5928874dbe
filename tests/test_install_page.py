"""docs/install.md has a row for each extra, in both tables."""

import re
from pathlib import Path

from tests.support.setup_arguments import setup_arguments

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "install.md").read_text("utf-8")
# For work in a checkout.
OWN = {"dev", "docs", "test", "test-data"}


def rows(heading):
    """Return the first cells of the table below a heading."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)


def test_what_each_extra_is_for_is_told():
    told = {name for row in rows("Extras") for name in re.findall(r"`([\w-]+)`", row)}
    known = set(setup_arguments()["extras_require"]) - OWN
    assert told == known


def test_wheels_are_listed_for_each_extra():
    """`.ci/platforms.py` compares the cells."""
    listed = [row.strip("`") for row in rows("Which machine")]
    collections = {"demo", "all"}
    assert listed == [
        name
        for name in setup_arguments()["extras_require"]
        if name not in OWN | collections
    ]


def test_no_extra_of_all_holds_tensorflow_back():
    """ScaNN's operators are built for one TensorFlow; `combine` alone brings them."""
    extras = setup_arguments()["extras_require"]
    bringing = {name for name in extras if any("scann[tf]" in r for r in extras[name])}
    assert bringing == {"combine", "dev"}


def test_sizes_are_those_that_were_measured(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / ".ci")
    import sizes

    assert sizes.table(sizes.records()) in PAGE
