"""Exact neighbors against a loop over all pairs in float64."""

import math

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.neighbors import ExactSearcher, SearchLimits, nearest_neighbors

METRICS = ["cosine", "dot_product", "squared_euclidean"]


def score(query, row, metric):
    if metric == "squared_euclidean":
        return math.fsum((a - b) ** 2 for a, b in zip(query, row, strict=True))
    product = math.fsum(a * b for a, b in zip(query, row, strict=True))
    if metric == "dot_product":
        return product
    norms = [math.sqrt(math.fsum(a * a for a in vector)) for vector in (query, row)]
    return product / (norms[0] * norms[1])


def naive(queries, gallery, k, metric, exclude=None):
    """Sort all rows by (score rounded to float32, index)."""
    all_indices, all_scores = [], []
    rows = [[float(x) for x in row] for row in np.asarray(gallery, np.float32)]
    for number, query in enumerate(np.asarray(queries, np.float32)):
        pairs = []
        for index, row in enumerate(rows):
            if exclude is not None and index in np.atleast_1d(exclude[number]):
                continue
            value = np.float32(score([float(x) for x in query], row, metric))
            badness = value if metric == "squared_euclidean" else -value
            pairs.append((badness, index, value))
        best = sorted(pairs)[:k]
        all_indices.append([index for _, index, _ in best])
        all_scores.append([value for _, _, value in best])
    return np.array(all_indices), np.array(all_scores, np.float32)


def assert_equals_naive(queries, gallery, k, metric, exclude=None, **limits):
    searcher = ExactSearcher(gallery, metric, limits=SearchLimits(**limits))
    indices, scores = searcher.nearest(queries, k, exclude)
    expected_indices, expected_scores = naive(queries, gallery, k, metric, exclude)
    np.testing.assert_array_equal(indices, expected_indices)
    np.testing.assert_array_equal(scores, expected_scores)
    assert indices.dtype == np.int64
    assert scores.dtype == np.float32


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("n", "d", "k"), [(1, 1, 1), (37, 3, 5), (90, 17, 90)])
def test_equals_the_loop_over_all_pairs(metric, n, d, k):
    rng = np.random.default_rng(n)
    assert_equals_naive(rng.normal(size=(7, d)), rng.normal(size=(n, d)), k, metric)


@pytest.mark.parametrize("metric", METRICS)
def test_blocks_do_not_change_the_answer(metric):
    rng = np.random.default_rng(1)
    queries, gallery = rng.normal(size=(11, 5)), rng.normal(size=(40, 5))
    exclude = rng.integers(-1, 40, size=11)
    assert_equals_naive(
        queries,
        gallery,
        6,
        metric,
        exclude,
        block_scores=81,  # two queries per block
        least_queries=1,
        gathered_numbers=15,  # three pairs
        thread_scores=1,
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 9, 30])
def test_ties_come_in_the_order_of_the_index_at_every_boundary(metric, k):
    # Integer coordinates: products and sums are exact, so ties are true ties.
    rng = np.random.default_rng(2)
    gallery = rng.integers(-1, 2, size=(60, 3))
    gallery[~gallery.any(axis=1)] = 1
    queries = gallery[:8]
    assert_equals_naive(queries, gallery, k, metric)
    assert_equals_naive(queries, gallery, k, metric, exclude=np.arange(8))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("batch", [1, 2, 64, 300])
def test_equal_rows_tie_wherever_they_stand(metric, batch):
    # A BLAS product gives such rows scores that differ in the last bit.
    rng = np.random.default_rng(3)
    gallery = rng.normal(size=(1003, 67)).astype(np.float32)
    copies = [3, *range(10, 1003, 41), 1000, 1001, 1002]
    gallery[copies] = gallery[3]
    queries = np.repeat(gallery[3:4], batch, axis=0)
    k = len(copies) - 2
    indices, scores = nearest_neighbors(queries, gallery, k, metric=metric)
    np.testing.assert_array_equal(indices, np.tile(copies[:k], (batch, 1)))
    assert np.unique(scores).size == 1


@pytest.mark.parametrize("metric", METRICS)
def test_equal_long_rows_tie_in_each_step(metric):
    rng = np.random.default_rng(12)
    rows = np.tile(rng.normal(size=9_000), (7, 1))  # above the buffer of einsum()
    limits = SearchLimits(gathered_numbers=3 * 9_000)
    searcher = ExactSearcher(rows, metric, limits=limits)
    indices, _ = searcher.nearest(rng.normal(size=(1, 9_000)), 7)
    assert indices.tolist() == [list(range(7))]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1, 3, 6])
def test_parts_of_a_long_gallery_change_nothing(metric, k):
    rng = np.random.default_rng(7)
    gallery = rng.integers(-2, 3, size=(403, 3))
    gallery[~gallery.any(axis=1)] = 1
    exclude = rng.integers(-1, 403, size=(9, 3))
    exclude[:, 0] = np.arange(9)
    assert_equals_naive(gallery[:9], gallery, k, metric, exclude, least_maxima=4)


