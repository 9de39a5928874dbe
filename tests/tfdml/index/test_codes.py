"""Indexes that search with short codes and score a shortlist with whole embeddings."""

import builtins
import json

import numpy as np
import pytest

from tests.support.installed import skip_without
from tests.support.refuses import refusals, refuses
from tests.support.saved_indexes import clustered, data_of
from tfdml.index import LocalIndex, load_index, near_duplicates, verify_index
from tfdml.neighbors import nearest_neighbors

ROWS = clustered(1_500, 32, 100)
QUERIES = clustered(1_700, 32, 100)[1_500:] + 0.05
KINDS = {
    "float32": {"codes": "float32", "code_dimensions": 12},
    "int8": {"codes": "int8"},
    "binary": {"codes": "binary"},
    "int8 of some": {"codes": "int8", "code_dimensions": 16},
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def with_faiss():
    skip_without("faiss")


def shares(found, true):
    pairs = zip(found, true, strict=True)
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in pairs])


@EACH_KIND
@pytest.mark.parametrize("metric", ["cosine", "dot_product"])
def test_recall_is_reached_and_scores_are_those_of_exact_search(kind, metric):
    if kind == "binary" and metric == "dot_product":
        pytest.skip("Refused.")
    index = LocalIndex.build(ROWS, metric=metric, target_recall=0.95, **KINDS[kind])
    settings = index.settings
    assert (settings.method, settings.engine) == ("codes", "faiss"), settings.reason
    assert settings.codes == KINDS[kind]["codes"]
    assert 10 <= settings.reorder <= 375
    assert index.recall.value >= 0.95
    assert index.recall.queries == 750
    assert str(settings.reorder) in settings.reason
    true, _ = nearest_neighbors(QUERIES, ROWS, 10, metric=metric)
    found = index.search(QUERIES, 10)
    assert shares(found.ids, true) > 0.9
    every, scores = nearest_neighbors(QUERIES, ROWS, len(ROWS), metric=metric)
    for query in range(len(QUERIES)):
        of_row = dict(zip(every[query].tolist(), scores[query].tolist(), strict=True))
        expected = [of_row[row] for row in found.ids[query].tolist()]
        assert found.scores[query].tolist() == expected
    assert (np.diff(found.scores) <= 0).all()


@EACH_KIND
def test_shortlist_of_all_items_is_exact_search(kind):
    index = LocalIndex.build(ROWS, target_recall=None, **KINDS[kind])
    assert index.settings.reorder == 100
    assert index.recall is None
    for k in (150, 1_500, 10**9):
        found = index.search(QUERIES[:30], k)
        true, scores = nearest_neighbors(QUERIES[:30], ROWS, min(k, 1_500))
        np.testing.assert_array_equal(found.ids, true)
        np.testing.assert_array_equal(found.scores, scores)


def test_higher_target_has_a_longer_shortlist():
    low, high = (
        LocalIndex.build(ROWS, target_recall=target, codes="binary").settings.reorder
        for target in (0.6, 0.95)
    )
    assert low < high


def test_target_that_no_shortlist_reaches_gives_exact_search_and_says_so(caplog):
    rows = np.random.default_rng(0).normal(size=(1_200, 64))
    index = LocalIndex.build(
        rows, codes="float32", code_dimensions=1, target_recall=0.999
    )
    assert index.settings.method == "exact"
    assert not index.settings.is_stand_in
    assert "no shortlist of up to 300 of 1200 items" in index.settings.reason
    assert "compared with all items" in caplog.text
    assert (index.recall.value, index.recall.queries) == (1, 0)


def test_few_rows_have_no_codes_until_there_are_more():
    index = LocalIndex.build(ROWS[:900], codes="int8")
    assert index.settings.method == "exact"
    index.add(ROWS[900:], np.arange(900, 1_500))
    index.compact()
    assert index.settings.method == "codes"


def test_empty_index_gets_codes_once_it_has_items(tmp_path):
    with LocalIndex.build(ROWS[:0], codes="binary", target_recall=0.9) as index:
        index.save(tmp_path)
    with load_index(tmp_path) as index:
        assert index.search(QUERIES[:2]).ids.shape == (2, 0)
        index.add(ROWS, np.arange(1_500))
        index.compact()
        assert (index.settings.method, index.settings.codes) == ("codes", "binary")


@EACH_KIND
def test_files_changes_and_rebuilds_keep_the_codes(kind, tmp_path):
    built = LocalIndex.build(ROWS, **KINDS[kind])
    built.save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["codes"]["kind"] == KINDS[kind]["codes"]
    before = built.search(QUERIES, 10)
    built.close()
    assert verify_index(tmp_path).ok
    index = load_index(tmp_path)
    assert index.settings == built.settings
    assert index.recall == built.recall
    after = index.search(QUERIES, 10)
    np.testing.assert_array_equal(after.ids, before.ids)
    np.testing.assert_array_equal(after.scores, before.scores)
    index.add(QUERIES[:3], [7_000, 7_001, 7_002], {"class": ["new"] * 3})
    index.remove([0, 1])
    index.update([2], QUERIES[3:4])
    for _ in range(2):
        found = index.search(QUERIES[:4], 1).ids[:, 0]
        assert found.tolist() == [7_000, 7_001, 7_002, 2]
        assert not np.isin(index.search(ROWS[:2], 200).ids, [0, 1]).any()
        only = index.search(QUERIES[:4], 10, where={"class": "new"})
        assert only.ids.shape == (4, 3)
        index.compact()
    assert index.settings.method == "codes"
    assert index.settings.codes == KINDS[kind]["codes"]
    index.save(tmp_path)
    index.close()
    assert verify_index(tmp_path).ok


