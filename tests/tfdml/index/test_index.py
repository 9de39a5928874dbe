"""Indexes that are built and searched, against exact neighbours."""

import doctest

import numpy as np
import pytest

from tests.support.index_examples import BOTH, METHODS, METRICS, clustered, recall
from tests.support.saved_indexes import run_python
from tests.support.saved_indexes import use_method as make_scann_use
from tfdml.index import ExactIndex, ScannIndex, SearchResult
from tfdml.index.local import _exact as exact
from tfdml.index.scann import _index as scann
from tfdml.index.scann._searcher import ScannLimits, choose_settings
from tfdml.neighbors import _exact as neighbors
from tfdml.neighbors import nearest_neighbors


@pytest.fixture
def use_method(monkeypatch):
    """Return a function that makes ScaNN use a method for galleries of any size."""
    return lambda method: make_scann_use(method, monkeypatch.setattr)


# Search


@METRICS
def test_exact_index_answers_like_nearest_neighbors_to_the_last_bit(metric):
    gallery, queries = clustered(300, 9, 20, queries=40)
    result = ExactIndex.build(gallery, metric=metric).search(queries, k=7)
    rows, scores = nearest_neighbors(queries, gallery, 7, metric=metric)
    np.testing.assert_array_equal(result.ids, rows)
    np.testing.assert_array_equal(result.scores, scores)


@METRICS
@METHODS
def test_scann_index_that_scores_all_rows_equals_exact_search(
    metric, method, use_method
):
    # With 10 k at least the size of the gallery, every row is scored exactly.
    use_method(method)
    gallery, queries = clustered(300, 9, 20, queries=40)
    index = ScannIndex.build(gallery, metric=metric)
    assert index.settings.method == method
    result = index.search(queries, k=30)
    rows, scores = nearest_neighbors(queries, gallery, 30, metric=metric)
    np.testing.assert_array_equal(result.ids, rows)
    np.testing.assert_allclose(result.scores, scores, rtol=1e-5, atol=1e-5)
    assert result.scores.dtype == np.float32


@METRICS
@METHODS
def test_asking_for_all_rows_returns_each_once(metric, method, use_method):
    use_method(method)
    gallery = clustered(400, 6, 15)
    ids, scores = ScannIndex.build(gallery, metric=metric).search(gallery[:5], k=400)
    np.testing.assert_array_equal(np.sort(ids), np.tile(np.arange(400), (5, 1)))
    assert (np.diff(scores) <= 0).all()


@METHODS
def test_blocks_of_queries_do_not_change_the_answer(method, use_method):
    use_method(method)
    gallery = clustered(400, 6, 15)
    index = ScannIndex.build(gallery)
    whole = index.search(gallery[:50], k=4)
    index._table.snapshot.searcher.limits = ScannLimits(block_candidates=700)
    blocks = index.search(gallery[:50], k=4)
    np.testing.assert_array_equal(blocks.ids, whole.ids)
    np.testing.assert_array_equal(blocks.scores, whole.scores)


@pytest.mark.parametrize("metric", ["cosine", "dot_product"])
def test_hashing_keeps_recall(metric):
    gallery, queries = clustered(25_000, 32, 500, queries=200)
    index = ScannIndex.build(gallery, metric=metric, target_recall=None)
    assert index.settings.method == "hashing"
    true, _ = nearest_neighbors(queries, gallery, 10, metric=metric)
    assert recall(index.search(queries, k=10).ids, true) > 0.98


@pytest.mark.parametrize("metric", ["cosine", "dot_product"])
def test_tree_keeps_recall(metric, use_method):
    use_method("tree")
    gallery, queries = clustered(25_000, 32, 500, queries=200)
    index = ScannIndex.build(gallery, metric=metric)
    true, _ = nearest_neighbors(queries, gallery, 10, metric=metric)
    assert recall(index.search(queries, k=10).ids, true) > 0.95


@pytest.mark.slow
def test_gallery_above_100000_rows_gets_a_tree_that_keeps_recall():
    gallery, queries = clustered(100_001, 32, 1000, queries=100)
    index = ScannIndex.build(gallery, target_recall=None)
    assert index.settings.method == "tree"
    true, _ = nearest_neighbors(queries, gallery, 10)
    assert recall(index.search(queries, k=10).ids, true) > 0.95


