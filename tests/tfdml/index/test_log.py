"""The log of changes: round trips, torn records, flipped bytes, foreign files."""

import io
import json
import tracemalloc

import numpy as np
import pytest

from tests.support.faults import flipped
from tests.support.saved_indexes import data_of, items_of, log_file
from tfdml.index import ExactIndex, IndexFileError, load_index
from tfdml.index.rows import kind_of
from tfdml.index.storage import Change, ChangeLog, LogError, create_log, read_log
from tfdml.index.storage import _log as log

NAME = "data-0123456789abcdef"


def change(removed=(), ids=(), embeddings=None, attributes=None, dtype=np.int64):
    if embeddings is None:
        embeddings = np.arange(3 * len(ids), dtype=np.float32).reshape(-1, 3)
    return Change(
        np.array(removed, dtype), np.array(ids, dtype), embeddings, attributes or {}
    )


CHANGES = {
    "added integers": change(ids=[3, -(2**63), 2**63 - 1]),
    "added strings": change(ids=["a", "", "Straße/ü.jpg"], dtype="U20"),
    "any characters": change(
        ids=["\ufffd", "\x01\U0001f600", "\x93CHG"],
        attributes={"\u2028": ("string", ["\ufeff", "\U0001f600", None])},
        dtype="U20",
    ),
    "removed": change(removed=[5, 7]),
    "removed strings": change(removed=["é"], dtype="U1"),
    "updated": change(removed=["a", "b"], ids=["a", "b"], dtype="U1"),
    "attributes of all kinds": change(
        ids=[1, 2, 3],
        attributes={
            "text": ("string", ["", None, "line\nbreak"]),
            "whole": ("integer", [-(2**63), 2**63 - 1, None]),
            "number": ("number", [1e-320, 1.0, None]),
            "flag": ("boolean", [True, None, False]),
            "none": ("string", [None, None, None]),
        },
    ),
    "numbers at the limits": change(
        ids=[1],
        embeddings=np.array([[1e-45, 3.4028235e38, -0.0]], np.float32),
    ),
    "another byte order": change(ids=[1], embeddings=np.ones((1, 3), ">f4")),
    "transposed": change(
        ids=[1, 2], embeddings=np.arange(6, dtype=np.float32).reshape(3, 2).T
    ),
    "nothing": change(),
}


def same(one, other):
    for name in ("removed", "ids", "embeddings"):
        left, right = getattr(one, name), getattr(other, name)
        np.testing.assert_array_equal(left, right)
        assert left.shape == right.shape
        if name != "embeddings" and len(left):
            assert kind_of(left) == kind_of(right)
    assert one.embeddings.dtype == np.float32
    np.testing.assert_array_equal(
        np.signbit(one.embeddings), np.signbit(other.embeddings)
    )
    assert {k: (kind, list(v)) for k, (kind, v) in one.attributes.items()} == dict(
        other.attributes
    )
    for name, (_, values) in one.attributes.items():
        expected = other.attributes[name][1]
        assert [type(value) for value in values] == [type(v) for v in expected]


def write(path, *changes):
    """Write a log and return where each change ends."""
    ends = [create_log(path, NAME)]
    opened = ChangeLog(path, NAME)
    for one in changes:
        ends.append(opened.append(one, ends[-1]))
    opened.close()
    return ends


# Records


@pytest.mark.parametrize("name", CHANGES)
def test_change_comes_back(name, tmp_path):
    ends = write(tmp_path / "log", CHANGES[name], CHANGES["removed"])
    (first, end), (second, last) = read_log(tmp_path / "log", NAME)
    same(first, CHANGES[name])
    same(second, CHANGES["removed"])
    assert [end, last] == ends[1:]
    assert last == (tmp_path / "log").stat().st_size


def test_reading_goes_on_from_an_end_of_before(tmp_path):
    ends = write(tmp_path / "log", *CHANGES.values())
    for start, place in enumerate(ends):
        found = [end for _, end in read_log(tmp_path / "log", NAME, place)]
        assert found == ends[start + 1 :]


def test_log_that_is_cut_anywhere_ends_with_the_last_whole_change(tmp_path):
    path = tmp_path / "log"
    ends = write(path, *(CHANGES[n] for n in ("added strings", "nothing", "removed")))
    whole = path.read_bytes()
    for before, start, last in zip([0, *ends], ends, ends[1:], strict=False):
        for length in range(start, last):
            path.write_bytes(whole[:length])
            found = [end for _, end in read_log(path, NAME, before)]
            assert found == [start] * (before > 0)


@pytest.mark.parametrize("rest", [b"\0", b"\0" * 5000, b"\x93CHG", b"\x93CHG" * 11])
def test_what_no_change_was_written_to_is_left_out(rest, tmp_path):
    # A file system may have made a file longer before it was cut off from its power.
    write(tmp_path / "log", CHANGES["updated"])
    with (tmp_path / "log").open("ab") as file:
        file.write(rest)
    assert len(list(read_log(tmp_path / "log", NAME))) == 1


