"""Ids: how they are checked, kept, found and handed out."""

import numpy as np
import pytest

from tests.support.index_examples import BOTH
from tests.support.peaks import peak_of
from tfdml.index import ExactIndex
from tfdml.index.rows import IdMap, Texts, check_ids, read_ids, stored
from tfdml.index.rows._texts import GrowingTexts


class Name(str):
    """A string of another type."""


@BOTH
@pytest.mark.parametrize("compacted", [False, True])
def test_emptied_index_takes_ids_of_the_other_kind(index_class, compacted, tmp_path):
    index = index_class.build(np.eye(2), ids=[1, 2], attributes={"class": ["x", "y"]})
    index.save(tmp_path)
    index.remove([1, 2])
    if compacted:
        index.compact()
    for unknown in ([1], ["a"]):
        with pytest.raises(KeyError, match="must be in the index"):
            index.get(unknown)
        assert index.search(np.eye(2), exclude=unknown).ids.shape == (2, 0)
    index.add([[2.0, 1.0]], ["a"], {"class": ["x"]})
    index.close()
    for same in (index, index_class.load(tmp_path)):  # the log is read without it
        assert same.ids.tolist() == ["a"]
        assert same.search(np.eye(2)).ids.tolist() == [["a"], ["a"]]
        assert same.get(["a"]).attributes == [{"class": "x"}]
        assert same.count({"class": "y"}) == 0
        with pytest.raises(ValueError, match="strings"):
            same.get([1])


@pytest.mark.parametrize("width", [1, 2, 5])
def test_map_leads_to_rows_whatever_the_width_of_ids(width):
    rng = np.random.default_rng(0)
    letters = np.array(list("abc"))
    words = ["".join(rng.choice(letters, rng.integers(width + 1))) for _ in range(80)]
    own, added = list(dict.fromkeys(words)), ["x", "long" * width, "y"]
    id_map = IdMap(check_ids(own))
    id_map.append(check_ids(added), len(own))
    rows = {value: row for row, value in enumerate(own + added)}
    asked = [*rows, "z", "a" * 3 * width, *(word + "b" for word in own), "long"]
    found = id_map.rows(check_ids(asked, may_repeat=True))
    assert found.tolist() == [rows.get(value, -1) for value in asked]


def test_map_finds_the_last_row_of_an_id():
    id_map = IdMap(np.array([5, 3, 9]))
    id_map.append(np.array([3, 4]), 3)
    id_map.append(np.array([4, 5]), 5)
    asked = np.array([3, 4, 5, 9, 0])
    assert id_map.rows(asked).tolist() == [3, 5, 6, 2, -1]
    id_map.reset(np.array([4]))
    assert id_map.rows(asked).tolist() == [1, 3, 0, 2, -1]


def test_map_tells_strings_of_the_same_hash_apart(monkeypatch):
    monkeypatch.setattr("tfdml.index.rows._id_map.hash", len, raising=False)
    words = ["a", "b", "cc", "c", "dd", ""]
    id_map = IdMap(stored(read_ids(words)))
    asked = [*words, "x", "xx", "xxx", "dd"]
    found = id_map.rows(read_ids(asked, may_repeat=True))
    assert found.tolist() == [*range(6), -1, -1, -1, 4]


IDS = ["", "a", " a ", "b\n", "é" * 7, "日本/語.jpg", "🙂", "w" * 1_024, "c", "0"]


@pytest.mark.parametrize("ids", [IDS, IDS[::-1], IDS[:1], []])
def test_texts_are_the_strings_in_any_rows(ids):
    ends = [len("".join(ids[: n + 1]).encode()) + n + 1 for n in range(len(ids))]
    texts, growing = Texts.of(ids), GrowingTexts(Texts.of(ids[:3]))
    growing.put(len(ids[:3]), np.array(["failed", "change"], object))
    growing.put(len(ids[:3]), np.array(ids[3:], object))
    for same in (texts, Texts.read(texts.text), growing.first(len(ids))):
        assert same.ends.tolist() == ends
        assert same.text.tobytes().decode() == "".join(value + "\0" for value in ids)
        for rows in (np.arange(len(ids)), np.arange(len(ids))[::-3], np.arange(0)):
            assert same[rows].tolist() == [ids[row] for row in rows]
    assert growing.first(min(2, len(ids)))[np.arange(0)].tolist() == []
    pairs = np.array([[0, 0], [len(ids) - 1, 0]])[: 2 * bool(ids)]
    assert texts[pairs].tolist() == [[ids[row] for row in own] for own in pairs]


