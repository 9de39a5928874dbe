"""Ranks of positives against a sort of all pairs scored in float64."""

import tracemalloc

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tests.tfdml.neighbors.test_exact import METRICS, score
from tfdml.neighbors import SearchLimits, nearest_neighbors, positive_ranks

TIES = ["index", "pessimistic", "optimistic"]


def naive(queries, gallery, positives, metric, exclude, ties):
    """Sort all rows by (score rounded to float32, rule for ties, index)."""
    rows = [[float(x) for x in row] for row in np.asarray(gallery, np.float32)]
    sign = 1 if metric == "squared_euclidean" else -1
    answer = []
    for number, query in enumerate(np.asarray(queries, np.float32)):
        wanted = set(np.asarray(positives[number]).tolist())
        items = []
        for index, row in enumerate(rows):
            if index in np.asarray(exclude)[number]:
                continue
            value = sign * np.float32(score([float(x) for x in query], row, metric))
            key = {
                "index": 0,
                "pessimistic": index in wanted,
                "optimistic": index not in wanted,
            }[ties]
            items.append((value, key, index))
        order = [index for _, _, index in sorted(items)]
        answer.append([r for r, index in enumerate(order, start=1) if index in wanted])
    return answer


def assert_equals_naive(queries, gallery, positives, metric, exclude, ties, **limits):
    received = positive_ranks(
        queries,
        gallery,
        positives,
        metric=metric,
        exclude=exclude,
        ties=ties,
        limits=SearchLimits(**limits),
    )
    expected = naive(queries, gallery, positives, metric, exclude, ties)
    assert [rows.tolist() for rows in received] == expected
    assert all(rows.dtype == np.int64 for rows in received)


def draw(generator, queries, gallery, most):
    """Return positives and up to two excluded rows of each query, all different."""
    positives, exclude = [], []
    for _ in range(queries):
        rows = generator.permutation(gallery)
        count = generator.integers(0, most + 1)
        positives.append(rows[:count])
        left_out = rows[count : count + 2]
        exclude.append(np.pad(left_out, (0, 2 - len(left_out)), constant_values=-1))
    return positives, np.array(exclude)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("gallery", "most"), [(1, 1), (12, 12), (90, 5), (90, 88)])
def test_equals_the_sort_of_all_pairs(metric, ties, gallery, most):
    rng = np.random.default_rng(gallery + most)
    positives, exclude = draw(rng, 9, gallery, most)
    queries, rows = rng.normal(size=(9, 5)), rng.normal(size=(gallery, 5))
    assert_equals_naive(queries, rows, positives, metric, exclude, ties)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("few", [0, 64])
def test_true_ties_follow_the_rule(metric, ties, few):
    # Integer coordinates: products and sums are exact, so ties are true ties.
    rng = np.random.default_rng(3)
    rows = rng.integers(-1, 2, size=(80, 3))
    rows[~rows.any(axis=1)] = 1
    positives, exclude = draw(rng, 11, 80, 20)
    given = (rows[:11], rows, positives, metric, exclude, ties)
    assert_equals_naive(*given, few_positives=few)  # 0: all rows are sorted


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("spread", [1e-2, 1e-4, 3e-7, 0.0])
def test_collapsed_embeddings_equal_the_sort(metric, ties, spread):
    # Rows that float32 products cannot tell apart: every stage runs.
    rng = np.random.default_rng(5)
    rows = (1 + spread * rng.normal(size=(700, 8))).astype(np.float32)
    positives, exclude = draw(rng, 3, 700, 3)
    assert_equals_naive(rows[:3], rows, positives, metric, exclude, ties)


def test_equal_rows_tie_wherever_they_stand():
    # A BLAS product gives such rows scores that differ in the last bit.
    rng = np.random.default_rng(3)
    gallery = rng.normal(size=(1003, 67)).astype(np.float32)
    copies = np.array([3, *range(10, 1003, 41), 1000, 1001, 1002])
    gallery[copies] = gallery[3]
    queries = np.repeat(gallery[3:4], 5, axis=0)
    wanted = copies[5:9]
    for ties, expected in (
        ("index", [6, 7, 8, 9]),
        ("pessimistic", [len(copies) - i for i in (3, 2, 1, 0)]),
        ("optimistic", [1, 2, 3, 4]),
    ):
        for found in positive_ranks(queries, gallery, [wanted] * 5, ties=ties):
            assert found.tolist() == expected


