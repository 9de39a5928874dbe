"""An engine with one method for any size, on inputs that it does not survive.

`test_out_of_process.py` runs these tests, each method in a process of its own. Only the
checks of `LocalIndex` keep ScaNN 1.4.2 from ending that process, or answering with
wrong ids.
"""

import pickle
import random
import resource
import shutil
from functools import partial

import numpy as np
import pytest

from tests.support.index_examples import METRICS, recall
from tests.support.index_kinds import KINDS, METHODS, Builder
from tests.support.saved_indexes import clustered, data_of, snapshot
from tests.support.threads import meanwhile
from tfdml.index import (
    ExactIndex,
    IndexFileError,
    LocalIndex,
    load_index,
    verify_index,
)
from tfdml.index.engines._settings import EngineLimits, IndexSettings
from tfdml.neighbors import nearest_neighbors

(KIND,) = KINDS
METHOD, ENGINE = METHODS[KIND]
LEAST = {"exact": 0.999, "hashing": 0.95, "codes": 0.95, "tree": 0.7}  # recalls
of_trees = pytest.mark.skipif(METHOD != "tree", reason="A tree is searched in part.")


@pytest.fixture(autouse=True, scope="module")
def use_the_method():
    Builder(KIND, None)


@pytest.fixture(scope="module")
def gallery():
    return clustered(3000)


def finds(index, rows, ids, k=1):
    """Check that rows find the items that they are; hashing may miss a few."""
    found = index.search(rows, k)
    assert np.isfinite(found.scores).all()
    assert all(len(set(row)) == k for row in found.ids.tolist())
    own = np.mean(found.ids[:, 0] == np.array(ids))
    assert own >= (1 if METHOD == "exact" else 0.9), (found.ids[:, 0], ids)


# Searches


def test_method_is_used(gallery):
    settings = LocalIndex.build(gallery).settings
    assert (settings.method, settings.engine) == (METHOD, ENGINE)


def test_every_k_gets_k_different_rows_and_a_huge_one_takes_no_memory(gallery):
    # The process may have started at the peak of its parent.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    index = LocalIndex.build(gallery)
    for state in ("built", "changed", "filtered"):
        where = None
        if state == "changed":
            index.add(gallery[:1], [3000], {"class": ["x"]})
            index.remove([7])
        if state == "filtered":
            where = {"class": "x"}
        for k in (1, 60, 500, 2999, 3000, 3001, 10**9, 2**63, 2**70):
            ids, scores = index.search(gallery[:20], k=k, where=where)
            wanted = 1 if where else min(k, 3000)
            assert ids.shape == scores.shape == (20, wanted)
            assert all(len(set(row)) == wanted for row in ids.tolist())
            assert np.isfinite(scores).all()
            assert (np.diff(scores) <= 1e-6).all()
            assert (ids != 7).all() or state == "built"
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 2**20  # KiB; ScaNN would take 16 GB


@of_trees
def test_padding_is_never_returned(gallery, monkeypatch):
    # Two leaves of 55 or 110 hold about 109 or 55 rows. Where they hold fewer than k,
    # ScaNN fills up with id 0 and NaN, and FAISS with -1; the margins that make this
    # rare are taken away.
    monkeypatch.setattr(IndexSettings, "candidates", lambda self, k, rows: k)
    monkeypatch.setattr(IndexSettings, "leaves_for", lambda self, k, rows: 2)
    index = LocalIndex.build(gallery)
    searcher = index._table.snapshot.searcher
    queries = gallery[:200]
    _, scores = searcher._call(queries, searcher._asked(100)[1])
    assert np.isnan(scores).any(axis=1).sum() > 10
    for removed in ([], [0], [0, 5, 1500]):
        index.remove([row for row in removed if row in index])
        ids, scores = index.search(queries, k=100)
        assert np.isfinite(scores).all()
        assert all(len(set(row)) == 100 for row in ids.tolist())
        assert not np.isin(ids, removed).any()


@pytest.mark.skipif(ENGINE != "scann", reason="FAISS then compares with all.")
def test_answer_that_stays_short_is_an_error(gallery):
    # Should it pad even when it searches everything, nobody gets to see it.
    def call(queries, settings):
        shape = (len(queries), settings["final_num_neighbors"])
        return np.zeros(shape, np.uint32), np.full(shape, np.nan, np.float32)

    index = LocalIndex.build(gallery)
    index._table.snapshot.searcher._call = call
    with pytest.raises(RuntimeError, match="fewer than k=3 of 3000 rows"):
        index.search(gallery[:2], k=3)


