"""Check the table of docs/install.md: which extra has wheels for which machine.

pip is asked, without downloading a wheel, for the direct requirements of each extra.

    python .ci/platforms.py          compare, and exit with 1 where the table is old
    python .ci/platforms.py --print  print the table as it should be
"""

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "install.md"
# Whatever has wheels for 3.11 and 3.13 has them for 3.12.
PYTHONS = ("3.11", "3.13", "3.14")
LINUX = (5, 12, 17, 24, 26, 27, 28, 31, 34)  # of glibc 2
MACOS = range(11, 16)
MACHINES = {
    "Linux x86-64": (
        ("linux", "x86_64"),
        ["manylinux2014_x86_64", *(f"manylinux_2_{n}_x86_64" for n in LINUX)],
    ),
    "Linux arm64": (
        ("linux", "aarch64"),
        ["manylinux2014_aarch64", *(f"manylinux_2_{n}_aarch64" for n in LINUX)],
    ),
    "macOS arm64": (
        ("darwin", "arm64"),
        [f"macosx_{n}_0_{kind}" for n in MACOS for kind in ("arm64", "universal2")],
    ),
    "Windows x86-64": (("win32", "AMD64"), ["win_amd64"]),
}
FOR_WORK = ("dev", "test", "test-data", "docs")  # extras of a checkout
MISSING = re.compile(r"No matching distribution found for ([\w.-]+)")


def extras(but: Collection[str] = (*FOR_WORK, "demo", "all")) -> dict[str, list[str]]:
    """Return the requirements of each extra that users install.

    Args:
        but: Extras to leave out; those that hold others by default.
    """
    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    arguments = setup.call_args.kwargs
    found = {"the library": arguments["install_requires"]}
    for name, requirements in arguments["extras_require"].items():
        if name not in but:
            found[name] = requirements
    return found


def applying(requirements: list[str], machine: str, python: str) -> list[Requirement]:
    """Return those whose markers hold there; pip would ask for this machine's."""
    system, processor = MACHINES[machine][0]
    there = {
        "sys_platform": system,
        "platform_machine": processor,
        "python_version": python,
    }
    parsed = [Requirement(text) for text in requirements]
    return [r for r in parsed if r.marker is None or r.marker.evaluate(there)]


def without_wheel(
    requirements: set[str], machine: str, python: str
) -> tuple[set[str], set[str]]:
    """Ask pip for the wheels of one machine.

    Returns:
        The names of those that have none there, and of those whose wheel is for every
        machine and Python.

    Raises:
        RuntimeError: pip could not ask.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
    command += ["--no-deps", "--ignore-installed", "--only-binary=:all:"]
    command += ["--target", "unused", "--python-version", python, "--report", "-"]
    for platform in MACHINES[machine][1]:
        command += ["--platform", platform]
    missing: set[str] = set()
    pure: set[str] = set()
    while asked := {r for r in requirements if Requirement(r).name not in missing}:
        done = subprocess.run(
            [*command, *sorted(asked)], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            pure = {
                item["metadata"]["name"].lower().replace("_", "-")
                for item in json.loads(done.stdout)["install"]
                if item["download_info"]["url"].endswith("-none-any.whl")
            }
            break
        named = MISSING.search(done.stderr)
        if named is None:
            raise RuntimeError(f"pip did not answer:\n{done.stderr[-1000:]}")
        missing.add(Requirement(named[1]).name)
    return missing, pure


def table() -> str:
    """Return the table as the registry's wheels make it."""
    wanted = extras()
    works: dict[tuple[str, str], list[str]] = {}

    pairs = [(machine, python) for machine in MACHINES for python in PYTHONS]
    pure: set[str] = set()

    def ask(machine: str, python: str) -> tuple[set[str], set[str]]:
        names = {
            str(Requirement(f"{r.name}{r.specifier}"))
            for requirements in wanted.values()
            for r in applying(requirements, machine, python)
            if r.name.lower().replace("_", "-") not in pure
        }
        return without_wheel(names, machine, python)

    # What has one wheel for all need not be asked for again.
    first = ask(*pairs[0])
    pure = first[1]
    with ThreadPoolExecutor(4) as pool:
        answers = [first, *pool.map(lambda pair: ask(*pair), pairs[1:])]
        for (machine, python), (missing, _) in zip(pairs, answers, strict=True):
            for extra, requirements in wanted.items():
                there = applying(requirements, machine, python)
                # What has no requirement left there is of no use there.
                if there and not {r.name for r in there} & missing:
                    works.setdefault((extra, machine), []).append(python)
    lines = [f"| | {' | '.join(MACHINES)} |", "| --- |" + " --- |" * len(MACHINES)]
    for extra in wanted:
        cells = [span(works.get((extra, machine), [])) for machine in MACHINES]
        name = extra if extra == "the library" else f"`{extra}`"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def span(pythons: list[str]) -> str:
    """Write a list of neighboring versions as from-to."""
    if len(pythons) < 2:
        return "".join(pythons) or "no"
    return f"{pythons[0]} to {pythons[-1]}"


def main() -> int:
    """Compare, or print."""
    expected = table()
    if "--print" in sys.argv:
        print(expected)
        return 0
    if expected in PAGE.read_text("utf-8"):
        return 0
    print(f"The table of wheels in {PAGE.name} should be:\n{expected}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
