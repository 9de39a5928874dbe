"""The exact index and ScaNN: answers, settings and imports."""

import copy
import doctest
import inspect
import pickle

import numpy as np
import pytest

from tests.support.index_examples import METRICS, clustered, recall
from tests.support.saved_indexes import run_python
from tfdml.index import ExactIndex, LocalIndex
from tfdml.index.engines import _index as local
from tfdml.index.engines._settings import choose_settings
from tfdml.index.local import _exact as exact
from tfdml.neighbors import _exact as neighbors
from tfdml.neighbors import nearest_neighbors


@METRICS
def test_exact_index_answers_like_nearest_neighbors_to_the_last_bit(metric):
    gallery, queries = clustered(300, 9, 20, queries=40)
    result = ExactIndex.build(gallery, metric=metric).search(queries, k=7)
    rows, scores = nearest_neighbors(queries, gallery, 7, metric=metric)
    np.testing.assert_array_equal(result.ids, rows)
    np.testing.assert_array_equal(result.scores, scores)


@pytest.mark.parametrize("metric", ["cosine", "dot_product"])
def test_hashing_keeps_recall(metric):
    gallery, queries = clustered(25_000, 32, 500, queries=200)
    index = LocalIndex.build(gallery, metric=metric, target_recall=None)
    assert index.settings.method == "hashing"
    true, _ = nearest_neighbors(queries, gallery, 10, metric=metric)
    assert recall(index.search(queries, k=10).ids, true) > 0.98


@pytest.mark.full
def test_gallery_above_100000_rows_gets_a_tree_that_keeps_recall():
    gallery, queries = clustered(100_001, 32, 1000, queries=100)
    index = LocalIndex.build(gallery, target_recall=None)
    assert index.settings.method == "tree"
    true, _ = nearest_neighbors(queries, gallery, 10)
    assert recall(index.search(queries, k=10).ids, true) > 0.95


def test_settings_follow_from_the_size():
    sizes = [1, 19_999, 20_000, 100_000, 100_001, 1_000_000]
    chosen = [choose_settings(size, unit=True) for size in sizes]
    assert [settings.method for settings in chosen] == [
        "exact", "exact", "hashing", "hashing", "tree", "tree",
    ]  # fmt: skip
    assert [settings.leaves for settings in chosen] == [0, 0, 0, 0, 1265, 4000]
    assert [settings.leaves_to_search for settings in chosen[4:]] == [127, 400]
    for settings in chosen[2:]:
        assert settings.dimensions_per_block == 2
        assert settings.anisotropic_threshold == 0.2
    assert chosen[4].spherical
    assert not choose_settings(100_001, unit=False).spherical
    assert chosen[2].reason == "20000 rows are from 20000 to 100000."


def test_exact_index_imports_neither_scann_nor_tensorflow():
    result = run_python("""
        import sys
        import numpy as np
        from tfdml.index import ExactIndex
        index = ExactIndex.build(np.eye(2))
        index.add(np.eye(2), [2, 3], {"class": ["a", "b"]})
        index.search(np.eye(2), k=1, where={"class": "a"})
        index.compact()
        assert not {"scann", "tensorflow", "keras", "pymilvus"} & set(sys.modules)
    """)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("module", [exact, local, neighbors])
def test_examples_in_docstrings_are_right(module):
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0


def test_nothing_of_scann_that_can_end_the_process_can_be_set():
    # ScaNN divides by a batch size of 0, crashes on 0 threads, and returns nothing
    # from 0 leaves.
    names = ("build", "add", "update", "remove", "search", "compact", "load")
    for index_class in (ExactIndex, LocalIndex):
        for name in names:
            signature = inspect.signature(getattr(index_class, name))
            assert not set(signature.parameters) & {
                "threads", "num_threads", "batch_size", "leaves", "leaves_to_search",
                "num_leaves_to_search", "pre_reorder_num_neighbors", "settings",
                "training_sample_size",
            }  # fmt: skip
            kinds = [one.kind for one in signature.parameters.values()]
            assert inspect.Parameter.VAR_KEYWORD not in kinds


@pytest.mark.parametrize("index_class", [ExactIndex, LocalIndex])
def test_index_is_neither_pickled_nor_deep_copied(index_class):
    # A searcher of ScaNN would come out broken; a shared lock or log even more so.
    index = index_class.build(np.eye(3))
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot pickle"):
            copied(index)
    assert index.search(np.eye(3), 1).ids.tolist() == [[0], [1], [2]]
