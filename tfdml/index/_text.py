"""Which strings an index takes: those that its files and JSON hold as they are."""


def check_text(name: str, value: str) -> None:
    """Refuse a string that would not come back as it was given.

    Args:
        name: What it is, for the error, such as "`ids`".
        value: The string.

    Raises:
        ValueError: It has a NUL, or half of a surrogate pair, which UTF-8 has not.
    """
    # NumPy drops NULs at the end: "a" and "a\0" would become the same.
    if "\0" in value:
        raise ValueError(
            f"{name} must not contain the character NUL. Received: {value!r}."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{name} must be valid Unicode. Received: {value!r}, with half of a "
            "surrogate pair, as in the name of a file that is not UTF-8."
        ) from None
