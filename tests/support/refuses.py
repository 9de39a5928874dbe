"""Check that a call refuses a bad argument and says which, why and what it received.

A table of refusals is one test:

    @refusals(
        ("k", 0, "must be from 1 to 3"),
        ("metric", "euclidean", "must be one of cosine"),
    )
    def test_bad_arguments_are_refused(argument, value, rule):
        refuses(search, argument=argument, value=value, rule=rule, valid=ARGUMENTS)
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest


def refuses(
    call: Callable[..., Any],
    *,
    argument: str,
    value: Any,
    rule: str,
    valid: Mapping[str, Any] | None = None,
    received: str | None = None,
    error: type[Exception] | tuple[type[Exception], ...] = ValueError,
) -> None:
    """Assert that `call(**valid, argument=value)` fails and names what was wrong.

    Args:
        call: A function or class; takes its arguments by name.
        argument: The argument that is bad. The message must hold it in backticks.
        value: Its bad value. A number, text, bool or None must be in the message, too.
        rule: Text that the message must hold, such as "must be at least 0".
        valid: The other arguments.
        received: Text that the message must hold after "Received: ", where the value
            is not said as it is, such as "shape=(3,)".
        error: The exceptions that are expected.
    """
    with pytest.raises(error) as raised:
        call(**{**(valid or {}), argument: value})
    message = " ".join(str(raised.value).split())
    assert f"`{argument}`" in message, message
    assert " ".join(rule.split()) in message, message
    if received is not None:
        assert received in message.partition("Received: ")[2], message
    elif value is None or isinstance(value, bool | int | float | str):
        assert str(value) in message.replace(rule, "", 1), message


def refusals(*rows: tuple[str, Any, str]) -> pytest.MarkDecorator:
    """Parametrize a test by rows of argument, bad value, and the rule it breaks."""
    names = [getattr(value, "__name__", str(value))[:24] for _, value, _ in rows]
    ids = [f"{row[0]}={name}" for row, name in zip(rows, names, strict=True)]
    return pytest.mark.parametrize(("argument", "value", "rule"), rows, ids=ids)