def test_galleries_without_spread_are_searched(gallery):
    for rows in (
        np.ones((3000, 8)),
        np.repeat(gallery[:3], 1000, axis=0),
        np.zeros((3000, 8)),
        np.zeros((3000, 8)) + (np.arange(3000) == 5)[:, None],
        gallery[:, :1],
        gallery[:, :3],
    ):
        index = LocalIndex.build(rows, metric="dot_product")
        ids, scores = index.search(rows[:10], k=50)
        assert np.isfinite(scores).all()
        assert all(len(set(row)) == 50 for row in ids.tolist())


def test_galleries_of_few_rows_are_built(gallery):
    # ScaNN needs as many training points as leaves, and 16 of them for its codes.
    # The choice of settings never gives so few rows codes or a tree.
    for rows in [1, 2, 15, 16, 17, 40] if METHOD == "exact" else [40, 100, 1000]:
        index = LocalIndex.build(gallery[:rows])
        finds(index, gallery[:rows], range(rows), k=min(rows, 2))


def test_blocks_of_queries_do_not_change_the_answer(gallery):
    index = LocalIndex.build(gallery[:400])
    whole = index.search(gallery[:50], k=4)
    index._table.snapshot.searcher.limits = EngineLimits(block_candidates=700)
    index._table.snapshot.searcher._kept = (0, 0, {})
    blocks = index.search(gallery[:50], k=4)
    np.testing.assert_array_equal(blocks.ids, whole.ids)
    np.testing.assert_array_equal(blocks.scores, whole.scores)


@pytest.mark.parametrize("scale", [1e-25, 1e-5, 1e15])
def test_embeddings_of_any_length_are_found(scale, gallery):
    # ScaNN alone has a recall of 0.03 (hashing) and 0.15 (tree) at length 1e-5.
    rows, queries = (gallery * scale).astype(np.float32), gallery[:50] + 0.01
    ids, scores = LocalIndex.build(rows, metric="dot_product").search(queries)
    true, _ = nearest_neighbors(queries, rows, 10, metric="dot_product")
    assert recall(ids, true) > LEAST[METHOD]
    exact = np.einsum("qd,qkd->qk", queries, rows[ids], dtype=np.float64)
    np.testing.assert_allclose(scores, exact, rtol=1e-4)


# Changes


def test_searches_go_on_while_items_change_and_the_index_is_rebuilt(gallery):
    # ScaNN ends the process where a thread searches and another inserts or retrains.
    index = LocalIndex.build(gallery)
    extra = clustered(4000)[3000:] * 2 + 1
    unit = np.concatenate([gallery, np.full((2000, 8), np.nan), extra])
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)

    def search(rng):
        rows = rng.integers(1000, 3000, 20)  # that nobody touches
        k = int(rng.integers(1, 40))
        ids, scores = index.search(gallery[rows], k)
        assert ids.shape == (20, k)
        assert all(len(set(row)) == k for row in ids.tolist())
        # The choice may be approximate; a score is its own item's.
        own = (scores[:, 0] > 0.999).mean()
        assert own >= (1 if METHOD == "exact" else 0.7), own
        assert (np.diff(scores) <= 1e-6).all()
        right = np.einsum("qkd,qd->qk", unit[ids], unit[rows])
        assert np.abs(scores - right).max() < 1e-4

    searches = [partial(search, np.random.default_rng(seed)) for seed in range(3)]
    draws = random.Random(0)  # noqa: S311
    there = []
    with meanwhile(index.compact, *searches):
        for number in range(150):
            index.add(extra[number : number + 1], [5000 + number])
            there.append(number)
            index.update([number], gallery[number : number + 1] * 2)
            if number % 3 == 0:
                gone = there.pop(draws.randrange(len(there)))
                index.remove([5000 + gone])
    ids = [*range(3000), *(5000 + number for number in there)]
    assert sorted(index.search(gallery[:1], len(ids) + 1).ids[0].tolist()) == ids
    rows = index.get(ids).embeddings
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.abs(rows - unit[ids]).max() < 1e-6
    index.close()


