"""Measure what each extra takes, and write the table of docs/install.md.

For each extra, on each Python that the machine offers, the wheel is installed into an
empty environment, which is removed at once. Each measurement is a line of
docs/records/results/installs.jsonl, and the last one of an extra and a Python counts:
whoever stops goes on later, with what is missing.

    python .ci/sizes.py                        all extras on all Pythons, for hours
    python .ci/sizes.py --python 3.13 heic     these alone
    python .ci/sizes.py --missing              those that no line is about
    python .ci/sizes.py --table                write the table again
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from platforms import FOR_WORK, extras
from pythons import SUPPORTED, build_wheel, find

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "install.md"
RECORDS = ROOT / "docs" / "records" / "results" / "installs.jsonl"
PYTHONS = tuple(sorted(name.removeprefix("python") for name in SUPPORTED))
HEAD = (
    "| | " + " | ".join(f"MB, {python}" for python in PYTHONS) + " | packages | "
    "" + " | ".join(f"minutes, {python}" for python in PYTHONS) + " |"
)
NONE = "the library"


def measure(place: str, wheel: Path, extra: str) -> dict[str, Any]:
    """Install the wheel with one extra into an empty environment.

    Returns:
        How many megabytes of the disk and packages it takes, without pip, and in how
        many seconds pip had installed it.

    Raises:
        subprocess.CalledProcessError: pip could not.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([place, "-m", "venv", folder], check=True)
        own = Path(folder, "bin", "python")
        pip = [own, "-m", "pip", "--disable-pip-version-check"]
        before = _bytes_in(folder)
        wanted = str(wheel) if extra == NONE else f"{wheel}[{extra}]"
        start = time.monotonic()
        subprocess.run([*pip, "install", "--quiet", wanted], check=True)
        seconds = time.monotonic() - start
        listed = subprocess.run(
            [*pip, "list", "--format", "json"], check=True, capture_output=True
        )
        packages = {item["name"] for item in json.loads(listed.stdout)}
        return {
            "extra": extra,
            "megabytes": round((_bytes_in(folder) - before) / 1e6),
            "packages": len(packages - {"pip", "setuptools"}),
            "seconds": round(seconds),
        }


def _bytes_in(folder: str) -> int:
    files = (p for p in Path(folder).rglob("*") if p.is_file() and not p.is_symlink())
    return sum(p.stat().st_blocks * 512 for p in files)


def speed(place: str) -> float:
    """Return how many megabytes of a large wheel come per second, without a cache."""
    with tempfile.TemporaryDirectory() as folder:
        command = [place, "-m", "pip", "download", "--quiet", "--no-deps"]
        start = time.monotonic()
        subprocess.run(
            [*command, "--no-cache-dir", "--dest", folder, "tensorflow"], check=True
        )
        return _bytes_in(folder) / 1e6 / (time.monotonic() - start)


def records() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the last measurement of each extra and Python that there is."""
    found = {}
    if RECORDS.exists():
        for line in RECORDS.read_text("utf-8").splitlines():
            row = json.loads(line)
            found[row["extra"], row["python"]] = row
    return found


def table(found: dict[tuple[str, str], dict[str, Any]]) -> str:
    """Return the table of all measurements."""
    lines = [HEAD, "| --- |" + " --- |" * (2 * len(PYTHONS) + 1)]
    for extra in extras(FOR_WORK):
        rows = [found.get((extra, python)) for python in PYTHONS]
        measured = [row for row in rows if row]
        if not measured:
            continue
        megabytes = [f"{row['megabytes']:,}" if row else "" for row in rows]
        counts = sorted({row["packages"] for row in measured})
        packages = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        minutes = [
            f"{row['seconds'] / 60:.1f}" if row and row["seconds"] else ""
            for row in rows
        ]
        name = extra if extra == NONE else f"`{extra}`"
        lines.append(f"| {' | '.join([name, *megabytes, packages, *minutes])} |")
    return "\n".join(lines)


def write_table() -> None:
    """Put the table in the place of the one that the page has.

    Raises:
        ValueError: The page has none.
    """
    page = PAGE.read_text("utf-8")
    old = re.search(r"^\| \| MB, .*\n(?:\|.*\n)+", page, re.MULTILINE)
    if old is None:
        raise ValueError(f"{PAGE.name} must have a table of sizes, which has none.")
    PAGE.write_text(
        page.replace(old[0], table(records()) + "\n"), encoding="utf-8", newline="\n"
    )


def main() -> None:
    """Measure what is asked for, and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("extras", nargs="*", help="all by default")
    parser.add_argument("--python", action="append", choices=PYTHONS)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        write_table()
        return
    with tempfile.TemporaryDirectory() as work:
        wheel = build_wheel(Path(work))
        for python in asked.python or PYTHONS:
            place = find(f"python{python}")
            if place is None:
                print(f"python{python} is not here: nothing was measured on it.")
                continue
            print(f"{python}: {speed(place):.0f} MB a second without pip's cache")
            for extra in asked.extras or extras(FOR_WORK):
                if asked.missing and (extra, python) in records():
                    continue
                row = measure(place, wheel, extra)
                row |= {"python": python, "date": str(datetime.date.today())}
                with RECORDS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)
                write_table()


if __name__ == "__main__":
    sys.exit(main())
