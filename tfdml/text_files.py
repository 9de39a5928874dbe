"""Read lists and tables as people's editors write them.

Windows' editors put a mark before UTF-8 or write UTF-16, and end lines by two
characters; Excel separates cells by what its country does. All files that users write
are read through this one.
"""

import codecs
import csv
import io
import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

_MARKS = (
    # UTF-32 first: its mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DELIMITERS = ",;\t"
_EXCEL = re.compile(r"sep=(.)\r?\n?")


class TextError(ValueError):
    """A line cannot be read; the message does not name the file.

    Args:
        line: Its number, from 1.
        text: Why.
    """

    def __init__(self, line: int, text: str) -> None:
        self.line, self.text = line, text
        super().__init__(f"line {line}: {text}")


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a text file in UTF-8, with a mark or without, or in UTF-16 or UTF-32.

    Args:
        path: The file.

    Returns:
        The text without the mark, with the line ends of the file.

    Raises:
        ValueError: It is in none of these; the message names file and line.
        OSError: It cannot be read.
    """
    text, errors = decode(Path(path).read_bytes())
    if errors:
        raise ValueError(f"{os.fspath(path)}, {errors[0]}")
    return text


def decode(data: bytes) -> tuple[str, list[TextError]]:
    """Decode the bytes of a text file, as `read_text` does.

    Returns:
        The text, with replacements for what cannot be decoded, and what is wrong with
        each line.
    """
    mark, encoding = _encoding(data)
    data = data[len(mark) :]
    try:
        return data.decode(encoding), []
    except UnicodeDecodeError as error:
        text = data.decode(encoding, errors="replace")
        if encoding != "utf-8":
            line = data[: error.start].decode(encoding, errors="replace").count("\n")
            name = encoding.upper()[:6]
            why = f"not {name} as its first bytes say; save the file as UTF-8"
            return text, [TextError(line + 1, why)]
    return text, list(_lines_not_utf8(data))


def _encoding(data: bytes) -> tuple[bytes, str]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return mark, encoding
    # Text begins with ASCII, which has a byte 0 in UTF-16.
    if len(data) > 1 and data[0] and not data[1]:
        return b"", "utf-16-le"
    if len(data) > 1 and not data[0] and data[1]:
        return b"", "utf-16-be"
    return b"", "utf-8"


def _lines_not_utf8(data: bytes) -> Iterator[TextError]:
    for line, part in enumerate(data.split(b"\n"), start=1):
        try:
            part.decode("utf-8")
        except UnicodeDecodeError as error:
            yield TextError(
                line,
                f"not UTF-8 from byte {error.start + 1} of the line "
                f"(0x{part[error.start]:02x}); save the file as UTF-8",
            )


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and content of each line that is not blank, without its end.

    Spaces in a line stay: a name may have them. What Unicode calls the end of a line
    stays too, except for those of Unix, Windows and, where there are no others, of old
    Macs.
    """
    text = text.replace("\r\n", "\n")
    if "\n" not in text:
        text = text.replace("\r", "\n")
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line


def records_of(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line of a table, with the number of its first line.

    Cells are separated by commas, semicolons or tabs, whatever makes the most of the
    first line, or by what Excel's line `sep=;` says. Empty lines are skipped.

    Raises:
        TextError: There is no table from a line on.
    """
    lines = io.StringIO(text, newline="")
    before, first = 0, lines.readline()
    if named := _EXCEL.fullmatch(first):
        before, delimiter, first = 1, named[1], ""
    else:
        delimiter = max(_DELIMITERS, key=lambda mark: len(_cells(first, mark)))
    rest = chain([first], lines) if first else lines
    reader = csv.reader(rest, delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1 + before
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise TextError(line, f"no CSV from here on: {error}") from error
        if cells:
            yield line, cells


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a cell longer than a table may have, which is told later
        return []