@pytest.mark.parametrize("metric", METRICS)
def test_blocks_do_not_change_the_ranks(metric):
    rng = np.random.default_rng(1)
    queries, gallery = rng.normal(size=(11, 5)), rng.normal(size=(40, 5))
    positives, exclude = draw(rng, 11, 40, 6)
    assert_equals_naive(
        queries,
        gallery,
        positives,
        metric,
        exclude,
        "index",
        block_scores=81,  # two queries per block
        least_queries=1,
        gathered_numbers=15,  # three pairs
        long_row=1,  # threads
    )


@pytest.mark.parametrize("metric", METRICS)
def test_ranks_are_the_places_among_the_nearest_neighbors(metric):
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(1500, 24)).astype(np.float32)
    rows[700:760] = rows[:60]
    own = np.arange(50)
    order, _ = nearest_neighbors(rows[:50], rows, 1499, metric=metric, exclude=own)
    positives = [rng.permutation(np.delete(np.arange(1500), q))[:7] for q in own]
    received = positive_ranks(rows[:50], rows, positives, metric=metric, exclude=own)
    for ranked, wanted, found in zip(order, positives, received, strict=True):
        assert found.tolist() == (np.flatnonzero(np.isin(ranked, wanted)) + 1).tolist()


def test_products_beyond_float32_are_ranked():
    rows = np.array([[1e19, 0], [0, 2e19], [3e18, 1e18], [-1e19, 1e18]], np.float32)
    positives, exclude = [[1, 2], [0, 3]], np.array([[0], [1]])
    received = positive_ranks(
        rows[:2], rows, positives, metric="dot_product", exclude=exclude
    )
    small = rows / np.float32(2**60)
    expected = naive(small[:2], small, positives, "dot_product", exclude, "index")
    assert [found.tolist() for found in received] == expected


def test_scores_that_float32_cannot_compare_are_refused():
    rows = np.array([[3e19, 0], [0, 3e19], [0, -3e19]], np.float32)
    with pytest.raises(ValueError, match="score is too large for float32"):
        positive_ranks(rows[:1], rows, [[1]], metric="squared_euclidean", exclude=[0])


@pytest.mark.slow
@pytest.mark.parametrize("scatter", [0.0, 0.01])
def test_collapsed_embeddings_take_no_more_memory(scatter):
    # Each of 600 positives of a query ties, or nearly ties, with all 1,200 rows.
    rng = np.random.default_rng(0)
    rows = (1 + scatter * rng.normal(size=(1200, 8))).astype(np.float32)
    positives = [np.setdiff1d(np.arange(q % 2, 1200, 2), [q]) for q in range(300)]
    tracemalloc.start()
    positive_ranks(rows[:300], rows, positives, exclude=np.arange(300))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    block = 300 * 1200 * 8  # of float64 scores
    assert peak < 40 * block  # all pairs with all positives would be 600 blocks


def test_query_without_positives_has_no_ranks():
    received = positive_ranks(np.eye(2), np.eye(2), [[], [0]])
    assert [found.tolist() for found in received] == [[], [2]]


def test_no_queries_have_no_ranks():
    assert positive_ranks(np.empty((0, 2)), np.eye(2), []) == []


VALID = {
    "queries": np.eye(2),
    "gallery": np.eye(2),
    "positives": [[1], [0]],
    "exclude": [0, 1],
}


@refusals(
    ("positives", [[1]], "must have one entry for each of the 2 queries. Received: 1"),
    ("positives", [[1], [2]], "from 0 to 1. Received: [2] for query 1"),
    ("positives", [[1], [1, 1]], "must be different gallery rows"),
    ("positives", [[0], [0]], "must not hold a row that `exclude` leaves out"),
    ("positives", [[1], [0.5]], "must hold integers [R] for each query"),
    ("ties", "random", "must be one of index, pessimistic, optimistic"),
    ("exclude", [[0], [2]], "must be -1 or a gallery row below 2"),
    ("queries", np.ones((2, 3)), "the dimension of the gallery, 2. Received: 3"),
    ("gallery", [[1, 0], [np.nan, 1]], "NaN or infinity in row 1"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    refuses(positive_ranks, argument=argument, value=value, rule=rule, valid=VALID)