def test_flipped_bit_of_an_earlier_change_is_an_error(tmp_path):
    path = tmp_path / "log"
    ends = write(path, *(CHANGES[n] for n in ("updated", "any characters", "removed")))
    for _ in flipped(path, range(0, ends[2], 2)):
        with pytest.raises(LogError, match=str(path)):
            list(read_log(path, NAME))


def test_flipped_bit_of_the_last_change_is_an_error(tmp_path):
    # It was acknowledged: to leave it out would undo it.
    path = tmp_path / "log"
    ends = write(path, CHANGES["updated"], CHANGES["attributes of all kinds"])
    for _ in flipped(path, range(ends[1], ends[2])):
        with pytest.raises(LogError, match=f"at byte {ends[1]}.*Truncating the file"):
            list(read_log(path, NAME))
    path.write_bytes(path.read_bytes()[: ends[1]])  # as it says
    assert len(list(read_log(path, NAME))) == 1


def test_change_of_which_blocks_were_not_written_is_left_out_and_told(tmp_path, caplog):
    # A loss of power: the file has its length, and some blocks have not come.
    path = tmp_path / "log"
    rows = np.ones((3, 1000), np.float32)
    ends = write(path, CHANGES["updated"], change(ids=[1, 2, 3], embeddings=rows))
    whole = path.read_bytes()
    assert ends[2] > 3 * 4096 > 4096 > ends[1]
    blocks = [(ends[1], 4096), (4096, 8192), (8192, 12288), (12288, ends[2])]
    for start, end in blocks:
        for last in (end, ends[2]):
            path.write_bytes(whole[:start] + bytes(last - start) + whole[last:])
            caplog.clear()
            ((_, only),) = read_log(path, NAME)
            assert only == ends[1]
            # Where the header is gone too, nobody knows how long it should be.
            told = f"at byte {ends[1]} was not completely written" in caplog.text
            assert told == (start > ends[1])
    # Zeros that are no block were not left by the disk.
    path.write_bytes(whole[:5000] + bytes(3000) + whole[8000:])
    with pytest.raises(LogError, match=f"damaged at byte {ends[1]}"):
        list(read_log(path, NAME))


def test_damaged_change_with_half_a_one_behind_it_is_an_error(tmp_path):
    # The second was acknowledged; the third broke off.
    path = tmp_path / "log"
    ends = write(path, *(CHANGES[n] for n in ("updated", "removed", "updated")))
    damaged = bytearray(path.read_bytes())
    damaged[ends[2] - 1] ^= 1
    for end in range(ends[2] + 1, ends[3]):
        path.write_bytes(damaged[:end])
        with pytest.raises(LogError, match=f"damaged at byte {ends[1]}"):
            list(read_log(path, NAME))


def test_change_that_is_whole_by_the_second_look_is_read(tmp_path, monkeypatch):
    # Somebody finishes it, and adds another, while it is read.
    path = tmp_path / "log"
    ends = write(path, *(CHANGES[n] for n in ("updated", "removed", "updated")))
    whole = path.read_bytes()
    path.write_bytes(whole[: ends[1] + 20])
    read_payload = log._read_payload

    def written_meanwhile(file, place, name):
        found = read_payload(file, place, name)
        path.write_bytes(whole)
        return found

    monkeypatch.setattr(log, "_read_payload", written_meanwhile)
    assert [end for _, end in read_log(path, NAME)] == ends[1:]


def test_embedding_that_looks_like_a_record_is_none(tmp_path):
    # Who adds embeddings, and knows no name, cannot make a torn record an error.
    fake = tmp_path / "fake"
    ends = [create_log(fake, "data-ffffffffffffffff")]
    opened = ChangeLog(fake, "data-ffffffffffffffff")
    opened.append(CHANGES["updated"], ends[0])
    opened.close()
    record = fake.read_bytes()[ends[0] :]
    record += bytes(-len(record) % 12)
    numbers = np.frombuffer(record, "<f4").reshape(-1, 3)
    path = tmp_path / "log"
    write(path, change(ids=list(range(len(numbers))), embeddings=numbers))
    ((found, _),) = read_log(path, NAME)
    np.testing.assert_array_equal(found.embeddings.view("u4"), numbers.view("u4"))
    path.write_bytes(path.read_bytes()[:-1])
    assert not list(read_log(path, NAME))


def test_log_of_other_data_is_refused(tmp_path):
    write(tmp_path / "log", CHANGES["removed"])
    with pytest.raises(LogError, match="not of this index"):
        list(read_log(tmp_path / "log", "data-ffffffffffffffff"))
    for content in (b"", b"tfdml-changes 1 ", b"\x89PNG\r\n"):
        (tmp_path / "log").write_bytes(content)
        with pytest.raises(LogError, match=f"{tmp_path / 'log'} is damaged"):
            list(read_log(tmp_path / "log", NAME))


