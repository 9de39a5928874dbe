"""Lists and tables as people's editors write them."""

import codecs
import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.image_files import ENCODINGS, LINE_ENDS
from tfdml.text_files import (
    TextError,
    decode,
    lines_of,
    read_text,
    records_of,
)

words = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0\ufeff"),
    min_size=1,
    max_size=12,
).filter(str.strip)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("end", LINE_ENDS)
@given(lines=st.lists(words, min_size=1, max_size=5), is_closed=st.booleans())
@settings(max_examples=10, deadline=None)
def test_lines_are_those_that_were_written(
    encoding, end, lines, is_closed, tmp_path_factory
):
    file = tmp_path_factory.mktemp("text") / "list.txt"
    text = end.join(["a", *lines]) + end * is_closed
    file.write_bytes(ENCODINGS[encoding](text))
    assert [line for _, line in lines_of(read_text(file))] == ["a", *lines]


def test_blank_lines_are_skipped_and_counted():
    text = "a\r\n\r\n \t\r\n b \r\n"
    assert list(lines_of(text)) == [(1, "a"), (4, " b ")]
    assert list(lines_of("")) == []


@pytest.mark.parametrize(
    ("data", "line", "why"),
    [
        (b"a\nb\xc4\n", 2, r"not UTF-8 from byte 2 of the line \(0xc4\); save"),
        (codecs.BOM_UTF16_LE + b"a\0\n\0\0\xd8", 2, "not UTF-16 as its first bytes"),
        (codecs.BOM_UTF32_LE + b"abcd", 1, "not UTF-32 as its first bytes say"),
    ],
)
def test_other_bytes_are_told_by_line(data, line, why, tmp_path):
    (tmp_path / "list.txt").write_bytes(data)
    with pytest.raises(ValueError, match=rf"list\.txt, line {line}: {why}") as raised:
        read_text(tmp_path / "list.txt")
    assert len(str(raised.value)) < 500
    assert decode(data)[1][0].line == line


@given(data=st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_text_or_told(data):
    text, errors = decode(data)
    assert isinstance(text, str)
    assert all(error.line >= 1 for error in errors)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@given(
    rows=st.lists(
        st.lists(
            st.sampled_from(["a", "b c", "", 'say "x"', "1,5", "x;y", "ä"]),
            min_size=3,
            max_size=3,
        ),
        max_size=4,
    )
)
@settings(max_examples=20, deadline=None)
def test_cells_are_those_that_were_written(delimiter, rows):
    table = [["path", "label", "note"], *rows]
    for prefix in ("", f"sep={delimiter}\r\n"):
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter).writerows(table)
        found = list(records_of(prefix + text.getvalue()))
        assert [cells for _, cells in found] == table
        first = 1 + bool(prefix)
        assert [line for line, _ in found] == list(range(first, first + len(table)))


def test_open_quote_ends_a_table():
    with pytest.raises(TextError, match="line 2: no CSV from here on"):
        list(records_of('path;label\n"a;b\nc;d\n'))
