"""A parser that knows how its commands were called before."""

import argparse
from collections.abc import Mapping
from typing import Any, NoReturn


class HintingParser(argparse.ArgumentParser):
    """A parser that adds what to do to the error of a command that it has not.

    Args:
        hints: What to say, by the word that stood where a command is expected; the one
            at "" is said of any other word, and where there is none. Default: nothing.
        options: See `argparse.ArgumentParser`.
    """

    def __init__(
        self, *, hints: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._hints = hints or {}

    def error(self, message: str) -> NoReturn:
        """Print the usage, the error and the hint, and exit with code 2."""
        hint = self._hints.get("")
        for word, text in self._hints.items():
            if word and f"invalid choice: {word!r}" in message:
                hint = text
        super().error(message if hint is None else f"{message}. {hint}")