@pytest.mark.parametrize(
    "values",
    [
        [],
        {},
        {"removed": 7},
        {"ids": ["a", "a"], "shape": [2, 3]},
        {"ids": [1.5], "shape": [1, 3]},
        {"ids": [1], "shape": [0, 3]},
        {"ids": [1], "shape": [1, 1, 3]},
        {"ids": [1], "shape": [1, 3], "attributes": {"a": ["string", []]}},
        {"ids": [1], "shape": [1, 3], "attributes": {"a": 7}},
    ],
)
def test_record_of_something_else_is_refused(values, tmp_path, monkeypatch):
    path = tmp_path / "log"
    whole = {"removed": [], "ids": [], "kind": "integer", "shape": [0, 3]}
    if isinstance(values, dict) and values:
        values = {**whole, "attributes": {}, **values}
    text = json.dumps(values)
    monkeypatch.setattr(log.json, "dumps", lambda *a, **o: text)
    write(path, change(ids=[1]) if "ids" in values else change())
    with pytest.raises(LogError, match=f"{path} holds a record that is not a change"):
        list(read_log(path, NAME))


def test_reading_takes_the_memory_of_one_change(tmp_path):
    path = tmp_path / "log"
    rows = np.ones((1000, 256), np.float32)  # 1 MB
    ends = write(
        path,
        *(
            change(ids=[*range(n, n + 1000)], embeddings=rows)
            for n in range(0, 32_000, 1000)
        ),
    )
    whole = path.read_bytes()
    torn, damaged = whole[:-1], bytearray(whole)
    damaged[ends[0]] ^= 1
    del whole
    for content, expected in ((torn, 31), (damaged, None)):
        path.write_bytes(content)
        tracemalloc.start()
        try:
            count = sum(1 for _ in read_log(path, NAME))
        except LogError:
            count = None
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == expected
        assert peak < 6 * 2**20


def test_record_that_claims_to_be_huge_takes_no_memory(tmp_path):
    path = tmp_path / "log"
    write(path)
    start = log._HEADER.pack(log._MAGIC, 2**60, bytes(32), 0)[:-4]
    with path.open("ab") as file:
        file.write(start + log._checksum(start, NAME).to_bytes(4, "little") + b"rest")
    assert not list(read_log(path, NAME))


def test_write_that_takes_a_part_is_gone_on_with(tmp_path):
    # A disk that is nearly full, or 2 GiB at once: the system writes a part.
    path = tmp_path / "log"
    end = create_log(path, NAME)
    opened = ChangeLog(path, NAME)

    class Slow(io.FileIO):
        def write(self, content):
            return super().write(bytes(content)[:7])

    opened._file.close()
    opened._file = Slow(path, "r+b")
    end = opened.append(CHANGES["attributes of all kinds"], end)
    opened.close()
    ((found, last),) = read_log(path, NAME)
    same(found, CHANGES["attributes of all kinds"])
    assert last == end


# Of a saved index


def saved(folder):
    """Save an index that has been changed, and return its ends of changes."""
    index = ExactIndex.build(
        np.eye(3), ids=["a", "b", "c"], attributes={"class": ["x", "y", "z"]}
    )
    with index:
        index.save(folder)
        index.add([[1, 2, 3]], ["\U0001f600"], {"class": [None], "price": [2.5]})
        index.update(["a"], attributes={"class": ["new"]})
        index.remove(["b"])
        index.add([[3, 2, 1]], ["d"], {"class": ["x"]})
        return items_of(index)


def test_index_whose_last_change_is_cut_anywhere_loads_without_it(tmp_path):
    saved(tmp_path / "index")
    path = log_file(tmp_path / "index")
    whole, sizes = path.read_bytes(), set()
    *_, (_, before), (_, end) = read_log(path, path.stem)
    assert end == len(whole)
    for length in range(before, end, 3):
        path.write_bytes(whole[:length])
        with load_index(tmp_path / "index") as index:
            assert index.ids.tolist() == ["c", "\U0001f600", "a"]
            index.remove(["c"])  # which is shorter, and cuts off the rest
        sizes.add(path.stat().st_size)
        assert load_index(tmp_path / "index").ids.tolist() == ["\U0001f600", "a"]
    assert len(sizes) == 1
    assert sizes.pop() < end


@pytest.mark.parametrize(
    ("foreign", "message"),
    [
        (change(removed=["nobody"], dtype="U9"), "a removed id is missing"),
        (change(ids=["c"], dtype="U9"), "an added id exists"),
        (change(removed=["a"], ids=["c"], dtype="U9"), "an added id exists"),
        (change(ids=[7]), "the kind of its ids"),
        (
            change(ids=["n"], embeddings=np.ones((1, 4), np.float32), dtype="U9"),
            "the dimension of its embeddings",
        ),
        (
            change(ids=["n"], embeddings=np.full((1, 3), np.nan, "f4"), dtype="U9"),
            "an embedding that is not finite",
        ),
        (
            change(ids=["n"], attributes={"class": ("integer", [1])}, dtype="U9"),
            "the kind of an attribute",
        ),
    ],
)
def test_change_that_does_not_fit_is_refused(foreign, message, tmp_path):
    # Such as one that was written in spite of the lock, by a file system without.
    saved(tmp_path)
    data, path = data_of(tmp_path), log_file(tmp_path)
    opened = ChangeLog(path, data.name)
    opened.append(foreign, path.stat().st_size)
    opened.close()
    with pytest.raises(IndexFileError, match=rf"does not fit: {message}"):
        load_index(tmp_path)
