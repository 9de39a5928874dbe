"""Indexes that keep the first dimensions of embeddings."""

import json

import numpy as np
import pytest

from tests.support.index_examples import METRICS
from tests.support.refuses import refusals, refuses
from tests.support.saved_indexes import clustered, rewrite_manifest
from tfdml.index import (
    ExactIndex,
    IndexFileError,
    LocalIndex,
    load_index,
    near_duplicates,
    verify_index,
)
from tfdml.index.engines._settings import EngineLimits
from tfdml.neighbors import first_dimensions, nearest_neighbors

ROWS = clustered(300, 16)
QUERIES = ROWS[::30] + 0.1
EACH_CLASS = pytest.mark.parametrize("index_class", [ExactIndex, LocalIndex])


@METRICS
@EACH_CLASS
def test_search_is_one_of_the_first_numbers(index_class, metric):
    index = index_class.build(ROWS, metric=metric, dimensions=5)
    assert (index.dimension, index.embedding_dimension) == (5, 16)
    cut = first_dimensions(ROWS, 5, metric=metric)
    queries = first_dimensions(QUERIES, 5, metric=metric)
    true, scores = nearest_neighbors(queries, cut, 7, metric=metric)
    for given in (QUERIES, queries):  # whole, and cut already
        found = index.search(given, 7)
        np.testing.assert_array_equal(found.ids, true)
        np.testing.assert_array_equal(np.abs(found.scores), np.abs(scores))
    np.testing.assert_array_equal(index.get([7]).embeddings, cut[7:8])
    images = index_class.build(
        ROWS, metric=metric, dimensions=5, embed=lambda images: QUERIES
    )
    np.testing.assert_array_equal(images.search_images(["x"], 7).ids, true)


@EACH_CLASS
def test_changes_and_files_keep_the_dimensions(index_class, tmp_path):
    index = index_class.build(ROWS[:200], dimensions=5)
    index.save(tmp_path)
    index.add(ROWS[200:250], np.arange(200, 250))
    index.update([3], ROWS[250:251])
    index.remove([4])
    index.close()
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["dimension"], manifest["embedding_dimension"]) == (5, 16)
    assert verify_index(tmp_path).ok
    with load_index(tmp_path) as loaded:
        assert (loaded.dimension, loaded.embedding_dimension) == (5, 16)
        details = loaded.stats().details
        assert (loaded.stats().dimension, details["embedding_dimension"]) == (5, 16)
        for _ in range(2):  # before and after a rebuild
            found = loaded.search(np.stack([ROWS[220], ROWS[250], ROWS[4]]), 1).ids
            assert found[:2, 0].tolist() == [220, 3]
            assert found[2, 0] != 4
            assert len(near_duplicates(loaded, threshold=0.999).pairs.first) == 0
            loaded.compact()


def test_all_dimensions_are_no_cut():
    index = ExactIndex.build(ROWS, dimensions=16)
    assert (index.dimension, index.embedding_dimension) == (16, 16)
    assert "embedding_dimension" not in index.stats().details


def test_queries_of_the_caller_are_cut_too(monkeypatch):
    limits = EngineLimits(hashing_from=100, tree_above=1_000, measured_from=100)
    monkeypatch.setattr(LocalIndex, "engine_limits", limits)
    queries = clustered(250, 16) + 0.01
    index = LocalIndex.build(ROWS, dimensions=5, queries=queries, target_recall=0.8)
    assert index.recall.own_queries
    with pytest.raises(ValueError, match="dimension of the gallery, 16"):
        LocalIndex.build(ROWS, dimensions=5, queries=queries[:, :7])


@EACH_CLASS
@refusals(
    ("dimensions", 0, "must be a whole number of at least 1"),
    ("dimensions", 17, "must be from 1 to 16"),
    ("embeddings", np.eye(16), "must not be zero in the first 5 dimensions"),
)
def test_bad_dimensions_are_refused(argument, value, rule, index_class):
    valid = {"embeddings": ROWS, "dimensions": 5}
    refuses(index_class.build, argument=argument, value=value, rule=rule, valid=valid)


@EACH_CLASS
def test_rows_of_another_dimension_are_refused(index_class):
    index = index_class.build(ROWS, dimensions=5)
    for wrong in (ROWS[:1, :7], ROWS[:1, :4]):
        with pytest.raises(ValueError, match="5, or 16, of which it keeps the first"):
            index.search(wrong)
        with pytest.raises(ValueError, match="5, or 16, of which it keeps the first"):
            index.add(wrong, [1_000])
    nothing = np.zeros((1, 16)) + (np.arange(16) > 8)
    with pytest.raises(ValueError, match="zero in the first 5 dimensions"):
        index.search(nothing)


@pytest.mark.parametrize("damaged", [4, "16", None, 16.0, True])
def test_manifest_with_an_impossible_dimension_is_refused(damaged, tmp_path):
    with ExactIndex.build(ROWS, dimensions=5) as index:
        index.save(tmp_path)
    rewrite_manifest(tmp_path, embedding_dimension=damaged)
    with pytest.raises(IndexFileError, match="`embedding_dimension` of at least 5"):
        load_index(tmp_path)
