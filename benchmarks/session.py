"""Share what the commands of the benchmarks need: options, the machine, records."""

import argparse
import datetime
import importlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def bare_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Make a parser with `--out`, which all commands have."""
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--out", type=Path, help="file of JSON lines to append to")
    return made


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Make a parser with the options of the commands that measure losses."""
    made = bare_parser(module, description)
    add = made.add_argument
    add("--dimension", type=int, default=128, help="of the embeddings (128)")
    add("--only", nargs="+", metavar="NAME", help="these losses alone")
    add("--threads", type=int, default=2, help="CPU cores to use (2)")
    return made


def run_command_of(
    package: str,
    description: str | None,
    names: Sequence[str],
    arguments: Sequence[str] | None,
) -> int:
    """Run one command of a package of benchmarks; returns its exit status.

    Args:
        package: Its name below `benchmarks`.
        description: What its `--help` says.
        names: The commands: modules of it with `add_options` and `run`.
        arguments: The command and its options; None for those of the process.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    made = bare_parser(package, description)
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    for name in names:
        module = importlib.import_module(f"benchmarks.{package}.{name}")
        command = commands.add_parser(name, help=module.__doc__)
        module.add_options(command.add_argument)
        # Also behind the name of the command, where the other options stand.
        command.add_argument(
            "--out", type=Path, default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
        command.set_defaults(run=module.run)
    options = made.parse_args(arguments)
    return options.run(options)


def use_threads(threads: int) -> None:
    """Let this process and its children use so many CPU cores.

    To be called before a backend is imported, which then makes as many threads.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def cores_here() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine() -> dict[str, str]:
    """Describe the machine and the time of a measurement."""
    import keras

    backend = keras.backend.backend()
    version = __import__(backend).__version__
    device = card(backend) or processor()
    return {"backend": f"{backend} {version}", "device": device, "date": today()}


def processor() -> str:
    """Name the processor."""
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        lines = cpus.read_text(encoding="utf-8").splitlines()
        named = (x.split(": ")[1] for x in lines if "model name" in x)
        return next(named, platform.machine())
    return platform.machine()


def today() -> str:
    """Return the date, as 2026-11-30."""
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def card(backend: str) -> str | None:
    """Return the name of the accelerator that a backend computes on, if any."""
    if backend == "jax":
        import jax

        first = jax.devices()[0]
        return None if first.platform == "cpu" else first.device_kind
    if backend == "tensorflow":
        import tensorflow as tf

        cards = tf.config.list_physical_devices("GPU")
        details = cards and tf.config.experimental.get_device_details(cards[0])
        return details.get("device_name", cards[0].name) if cards else None
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def chosen(
    usual: Sequence[Any], special: Sequence[Any], only: Sequence[str] | None
) -> list[Any]:
    """Return the cases that `--only` names, by default the usual ones."""
    if only is None:
        return list(usual)
    known = {case.name: case for case in [*usual, *special]}
    if unknown := set(only) - set(known):
        sys.exit(f"`--only` must name some of {list(known)}. Received: {unknown}.")
    return [known[name] for name in only]


def write(out: Path | None, record: dict[str, Any]) -> None:
    """Append a record to the file, at once: a run that is ended loses nothing.

    It begins a new line also where the one before was cut short.
    """
    if out is None:
        return
    with out.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(record).encode() + b"\n")
