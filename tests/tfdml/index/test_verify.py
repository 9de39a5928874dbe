"""`verify_index`: what is intact is said to be, and each kind of damage is found."""

import json
import re

import numpy as np
import pytest

from tests.support.faults import flipped
from tests.support.installed import skip_without
from tests.support.saved_indexes import (
    clustered,
    data_of,
    log_file,
    rewrite_array,
    rewrite_manifest,
    snapshot,
    use_method,
)
from tests.support.threads import before_next
from tfdml.index import (
    ExactIndex,
    IndexFileError,
    LocalIndex,
    VerifyReport,
    load_index,
    verify_index,
)
from tfdml.index import _verify as verify


@pytest.fixture
def folder(tmp_path):
    """An index of 200 built, 5 added and 3 removed items."""
    gallery = clustered(205)
    index = ExactIndex.build(gallery[:200], attributes={"class": ["x", None] * 100})
    index.save(tmp_path / "index")
    with index:
        index.add(gallery[200:], range(1000, 1005), {"class": ["y"] * 5})
        index.remove([0, 7, 1001])
    return tmp_path / "index"


def test_report_says_what_there_is(folder):
    before = snapshot(folder)
    report = verify_index(folder)
    assert snapshot(folder) == before
    files = [path.stat().st_size for path in data_of(folder).iterdir()]
    assert report == VerifyReport(
        str(folder),
        kind="ExactIndex",
        items=202,
        files=len(files),
        bytes=sum(files),
        changes=2,
        tried=202,
        found=202,
    )
    assert str(report) == "\n".join(
        [
            f"{folder}: intact",
            "  ExactIndex of 202 items",
            f"  {len(files)} files are whole, {sum(files)} bytes",
            "  2 changes in the log",
            "  202 of 202 items find themselves",
        ]
    )


def test_sample_index_and_log_may_be_empty(folder, tmp_path):
    assert verify_index(folder, sample=50).tried == 50
    for rows, sample in ((3, 0), (0, 9)):
        ExactIndex.build(np.eye(3)[:rows]).save(tmp_path / "other")
        report = verify_index(tmp_path / "other", sample=sample)
        assert (report.ok, report.items, report.tried) == (True, rows, 0)
        assert (report.changes, report.torn_bytes) == (0, 0)
    with pytest.raises(ValueError, match="`sample` must be a whole number"):
        verify_index(folder, sample=-1)


def test_torn_change_is_reported_and_harmless(folder):
    with log_file(folder).open("ab") as file:
        file.write(b"\x93CHGhalf")
    report = verify_index(folder)
    assert (report.ok, report.changes, report.torn_bytes) == (True, 2, 8)
    assert "8 bytes of a change that was cut short" in str(report)


def test_change_that_has_its_length_and_not_its_content_is_a_problem(folder):
    # A loss of power, or of a block: nobody knows whether it was acknowledged.
    log = log_file(folder)
    whole = log.read_bytes()
    with ExactIndex.load(folder) as index:
        index.add(np.ones((400, 8)), range(2000, 2400))
    size = log.stat().st_size
    log.write_bytes(log.read_bytes()[:8192] + bytes(size - 8192))
    with ExactIndex.load(folder) as index:
        assert 2000 not in index
    before = log.read_bytes()
    report = verify_index(folder)
    assert log.read_bytes() == before
    (problem,) = report.problems
    assert f"{log}: the change at byte {len(whole)} has its length and not" in problem
    assert "restore the folder from a copy" in problem
    assert report.torn_bytes == size - len(whole)
    with ExactIndex.load(folder) as index:
        index.remove([1])
    assert verify_index(folder).ok  # as it says


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e19, 1e38])
@pytest.mark.parametrize("index_class", [ExactIndex, LocalIndex])
def test_numbers_of_any_size_are_intact(index_class, scale, tmp_path):
    gallery = np.random.default_rng(0).uniform(-3, 3, (40, 8)) * scale
    gallery[7] = 0
    index_class.build(gallery, metric="dot_product").save(tmp_path)
    report = verify_index(tmp_path)
    assert (report.problems, report.found) == ((), 40)