# Files


@METRICS
def test_loaded_index_answers_as_before_wherever_it_is(metric, gallery, tmp_path):
    built = LocalIndex.build(gallery[:500], metric=metric)
    built.save(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    # The same folder name now holds another gallery.
    LocalIndex.build(gallery[:500][::-1].copy(), metric=metric).save(tmp_path / "first")
    copied = load_index(tmp_path / "copy")
    shutil.rmtree(tmp_path / "first")
    (tmp_path / "copy").rename(tmp_path / "moved")
    moved = load_index(tmp_path / "moved")
    shutil.rmtree(tmp_path / "moved")  # a loaded index needs its files no more
    for loaded in (copied, moved):
        assert loaded.settings == built.settings
        for k in (1, 10, 400):
            before = built.search(gallery[:30], k)
            after = loaded.search(gallery[:30], k)
            np.testing.assert_array_equal(after.ids, before.ids)
            np.testing.assert_array_equal(after.scores, before.scores)


DAMAGES = {
    "flipped": lambda whole: whole[:7] + bytes([whole[7] ^ 1]) + whole[8:],
    "flipped at the end": lambda whole: whole[:-1] + bytes([whole[-1] ^ 128]),
    "truncated": lambda whole: whole[:-1],
    "longer": lambda whole: whole + bytes(1),
    "empty": lambda whole: b"",
    "missing": lambda whole: None,
}


def test_any_damage_to_any_file_is_refused(gallery, tmp_path):
    # ScaNN would read beyond the end of its files.
    classes = {"class": ["x", "y", None] * 100}
    with LocalIndex.build(gallery[:300], attributes=classes) as index:
        index.save(tmp_path)
        index.add(gallery[:2], [5000, 5001])
        index.remove([0, 5000])
    files = snapshot(tmp_path)
    least = {"exact": 10, "faiss": 11, "scann": 15 if METHOD == "hashing" else 17}
    assert len(files) >= least[ENGINE]
    assert {path.suffix for path in files} <= {
        ".json", ".log", ".npy", ".pb", ".pbtxt",  # and no pickle
    }  # fmt: skip
    for path, whole in files.items():
        assert str(tmp_path).encode() not in whole
        for name, damage in DAMAGES.items():
            damaged = damage(whole)
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            if path.suffix == ".log" and name in ("truncated", "longer"):
                # At its end, the log may break off or have leavings.
                assert len(load_index(tmp_path)) in (300, 302)
                continue
            with pytest.raises(IndexFileError, match=r"damaged|holds no index"):
                load_index(tmp_path)
        path.write_bytes(whole)
    assert len(load_index(tmp_path)) == 300


class Bomb:
    """What ScaNN's own loader would run."""

    def __reduce__(self):
        return exit, (66,)


def test_pickle_in_an_index_folder_is_never_run(gallery, tmp_path):
    LocalIndex.build(gallery).save(tmp_path)
    for place in (tmp_path, data_of(tmp_path)):
        (place / "scann_docids.pkl").write_bytes(pickle.dumps(Bomb()))
    finds(load_index(tmp_path), gallery[:5], range(5))
    with pytest.raises(ValueError, match="all strings or all integers"):
        ExactIndex.build(gallery[:1], ids=np.array([Bomb()], dtype=object))


def test_failing_disk_is_an_error_and_spares_the_old_index(gallery, tmp_path):
    LocalIndex.build(gallery[:100]).save(tmp_path)
    large = LocalIndex.build(gallery)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"written|write|large|No space left"):
            large.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(load_index(tmp_path)) == 100
    assert len(list(tmp_path.iterdir())) == 3


@METRICS
def test_intact_index_has_no_problems(metric, gallery, tmp_path):
    rows = gallery[:1000].copy()
    rows[1] = rows[0]  # which of the two is found does not matter
    index = LocalIndex.build(rows, metric=metric)
    index.save(tmp_path)
    with index:
        index.remove([5])
        report = verify_index(tmp_path, sample=300)
    assert report.problems == ()
    assert report.ok
    assert (report.kind, report.items, report.tried) == ("LocalIndex", 999, 300)
    assert 290 <= report.found <= 300
