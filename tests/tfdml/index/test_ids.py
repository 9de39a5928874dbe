"""Ids of items: what is taken for one, and where it leads."""

import numpy as np
import pytest

from tests.support.index_examples import BOTH
from tfdml.index import ExactIndex
from tfdml.index.rows import IdMap, check_ids, check_widths


@BOTH
@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (["cat/1.png", "Straße/ü.jpg", ""], "U"),
        (np.array(["a", "bb", "ccc"]), "U"),
        (np.array(["a", "bb", "ccc"], dtype=object), "U"),
        ([np.str_("a"), "b", np.str_("c")], "U"),
        (["a\ufffd", "a ", " a"], "U"),
        (["👟" * 1_024, "a", "aa"], "U"),
        ([7, -3, 2**62], "i"),
        ([np.int8(7), 3, np.uint64(9)], "i"),
        (np.array([3, 1, 2], dtype=np.uint8), "i"),
        ([-(2**63), 0, 2**63 - 1], "i"),
        (range(5, 8), "i"),
        ({4: "x", 5: "y", 6: "z"}.keys(), "i"),
    ],
)
def test_ids_come_back_after_a_save(index_class, ids, kind, tmp_path):
    index_class.build(np.eye(3), ids=ids).save(tmp_path / "index")
    index = index_class.load(tmp_path / "index")
    assert index.ids.tolist() == list(ids)
    assert index.ids.dtype.kind == kind
    found = index.search(np.eye(3), k=1).ids
    assert found[:, 0].tolist() == list(ids)
    assert found.dtype == index.ids.dtype
    assert all(value in index for value in ids)
    assert index.get(ids).ids.tolist() == list(ids)


@BOTH
def test_ids_are_rows_by_default(index_class):
    index = index_class.build(np.eye(3))
    assert index.ids.tolist() == [0, 1, 2]
    assert index.ids.dtype == np.int64


def test_ids_are_copied():
    ids = np.array([4, 5])
    index = ExactIndex.build(np.eye(2), ids=ids)
    ids[:] = 0
    assert index.ids.tolist() == [4, 5]
    index.ids[:] = 1
    index.search(np.eye(2)).ids[:] = 1
    index.get([4]).ids[:] = 1
    assert index.ids.tolist() == [4, 5]


BAD_IDS = [
    (["a", 1], r"all strings or all integers.*int, str"),
    ([1.0, 2.0], r"all strings or all integers.*float"),
    (np.array([1.0, 2.0]), r"all strings or all integers.*float"),
    ([True, False], r"all strings or all integers.*bool"),
    ([1, True], r"all strings or all integers.*bool, int"),
    (np.array([True, False]), r"all strings or all integers.*bool"),
    ([np.bool_(True), 2], r"all strings or all integers.*bool"),
    ([b"a", b"b"], r"all strings or all integers.*bytes"),
    ([None, "b"], r"all strings or all integers.*NoneType, str"),
    (np.array([[1], [2]]), r"`ids` must be a flat sequence"),
    ([[1], [2]], r"`ids` must be a flat sequence"),
    ([np.array([1]), np.array([2])], r"`ids` must be a flat sequence"),
    ([1, 2**63], r"`ids` must fit int64"),
    ([1, np.uint64(2**63)], r"`ids` must fit int64"),
    (np.array([1, 2**63], np.uint64), r"`ids` must fit int64"),
    (["a", "a\0"], r"`ids` must not contain the character NUL"),
    (["a", "b\udcff"], r"`ids` must be valid Unicode.*'b\\udcff'"),
    (["\ud83d", "\ude00"], r"`ids` must be valid Unicode"),
    (["a", "b" * 1_025], r"`ids` must have at most 1,024 characters.*1,025"),
    ("ab", r"`ids` must be a sequence of ids.*\['ab'\]"),
    (b"ab", r"`ids` must be a sequence of ids"),
    (7, r"`ids` must be a sequence of ids.*\[7\]"),
    (np.int64(7), r"`ids` must be a sequence of ids"),
    (np.array(7), r"`ids` must be a sequence of ids"),
    ({"a", "b"}, r"`ids` must be an ordered sequence, not a set"),
]
REPEATED = [
    (["a", "a"], r"`ids` must not repeat.*'a' 2 times"),
    ([3, 3], r"`ids` must not repeat.*3 2 times"),
    (np.array([3, 3]), r"`ids` must not repeat.*3 2 times"),
    ([np.int64(3), 3], r"`ids` must not repeat.*3 2 times"),
]
COUNTED = [
    (["a"], r"`ids` must hold one id for each of the 2 rows.*1 ids"),
    ([], r"`ids` must hold one id for each of the 2 rows.*0 ids"),
    (["a", "b", "c"], r"`ids` must hold one id for each of the 2 rows.*3 ids"),
]