@pytest.mark.parametrize("scale", [1e-25, 1e-5, 1e15])
@METHODS
def test_embeddings_of_any_length_are_found(scale, method, use_method):
    # ScaNN alone has a recall of 0.03 (hashing) and 0.15 (tree) at length 1e-5.
    use_method(method)
    gallery, queries = clustered(3000, 16, 60, queries=50)
    gallery = (gallery * scale).astype(np.float32)
    ids, scores = ScannIndex.build(gallery, metric="dot_product").search(queries)
    true, _ = nearest_neighbors(queries, gallery, 10, metric="dot_product")
    assert recall(ids, true) > {"exact": 0.999, "hashing": 0.95, "tree": 0.7}[method]
    exact = np.einsum("qd,qkd->qk", queries, gallery[ids], dtype=np.float64)
    np.testing.assert_allclose(scores, exact, rtol=1e-4)


def test_lengths_of_queries_do_not_matter_beyond_their_scores():
    gallery = clustered(300, 8, 20)
    index = ScannIndex.build(gallery, metric="dot_product")
    queries = gallery[:4] * np.float32([[1e-30], [1], [1e20], [0]])
    result = index.search(queries, k=5)
    np.testing.assert_array_equal(result.ids[:3], index.search(gallery[:3], k=5).ids)
    assert (result.scores[3] == 0).all()


@BOTH
def test_dot_product_above_float32_is_refused(index_class):
    index = index_class.build([[1e30, 0]], metric="dot_product")
    with pytest.raises(ValueError, match="too large for float32"):
        index.search([[1e30, 0]], k=1)


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


@BOTH
def test_no_queries_give_no_answers(index_class):
    index = index_class.build(np.eye(4), ids=list("abcd"))
    result = index.search(np.empty((0, 4)), k=3)
    assert isinstance(result, SearchResult)
    assert result.ids.shape == result.scores.shape == (0, 3)


@BOTH
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint8, ">f4"])
def test_other_dtypes_are_read_as_float32(index_class, dtype):
    gallery = np.array([[1, 0], [0, 1], [3, 4]], dtype)
    ids, scores = index_class.build(gallery).search(gallery[:1], k=3)
    assert ids.tolist() == [[0, 2, 1]]
    np.testing.assert_allclose(scores, [[1, 0.6, 0]], atol=1e-6)


@BOTH
@METRICS
def test_gallery_is_neither_modified_nor_shared(index_class, metric):
    gallery = clustered(50, 4, 5)
    before = gallery.copy()
    index = index_class.build(gallery, metric=metric)
    first = index.search(before[:6], k=5)
    np.testing.assert_array_equal(gallery, before)
    gallery[:] = gallery[::-1].copy()
    again = index.search(before[:6], k=5)
    np.testing.assert_array_equal(again.ids, first.ids)
    np.testing.assert_array_equal(again.scores, first.scores)


# Arguments


@BOTH
def test_properties_say_what_was_built(index_class):
    index = index_class.build(np.eye(3), metric="dot_product", model_fingerprint="m1")
    assert (len(index), index.dimension) == (3, 3)
    assert (index.metric, index.model_fingerprint) == ("dot_product", "m1")


@BOTH
@pytest.mark.parametrize(
    ("embeddings", "options", "message"),
    [
        (np.eye(2), {"metric": "squared_l2"}, r"`metric` must be one of.*'squared_l2'"),
        (np.eye(2), {"metric": None}, r"`metric` must be one of.*None"),
        (np.ones(2), {}, r"`embeddings`.*shape=\(2,\).*vector\[None, :\]"),
        (np.empty((3, 0)), {}, r"`embeddings` must have the shape \[rows, D\]"),
        ([], {}, r"`embeddings` must have the shape \[rows, D\]"),
        ([[1, 2], [3]], {}, r"`embeddings` must be an array \[rows, D\]"),
        (None, {}, "`embeddings` must hold real numbers"),
        ([["a", "b"]], {}, "`embeddings` must hold real numbers"),
        ([[1, np.nan]], {}, "`embeddings` must be finite.*row 0"),
        ([[1, 2], [0, 0]], {}, "`embeddings` must not have a row of zeros.*row 1"),
        (np.eye(2), {"model_fingerprint": 7}, "`model_fingerprint` must be a string"),
        (np.eye(2), {"embed": "model"}, "`embed` must be a function of images"),
        (np.eye(2), {"ids": 7}, r"`ids` must be a sequence of ids.*\[7\]"),
        (np.eye(2), {"attributes": ["a", "b"]}, "`attributes` must be a dictionary"),
    ],
)
def test_bad_arguments_of_build_are_refused(index_class, embeddings, options, message):
    with pytest.raises(ValueError, match=message):
        index_class.build(embeddings, **options)