def test_row_that_is_left_out_twice_counts_once():
    indices, _ = nearest_neighbors(np.eye(4)[:1], np.eye(4), 3, exclude=[[3, 3]])
    assert indices.tolist() == [[0, 1, 2]]
    with pytest.raises(ValueError, match="`k` must be from 1 to 3"):
        nearest_neighbors(np.eye(4)[:1], np.eye(4), 4, exclude=[[3, 3]])


def test_rows_of_zeros_have_the_cosine_0_where_they_are_allowed():
    gallery = [[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]
    indices, scores = nearest_neighbors([[2.0, 0.0]], gallery, 3, zero_rows=True)
    assert indices.tolist() == [[0, 1, 2]]
    assert scores.tolist() == [[1.0, 0.0, -1.0]]
    indices, scores = nearest_neighbors([[0.0, 0.0]], gallery, 3, zero_rows=True)
    assert indices.tolist() == [[0, 1, 2]]
    assert scores.tolist() == [[0.0, 0.0, 0.0]]


def test_rows_that_float32_makes_zeros_of_are_refused():
    with pytest.raises(ValueError, match=r"`gallery` .* too small for float32.*row 1"):
        nearest_neighbors(np.eye(2), [[1.0, 0.0], [1e-200, 0.0]], 1)
    tiny = np.array([[1e-40, 0.0]], np.float32)
    assert nearest_neighbors(tiny, np.eye(2), 1)[1].tolist() == [[1.0]]


def test_bfloat16_is_a_float():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    rows = np.eye(3).astype(bfloat16)
    assert nearest_neighbors(rows, rows, 1)[0].tolist() == [[0], [1], [2]]


def test_answer_does_not_depend_on_the_other_queries():
    rng = np.random.default_rng(4)
    queries, gallery = rng.normal(size=(33, 50)), rng.normal(size=(501, 50))
    indices, scores = nearest_neighbors(queries, gallery, 20)
    for number in range(33):
        alone = nearest_neighbors(queries[number : number + 1], gallery, 20)
        np.testing.assert_array_equal(alone[0][0], indices[number])
        np.testing.assert_array_equal(alone[1][0], scores[number])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("spread", [1e-2, 1e-4, 3e-7, 0.0])
def test_collapsed_embeddings_equal_the_loop(metric, spread):
    # Rows that float32 products cannot tell apart: every stage of the filter runs.
    rng = np.random.default_rng(5)
    gallery = (1 + spread * rng.normal(size=(700, 8))).astype(np.float32)
    assert_equals_naive(gallery[:3], gallery, 2, metric, exclude=np.arange(3))


def test_small_distances_far_from_the_origin_are_sharp():
    gallery = 1000 + np.arange(12, dtype=np.float32)[:, None] / 256
    indices, scores = nearest_neighbors(
        gallery[:1], gallery, 12, metric="squared_euclidean"
    )
    assert indices[0].tolist() == list(range(12))
    assert scores[0].tolist() == [(i / 256) ** 2 for i in range(12)]


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e15, 1e18])
@pytest.mark.parametrize("metric", METRICS)
def test_tiny_and_huge_embeddings_equal_the_loop(metric, scale):
    rng = np.random.default_rng(6)
    gallery = (scale * rng.normal(size=(30, 4))).astype(np.float32)
    assert_equals_naive(gallery[:5], gallery, 7, metric)


def test_one_huge_row_does_not_blur_the_others():
    rng = np.random.default_rng(7)
    gallery = rng.normal(size=(200, 6)).astype(np.float32)
    gallery[17] *= 1e12
    assert_equals_naive(gallery[:5], gallery, 4, "dot_product")


def test_sum_that_float32_loses_decides():
    # Added to 64 one by one, the small numbers of row 1 vanish in float32.
    gallery = np.zeros((300, 256), np.float32)
    gallery[0, 0] = 64.0005
    gallery[1] = [64.0] + [2**-18.1] * 255
    queries = np.ones((64, 256))
    indices, scores = nearest_neighbors(queries, gallery, 1, metric="dot_product")
    np.testing.assert_array_equal(indices, [[1]] * 64)
    np.testing.assert_allclose(scores, 64 + 255 * 2**-18.1, rtol=1e-7)


def test_products_that_overflow_float32_may_cancel():
    gallery = np.array([[1e20, -1e20], [1e-20, 0]], np.float32)
    assert_equals_naive([[1e20, 1e20]], gallery, 1, "dot_product")
    gallery = np.array([[0, 1e38], [1, 0], [2, 0]], np.float32)
    assert_equals_naive([[1e10, 0]], gallery, 1, "dot_product", exclude=[2])


def test_score_above_float32_is_refused():
    with pytest.raises(ValueError, match="too large for float32"):
        nearest_neighbors([[1e30]], [[1e30]], 1, metric="dot_product")
    with pytest.raises(ValueError, match="too large for float32"):
        nearest_neighbors(
            [[-3e38]], [[3e38], [3e38], [-3e38]], 3, metric="squared_euclidean"
        )


