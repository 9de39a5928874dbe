"""Tables for a terminal: aligned in its columns, and no wider than it."""

import io
import json
import unicodedata

import pytest

from serving.commands.tables import details, print_json, print_text, shorten, table


def columns(text):
    """How many columns a terminal needs, by the Unicode standard's own classes."""
    wide = sum(unicodedata.east_asian_width(letter) in ("W", "F") for letter in text)
    marks = sum(unicodedata.combining(letter) != 0 for letter in text)
    return len(text) + wide - marks


def test_texts_stand_on_the_left_and_numbers_on_the_right():
    text = table(["id", "count", "share"], [["a", 1234, 0.5], ["long", 7, 0.123456]])
    assert text.splitlines() == [
        "id    count   share",
        "----  -----  ------",
        "a     1,234  0.5000",
        "long      7  0.1235",
    ]


def test_what_is_none_stays_empty_and_a_boolean_is_a_word():
    text = table(["id", "match", "class"], [["a", True, None], ["b", False, "x"]])
    assert text.splitlines()[2:] == ["a   yes", "b   no     x"]


def test_table_without_rows_has_its_headers():
    assert table(["id", "count"], []).splitlines() == ["id  count", "--  -----"]


def test_long_ids_are_shortened_in_the_middle_until_a_line_fits():
    ids = [f"a/very/deep/folder/{'x' * 90}/{number}.png" for number in range(12)]
    lines = table(["rank", "similarity", "id"], [[1, 0.5, i] for i in ids]).splitlines()
    assert max(map(len, lines)) == 80
    for number, line in enumerate(lines[2:]):
        name = line.split()[-1]
        assert name.startswith("a/very/deep/")
        assert name.endswith(f"xx/{number}.png")
        assert name.count("...") == 1


def test_the_longest_text_gives_way_first():
    lines = table(["class", "id"], [["shoe" * 5, "x" * 200]], width=60).splitlines()
    assert lines[2].startswith("shoe" * 5 + "  xxx")
    assert len(lines[2]) == 60


def test_width_of_the_terminal_counts(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, table(["id"], [["x" * 200]]).splitlines())) == 40
    assert max(map(len, details({"name": "x" * 200}).splitlines())) == 40


def test_chinese_ids_are_aligned_by_the_columns_that_they_need():
    lines = table(["id", "n"], [["漢字/一.png", 1], ["abc", 2]]).splitlines()
    assert len({columns(line) for line in lines}) == 1
    short = shorten("漢" * 100, 21)
    assert columns(short) <= 21
    assert columns(short) >= 20


@pytest.mark.parametrize("width", range(60))
def test_shortened_text_is_never_wider_than_asked(width):
    for text in ("abc" * 10, "漢字" * 10, "e\u0301" * 20):
        assert columns(shorten(text, width)) <= max(width, 0)


def test_text_that_fits_stays_as_it_is():
    assert shorten("x" * 20, 20) == "x" * 20


def test_a_file_name_cannot_send_codes_to_the_terminal():
    text = table(["id"], [["a\x1b[2Jb\nc\udcff"]])
    assert text.splitlines()[2:] == [r"a\x1b[2Jb\nc\udcff"]


def test_details_leave_out_what_there_is_not():
    text = details({"Images": 12345, "Recall": None, "Model": "demo"})
    assert text.splitlines() == ["Images  12,345", "Model   demo"]


def test_text_that_the_terminal_cannot_show_is_escaped(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    print_text("漢.png")
    stream.flush()
    assert stream.buffer.getvalue() == b"\\u6f22.png\n"


def test_json_is_one_document_of_ascii(capsys):
    print_json({"id": "漢\udcff"})
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed) == {"id": "漢\udcff"}
