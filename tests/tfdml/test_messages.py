import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdml.messages import LONGEST, bounded, cut, shortened, shown


class Unfriendly:
    """An object of another library whose text is long and colored."""

    def __repr__(self):
        return "\x1b[31m" + "red\n" * 10**5


VALUES = st.one_of(
    st.text(),
    st.binary(),
    st.floats(),
    st.recursive(
        st.integers() | st.text() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
)


@given(VALUES)
def test_a_value_is_shown_short_and_printable(value):
    text = shown(value)
    assert text
    assert text.isprintable()
    assert len(text) <= 150


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**6,
        "\u202e\x00\x1b" * 10**5,
        b"\x00" * 10**6,
        bytearray(10**6),
        10**5000,
        [10**5000],
        list(range(10**6)),
        [["x" * 10**6] * 10] * 10,
        {str(k): "v" * 1000 for k in range(10**4)},
        np.zeros(10**6),
        np.zeros(3, [(f"column {k}", "f4") for k in range(1000)]),
        [np.zeros(10**6), np.zeros(10**6)],
        np.str_("x" * 10**6),
        Unfriendly(),
        [Unfriendly()],
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_huge_value_is_shown_short_and_printable(value):
    text = shown(value)
    assert text.isprintable()
    assert len(text) <= 150


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("shoe", "'shoe'"),
        ("x" * 100, repr("x" * 100)),
        ("a\nb", r"'a\nb'"),
        (None, "None"),
        (True, "True"),
        (0.1 + 0.2, "0.30000000000000004"),
        (np.zeros((2, 3), "f4"), "an array of shape (2, 3), dtype float32"),
        ([1, 2], "[1, 2]"),
        ({"a": 1}, "{'a': 1}"),
    ],
    ids=str,
)
def test_a_short_value_is_shown_as_python_writes_it(value, text):
    assert shown(value) == text


def test_a_long_path_keeps_its_start_and_its_file():
    path = cut("/data/" + "folder/" * 100 + "17.jpg")
    assert path.startswith("/data/folder")
    assert path.endswith("/17.jpg")
    assert len(path) == 150


@given(st.text(), st.integers(16, 200))
def test_a_text_is_cut_to_its_length(text, most):
    short = cut(text, most)
    assert short.isprintable()
    assert len(short) <= most
    if text.isprintable() and len(text) <= most:
        assert short == text


@given(st.text())
def test_a_whole_message_keeps_its_lines_within_its_length(text):
    message = bounded(text)
    assert len(message) <= LONGEST
    assert all(line.isprintable() for line in message.split("\n"))


def test_the_reason_of_another_library_becomes_a_part_of_a_sentence():
    assert shortened(ValueError("Bad  magic\nnumber.")) == "Bad magic number"
    assert shortened(MemoryError()) == "MemoryError"
    assert len(shortened(ValueError("x" * 10**6))) == 200
