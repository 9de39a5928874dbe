"""Parse the words of a command, and say in messages how to type one."""

import argparse
import re
import sys
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from tfdml.messages import cut, nearest

_UNKNOWN = re.compile(r"argument COMMAND: invalid choice: (.*?) \(choose from ", re.S)


class CommandParser(argparse.ArgumentParser):
    """A parser whose error for an unknown or missing command says what to do.

    Args:
        hints: The hint by the unknown word; the one for "" is for a missing command,
            and for a word that is near to none. Default: none.
        options: See `argparse.ArgumentParser`.
    """

    def __init__(
        self, *, hints: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._hints = hints or {}
        self._commands: Collection[str] = ()

    def add_subparsers(self, **options: Any) -> Any:
        """Add commands, and keep their names for errors. See argparse."""
        commands = super().add_subparsers(metavar="COMMAND", **options)
        self._commands = commands.choices  # which grows
        return commands

    def error(self, message: str) -> NoReturn:
        """Print the usage, the error and a remedy, and exit with code 2."""
        hint = self._hints.get("")
        unknown = _UNKNOWN.search(message)
        if unknown:
            word = unknown[1].strip("'\"")
            near = nearest(word, self._commands)
            if word in self._hints:
                hint = self._hints[word]
            elif near:
                hint = f"Did you mean `{self.prog} {near}`?"
            elif hint is None:
                hint = f"`{self.prog} --help` lists the commands."
            message = f"There is no command {cut(unknown[1])}"
        message = message.removesuffix(".")
        super().error(message if hint is None else f"{message}. {hint}")


def command(application: str, words: str) -> str:
    """Return a command as the user of this process would type it.

    Args:
        application: "training" or "serving".
        words: The rest, such as "index build".

    Example:
        >>> command("serving", "index build")
        'tfdml index build'
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if getattr(spec, "name", "") in ("training.__main__", "serving.__main__"):
        return f"python -m {application} {words}"
    return f"tfdml {words}"