@BOTH
@pytest.mark.parametrize("k", [4, 10**9, 2**63, 10**30, np.int64(4), 4.0])
def test_more_than_there_are_gives_fewer_columns(index_class, k):
    index = index_class.build(np.eye(3))
    result = index.search(np.eye(3), k=k)
    assert result.ids.shape == result.scores.shape == (3, 3)
    assert np.sort(result.ids).tolist() == [[0, 1, 2]] * 3
    index.add(np.eye(3)[:1], [3])
    index.remove([1])
    result = index.search(np.eye(3), k=k, exclude=[[0], [2], [3]])
    assert np.sort(result.ids).tolist() == [[2, 3], [0, 3], [0, 2]]


@BOTH
@pytest.mark.parametrize(
    "k", [0, -1, 0.5, float("nan"), float("inf"), "3", None, True, [3], np.bool_(True)]
)
def test_k_that_is_no_number_of_items_is_refused(index_class, k):
    with pytest.raises(ValueError, match="`k` must be a whole number of at least 1"):
        index_class.build(np.eye(3)).search(np.eye(3), k=k)


@BOTH
@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (np.ones(3), r"`queries`.*vector\[None, :\]"),
        (np.ones((2, 4)), r"dimension of the index, 3.*shape=\(2, 4\)"),
        (np.zeros((1, 3)), "`queries` must not have a row of zeros"),
        (np.full((1, 3), np.inf), "`queries` must be finite"),
        (None, "`queries` must hold real numbers"),
    ],
)
def test_bad_queries_are_refused(index_class, queries, message):
    with pytest.raises(ValueError, match=message):
        index_class.build(np.eye(3)).search(queries, k=1)


@BOTH
@METRICS
def test_empty_gallery_is_built_and_finds_nothing(index_class, metric):
    index = index_class.build(np.empty((0, 3)), metric=metric)
    assert (len(index), index.dimension) == (0, 3)
    assert index.ids.shape == (0,)
    result = index.search(np.eye(3), k=5)
    assert result.ids.shape == result.scores.shape == (3, 0)
    assert 0 not in index
    assert "a" not in index
    with pytest.raises(KeyError, match="'a'"):
        index.get(["a"])
    with pytest.raises(ValueError, match="dimension of the index, 3"):
        index.search(np.eye(4))


@BOTH
def test_images_are_searched_with_what_embeds_them(index_class):
    index = index_class.build(np.eye(3), ids=["x", "y", "z"])
    with pytest.raises(ValueError, match="`embed` must be set"):
        index.search_images(["x.png"])
    embed = {"x.png": [1, 0, 0], "y.png": [0, 1, 0]}
    index.embed = lambda images: np.array([embed[image] for image in images])
    result = index.search_images(["y.png", "x.png"], 1, exclude=[[], ["x"]])
    assert result.ids[0].tolist() == ["y"]
    assert result.ids[1].tolist() != ["x"]


@BOTH
def test_index_is_closed_at_the_end_of_a_with(index_class):
    with index_class.build(np.eye(3)) as index:
        index.add(2 * np.eye(3), [3, 4, 5])
        assert len(index) == 6
    index.close()  # once more is let pass


# Imports


def test_exact_index_imports_neither_scann_nor_tensorflow():
    result = run_python("""
        import sys
        import numpy as np
        from tfdml.index import ExactIndex
        index = ExactIndex.build(np.eye(2))
        index.add(np.eye(2), [2, 3], {"class": ["a", "b"]})
        index.search(np.eye(2), k=1, where={"class": "a"})
        index.compact()
        assert not {"scann", "tensorflow", "keras"} & set(sys.modules)
    """)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("scann", "reason"),
    [
        ("raise ModuleNotFoundError('no scann')", "ModuleNotFoundError: no scann"),
        # What TensorFlow's NotFoundError is to this code: not an ImportError.
        ("raise RuntimeError('undefined symbol')", "RuntimeError: undefined symbol"),
    ],
)
def test_missing_or_broken_scann_is_explained(scann, reason, tmp_path):
    (tmp_path / "scann.py").write_text(scann)
    result = run_python(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np
        from tfdml.index import ScannIndex
        try:
            ScannIndex.build(np.eye(2))
        except ImportError as error:
            print(error)
        """
    )
    assert result.returncode == 0, result.stderr
    assert reason in result.stdout
    assert "pip install 'tfdml[search]'" in result.stdout


@pytest.mark.parametrize("module", [exact, scann, neighbors])
def test_examples_in_docstrings_are_right(module):
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0