def test_strings_that_follow_each_other_are_decoded_in_parts(monkeypatch):
    monkeypatch.setattr("tfdml.index.rows._texts._AT_ONCE", 3)
    texts = Texts.read(Texts.of(IDS).text)
    assert texts[np.arange(1, 9)].tolist() == IDS[1:9]
    assert IdMap(texts).rows(read_ids(IDS[::-1])).tolist() == [*range(10)][::-1]


@pytest.mark.parametrize(
    "ids", [IDS, ["", ""], [*"abc", ""], ["item 1", "item 20"] * 5, ["ä", "o", "ü"], []]
)
def test_texts_in_fixed_width_are_those_of_numpy(ids, monkeypatch):
    monkeypatch.setattr("tfdml.index.rows._texts._AT_ONCE", 3)
    monkeypatch.setattr("tfdml.index.rows._texts._FEW", 1)
    texts = Texts.of(ids)
    for rows in (np.arange(len(ids)), np.arange(len(ids))[::-1], np.arange(0)):
        expected = np.array([ids[row] for row in rows], str)
        found = texts.in_fixed_width(rows)
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()
    square = np.array([[0, len(ids) - 1]] * 2)[: 2 * bool(ids)]
    assert texts.in_fixed_width(square).shape == square.shape


@pytest.mark.parametrize("text", [b"a", b"a\0b", b"\xff\0", b"\xc3\0\xa9\0"])
def test_text_that_ends_early_or_is_not_unicode_is_refused(text):
    with pytest.raises(ValueError, match=r"NUL|utf-8"):
        Texts.read(np.frombuffer(text, np.uint8))


def test_one_long_id_costs_what_it_is_long(tmp_path):
    rows, long = 20_000, ["n" * 1_024]
    ids = [f"{row:06}" for row in range(rows)]
    gallery = np.ones((rows + 1, 1), np.float32)
    # As wide as the longest, they would have 4,096 bytes each.
    most = 300 * rows
    assert peak_of(lambda: ExactIndex.build(gallery, ids + long)) < most
    index = ExactIndex.build(gallery[:rows], ids)
    assert peak_of(lambda: index.add(gallery[:1], long)) < most
    assert peak_of(lambda: index.save(tmp_path)) < most
    index.close()
    assert sum(file.stat().st_size for file in tmp_path.rglob("*ids.npy")) < 9 * rows
    read = []
    assert peak_of(lambda: read.append(ExactIndex.load(tmp_path))) < most
    assert peak_of(lambda: read[0].get([*ids[:3], *long])) < most
    assert read[0].get([*long, *ids[:1]]).ids.tolist() == [*long, *ids[:1]]


@pytest.mark.parametrize("long", ["é" * 40, "e" * 40])
@pytest.mark.parametrize("most", [2**30, 100])
def test_ids_are_handed_out_in_fixed_width_or_as_objects(most, long, monkeypatch):
    monkeypatch.setattr("tfdml.index.rows._texts._FEW", 1)
    monkeypatch.setattr("tfdml.index.rows._texts._MOST_WASTE", most)
    ids = ["a", long, "c"]
    index = ExactIndex.build(np.eye(3)[:2], ids[:2], {"x": [1, 2]})
    assert index.ids.dtype == ("U40" if most > 100 else object)
    index.add(np.eye(3)[2:], ids[2:], {"x": [2]})
    found = index.search(np.eye(3), 3).ids
    assert found.dtype == ("U40" if most > 100 else object)
    for own in (index.ids, index.get(ids).ids, check_ids(ids)):
        assert own.dtype == found.dtype
        assert own.tolist() == ids
    assert index.ids_where({"x": 1}).dtype == "U1"
    assert index.ids_where({"x": 3}).dtype.kind == "U"
    assert ExactIndex.build(np.eye(3)).ids.dtype == np.int64


# NumPy has strings of variable width since 2.0.
VARIABLE = [np.dtypes.StringDType()] if hasattr(np.dtypes, "StringDType") else []


@pytest.mark.parametrize(
    "ids",
    [
        *(np.array(["a", "bé"], dtype) for dtype in (str, object, *VARIABLE)),
        [np.str_("a"), "bé"],
        (value for value in ("a", "bé")),
        [Name("a"), Name("bé")],
    ],
)
def test_ids_of_every_kind_of_string_become_plain_ones(ids):
    checked = read_ids(ids)
    assert checked.tolist() == ["a", "bé"]
    assert {type(value) for value in checked.tolist()} == {str}