def test_near_duplicates_are_found_by_codes():
    rows = ROWS.copy()
    rows[700] = rows[3] + 1e-3
    index = LocalIndex.build(rows, codes="binary", target_recall=0.95)
    assert index.settings.method == "codes"
    found = near_duplicates(index, threshold=0.9999)
    assert [sorted(group) for group in found.groups] == [[3, 700]]


@EACH_KIND
def test_codes_take_the_memory_that_was_promised(kind, tmp_path):
    with LocalIndex.build(ROWS, **KINDS[kind]) as index:
        index.save(tmp_path)
    bits = {"float32": 32 * 12, "int8": 8 * 32, "binary": 32, "int8 of some": 8 * 16}
    codes = np.load(data_of(tmp_path) / "faiss_codes.npy")
    assert 0 <= len(codes) - 1_500 * bits[kind] // 8 < 1_000
    with load_index(tmp_path) as loaded:
        held = loaded._table.snapshot.base_embeddings
        while held.base is not None and not isinstance(held, np.memmap):
            held = held.base
        assert isinstance(held, np.memmap)


def test_copies_of_one_row_and_rows_of_zeros_are_searched():
    rows = np.concatenate([np.repeat(ROWS[:1], 1_200, axis=0), ROWS[1:300]])
    for codes in ("int8", "binary"):
        index = LocalIndex.build(rows, codes=codes, target_recall=0.9)
        assert index.search(rows[:2], 5).scores.min() == 1
    zeros = np.zeros((1_200, 8))
    index = LocalIndex.build(zeros, metric="dot_product", codes="int8")
    assert (index.search(np.ones((1, 8)), 5).scores == 0).all()
    index = LocalIndex.build(
        ROWS * 1e15, metric="dot_product", codes="int8", target_recall=0.9
    )
    assert index.settings.method == "codes"


def test_zero_numbers_of_codes_are_no_error():
    rows = ROWS.copy()
    rows[::7, :4] = 0
    index = LocalIndex.build(
        rows, codes="float32", code_dimensions=4, target_recall=None
    )
    assert index.search(rows[:5], 1).ids.shape == (5, 1)


def test_missing_faiss_is_said_and_mended_later(monkeypatch, tmp_path, caplog):
    with LocalIndex.build(ROWS, codes="int8") as index:
        index.save(tmp_path)
    original = builtins.__import__

    def without_faiss(name, *arguments, **options):
        if name == "faiss":
            raise ImportError("hidden")
        return original(name, *arguments, **options)

    with monkeypatch.context() as hidden:
        hidden.setattr(builtins, "__import__", without_faiss)
        with pytest.raises(ImportError, match=r"tfdml\[faiss\]"):
            LocalIndex.build(ROWS, codes="int8")
        index = load_index(tmp_path)
        assert index.settings.is_stand_in
        assert "FAISS, which is not here" in caplog.text
        true, _ = nearest_neighbors(QUERIES[:20], ROWS, 5)
        np.testing.assert_array_equal(index.search(QUERIES[:20], 5).ids, true)
        index.add(QUERIES[:1], [9_000])
        index.compact()
        assert index.settings.is_stand_in
    index.compact()
    assert index.settings.method == "codes"
    index.close()


@refusals(
    ("codes", "int4", "must be one of float32, int8, binary"),
    ("code_dimensions", 0, "must be a whole number of at least 1"),
    ("code_dimensions", 33, "must be from 1 to 32"),
    ("engine", "scann", "must be 'faiss' or left out"),
    ("engine", "exact", "must be 'faiss' or left out"),
    ("metric", "squared_euclidean", "must be 'cosine' or 'dot_product'"),
)
def test_bad_codes_are_refused(argument, value, rule):
    valid = {"embeddings": ROWS, "codes": "int8"}
    refuses(LocalIndex.build, argument=argument, value=value, rule=rule, valid=valid)


def test_combinations_without_sense_are_refused():
    for options, message in (
        ({"codes": "binary", "metric": "dot_product"}, "`metric` must be 'cosine'"),
        ({"code_dimensions": 4}, "must come with `codes`"),
        ({"codes": "float32"}, "`code_dimensions` must be given"),
        ({"codes": "float32", "code_dimensions": 32}, "must be from 1 to 31"),
        ({"codes": "int8", "code_dimensions": 9, "dimensions": 8}, "from 1 to 8"),
    ):
        for rows in (ROWS, ROWS[:0]):
            with pytest.raises(ValueError, match=message):
                LocalIndex.build(rows, **options)