def test_excluded_row_is_never_returned():
    gallery = np.eye(4)
    indices, _ = nearest_neighbors(gallery, gallery, 3, exclude=np.arange(4))
    assert not (indices == np.arange(4)[:, None]).any()


def test_minus_one_excludes_nothing():
    gallery = np.eye(3)
    indices, _ = nearest_neighbors(gallery, gallery, 1, exclude=[0, -1, 2])
    assert indices[:, 0].tolist() == [1, 1, 0]


def test_no_queries_give_no_answers():
    indices, scores = nearest_neighbors(np.empty((0, 3)), np.eye(3), 2)
    assert indices.shape == scores.shape == (0, 2)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint8, ">f4"])
def test_other_dtypes_are_read_as_float32(dtype):
    gallery = np.array([[1, 2], [3, 1], [0, 5]], dtype)
    assert_equals_naive(gallery[:2], gallery, 2, "cosine")


def test_inputs_are_not_modified_and_need_not_be_contiguous():
    gallery = np.asfortranarray(np.random.default_rng(8).normal(size=(20, 6)))
    queries = gallery[::3, ::-1]
    before = gallery.copy()
    gallery.flags.writeable = False
    assert_equals_naive(queries, gallery, 3, "squared_euclidean")
    np.testing.assert_array_equal(gallery, before)


def test_k_counts_the_excluded_row():
    with pytest.raises(ValueError, match="`k` must be from 1 to 2"):
        nearest_neighbors(np.eye(3), np.eye(3), 3, exclude=[-1, 0, -1])


VALID = {"queries": np.eye(2), "gallery": np.eye(2), "k": 1}


@refusals(
    ("queries", [1.0, 2.0], "Received: shape=(2,). Pass one vector as vector[None, :]"),
    ("queries", np.zeros((1, 2, 2)), "[rows, D], D at least 1. Received: shape=(1, 2"),
    ("queries", np.empty((2, 0)), "must have the shape [rows, D]"),
    ("queries", np.ones((1, 3)), "the dimension of the gallery, 2. Received: 3"),
    (
        "queries",
        [[np.nan, 1.0]],
        "must be finite in float32. Received: NaN or infinity",
    ),
    ("queries", [[1.0, 1.0], [np.inf, 1.0]], "must be finite in float32"),
    ("queries", [[1e39, 1.0]], "must be finite in float32"),
    ("queries", [[0.0, 0.0]], "must not have a row of zeros"),
    ("queries", [[1j, 1.0]], "must hold real numbers. Received: dtype=complex128"),
    ("queries", [["a", "b"]], "must hold real numbers"),
    ("queries", [[True, False]], "must hold real numbers. Received: dtype=bool"),
    ("queries", [[1.0], [1.0, 2.0]], "must be an array: "),
    ("gallery", [[1, 1], [np.nan, 0]], "must be finite in float32"),
    ("k", 0, "must be from 1 to 2"),
    ("k", -1, "must be from 1 to 2"),
    ("k", 3, "must be from 1 to 2"),
    ("metric", "l2", "must be one of cosine, dot_product, squared_euclidean"),
    ("exclude", [0], "must hold integers, [Q] or [Q, m], for the 2 queries"),
    ("exclude", [0.0, 1.0], "must hold integers"),
    ("exclude", [[[0]], [[1]]], "must hold integers"),
    ("exclude", [True, False], "must hold integers"),
    ("exclude", [-2, 0], "must be -1 or a gallery row below 2"),
    ("exclude", [0, 2], "must be -1 or a gallery row below 2"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    refuses(nearest_neighbors, argument=argument, value=value, rule=rule, valid=VALID)


@refusals(*[("k", k, "must be an integer") for k in (1.0, True, "1", None)])
def test_k_of_another_type_is_refused(argument, value, rule):
    refuses(
        nearest_neighbors,
        argument=argument,
        value=value,
        rule=rule,
        valid=VALID,
        error=TypeError,
    )


def test_nothing_can_be_found_in_an_empty_gallery():
    with pytest.raises(ValueError, match="`k` must be from 1 to 0"):
        nearest_neighbors(np.eye(2), np.empty((0, 2)), 1)


def test_zero_vector_is_allowed_where_it_has_a_meaning():
    for metric in ("dot_product", "squared_euclidean"):
        assert_equals_naive([[0.0, 0.0]], np.eye(2), 2, metric)


def test_several_rows_are_left_out():
    rng = np.random.default_rng(6)
    queries, gallery = rng.normal(size=(5, 3)), rng.normal(size=(30, 3))
    exclude = np.stack([rng.permutation(30)[:4] for _ in range(5)])
    exclude[:, 0] = -1
    indices, _ = nearest_neighbors(queries, gallery, 27, exclude=exclude)
    everything, _ = nearest_neighbors(queries, gallery, 30)
    for found, ranked, left_out in zip(indices, everything, exclude, strict=True):
        assert found.tolist() == [row for row in ranked if row not in left_out]
    with pytest.raises(ValueError, match="`k` must be from 1 to 27"):
        nearest_neighbors(queries, gallery, 28, exclude=exclude)