@pytest.mark.parametrize(("ids", "message"), BAD_IDS + REPEATED + COUNTED)
def test_bad_ids_are_refused_by_build_and_add(ids, message):
    with pytest.raises(ValueError, match=message):
        ExactIndex.build(np.eye(2), ids=ids)
    index = ExactIndex.build(np.empty((0, 2)))
    with pytest.raises(ValueError, match=message):
        index.add(np.eye(2), ids)
    assert len(index) == 0


@pytest.mark.parametrize("ids", [case[0] for case in BAD_IDS])
@pytest.mark.parametrize("stored", [["a", "b"], [1, 2]])
def test_bad_ids_are_refused_by_all_others(ids, stored):
    index = ExactIndex.build(np.eye(2), ids=stored)
    for call in (index.remove, index.get, lambda ids: index.update(ids, np.eye(2))):
        with pytest.raises(ValueError, match="`ids`"):
            call(ids)
    assert index.ids.tolist() == stored


@pytest.mark.parametrize(("ids", "message"), REPEATED)
def test_repeated_ids_are_refused_by_changes_and_returned_by_get(ids, message):
    index = ExactIndex.build(np.eye(2), ids=[*set(ids), "b" if "a" in ids else 4])
    with pytest.raises(ValueError, match=message):
        index.remove(ids)
    with pytest.raises(ValueError, match=message):
        index.update(ids, np.eye(2))
    assert len(index) == 2
    assert index.get(ids).ids.tolist() == list(ids)


@pytest.mark.parametrize(
    ("stored", "other"), [(["a", "b"], [1]), ([1, 2], ["a"]), ([1, 2], ["1"])]
)
def test_ids_of_the_other_kind_are_refused(stored, other):
    index = ExactIndex.build(np.eye(2), ids=stored)
    kind = "strings" if isinstance(stored[0], str) else "integers"
    calls = [
        lambda: index.add(np.eye(2)[:1], other),
        lambda: index.update(other, np.eye(2)[:1]),
        lambda: index.remove(other),
        lambda: index.get(other),
        lambda: index.search(np.eye(2), exclude=other),
        lambda: index.search(np.eye(2), exclude=[other, []]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f"of the kind that the index has, {kind}"):
            call()
    assert other[0] not in index
    assert index.ids.tolist() == stored


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


@pytest.mark.parametrize("value", [1.0, True, None, b"a", ["a"], np.bool_(True), 2**63])
def test_what_is_no_id_is_not_in_the_index(value):
    assert value not in ExactIndex.build(np.eye(2), ids=[0, 1])
    assert value not in ExactIndex.build(np.eye(2), ids=["a", "b"])


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


def ids_of(count, width, text="a"):
    """Return ids in an array that takes no memory."""
    return np.broadcast_to(np.array(text, f"U{width}"), count)


@pytest.mark.parametrize(
    ("ids", "there", "waste"),
    [
        # Each takes 4 bytes a character: 300,000 times 1,023 of them are not used.
        (ids_of(300_000, 1_024), [], "1.2 GB"),
        (ids_of(1, 1_024), [ids_of(300_000, 1)], "1.2 GB"),
        (ids_of(1, 1_024, "a" * 1_024), [ids_of(200_000, 1), ids_of(10**5, 24)], "1.2"),
    ],
)
def test_one_long_id_that_costs_others_gigabytes_is_refused(ids, there, waste):
    with pytest.raises(
        ValueError, match=rf"1,024 characters, for which 300,0.*{waste}"
    ):
        check_widths(ids, *there)


def test_ids_of_like_length_may_be_long_and_many():
    check_widths(ids_of(10**5, 1_024))
    check_widths(ids_of(300_000, 1_024, "a" * 1_000))
    check_widths(ids_of(1, 1_024), ids_of(300_000, 1_024), ids_of(10, 3))
    check_widths(np.broadcast_to(np.int64(3), 10**9), np.broadcast_to(np.int64(3), 9))
    check_widths(np.empty(0, "U1024"), ids_of(10**8, 1))