def test_index_that_is_replaced_meanwhile_is_looked_at_again(folder, monkeypatch):
    with ExactIndex.load(folder) as index:
        before_next(monkeypatch, verify, "check_file", lambda: index.save(folder))
        report = verify_index(folder)
    assert (report.problems, report.items, report.changes) == ((), 202, 0)


def test_every_damaged_file_is_listed(folder):
    data = data_of(folder)
    (data / "live.npy").unlink()
    (data / "ids.npy").write_bytes(b"")
    content = bytearray((data / "embeddings.npy").read_bytes())
    content[-1] ^= 1
    (data / "embeddings.npy").write_bytes(content)
    report = verify_index(folder)
    assert not report.ok
    assert len(report.problems) == 3
    text = str(report)
    assert text.startswith(f"{folder}: damaged\n  problem: ")
    for name, damage in (
        ("live.npy", "is missing"),
        ("ids.npy", "must have bytes"),
        ("embeddings.npy", "must have sha256"),
    ):
        assert any(name in line and damage in line for line in report.problems)
    assert report.items == report.tried == 0


def test_missing_and_damaged_logs_and_manifests_are_problems(folder):
    log = log_file(folder)
    whole = log.read_bytes()
    log.write_bytes(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    (problem,) = verify_index(folder).problems
    assert f"{log} is damaged at byte" in problem
    log.write_bytes(b"")
    assert "not of this index" in verify_index(folder).problems[0]
    log.unlink()
    assert str(log) in verify_index(folder).problems[0]
    manifest = folder / "manifest.json"
    for content in (b"", b"{}", manifest.read_bytes()[:-2]):
        manifest.write_bytes(content)
        (problem,) = verify_index(folder).problems
        assert str(manifest) in problem
    (problem,) = verify_index(folder / "nowhere").problems
    assert "holds no index" in problem


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class": "Shard"}, "'Shard', which is not an index"),
        ({"class": None}, "which is not an index"),
        ({"count": 199}, "must hold 199 items"),
        ({"dimension": 9}, "does not match the others"),
        ({"files": {}}, "does not name"),
        ({"files": {"ids.npy": 7}}, "no size of"),
        ({"attributes": 7}, "'attributes'"),
    ],
)
def test_manifest_that_does_not_fit_is_a_problem(changes, message, folder):
    rewrite_manifest(folder, **changes)
    report = verify_index(folder)
    assert any(message in problem for problem in report.problems), report.problems


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("live", lambda live: np.append(live, True), "does not match the others"),
        ("ids", lambda ids: put(ids, 10, ids[20]), r"^The id 20 occurs more than once"),
        ("embeddings", lambda rows: put(rows, 150, np.nan), ""),
        ("embeddings", lambda rows: put(rows, 150, np.inf), ""),
        ("embeddings", lambda rows: put(rows, 150, 0), ""),
    ],
)
def test_arrays_that_do_not_fit_are_a_problem(name, change, message, folder):
    array = np.load(data_of(folder) / f"{name}.npy")
    rewrite_array(folder, name, change(array))
    problem, *_ = verify_index(folder).problems
    assert re.search(message, problem)


def put(array, place, value):
    array[place] = value
    return array


def test_index_that_answers_for_another_gallery_is_a_problem(monkeypatch, tmp_path):
    # ScaNN's own files are whole, and of something else.
    skip_without("scann")
    use_method("hashing", monkeypatch.setattr)
    one, other = tmp_path / "one", tmp_path / "other"
    LocalIndex.build(clustered(200)).save(one)
    LocalIndex.build(-clustered(200)).save(other)
    rewrite_array(one, "dataset", np.load(data_of(other) / "dataset.npy"))
    report = verify_index(one)
    assert report.found < 100
    assert f"Only {report.found} of 200 items find themselves." in report.problems


def test_every_flipped_bit_is_refused_and_found_or_harmless(folder):
    manifest = as_json(folder / "manifest.json")
    for path in snapshot(folder):
        size, is_manifest = path.stat().st_size, path.name == "manifest.json"
        for place in flipped(path, range(0, size, 3 if is_manifest else size // 20)):
            if is_manifest and as_json(path) == manifest:  # white space
                continue
            with pytest.raises(IndexFileError):
                load_index(folder)
            if place % 5 == 0:
                assert not verify_index(folder, sample=0).ok
    assert verify_index(folder).ok


def as_json(path):
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return None
