"""Combined queries: an index ranks by the mean scores of the examples."""

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.index import ExactIndex
from tfdml.neighbors import combine_queries, first_dimensions

GENERATOR = np.random.default_rng(0)
GALLERY = GENERATOR.normal(size=(40, 6)) + 0.3
WANTED = GENERATOR.normal(size=(5, 6)) + 0.3
UNWANTED = GENERATOR.normal(size=(3, 6))
METRICS = ("cosine", "dot_product", "squared_euclidean")


def score(metric, query, item):
    if metric == "cosine":
        return float(query @ item / np.linalg.norm(query) / np.linalg.norm(item))
    return float(
        query @ item if metric == "dot_product" else -((query - item) ** 2).sum()
    )


def wanted_order(metric, gallery, wanted, unwanted, weight):
    """Rank by the definition: one score at a time, in float64."""
    totals = []
    for item in gallery:
        total = sum(score(metric, row, item) for row in wanted) / len(wanted)
        if len(unwanted):
            away = sum(score(metric, row, item) for row in unwanted) / len(unwanted)
            total -= weight * away
        totals.append(total)
    return np.argsort(-np.array(totals)).tolist()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("weight", [0, 0.3, 0.9])
@pytest.mark.parametrize(("positives", "negatives"), [(1, 0), (1, 1), (5, 0), (5, 3)])
def test_items_are_ranked_by_mean_scores(metric, weight, positives, negatives):
    wanted, unwanted = WANTED[:positives], UNWANTED[:negatives]
    query = combine_queries(wanted, unwanted, negative_weight=weight, metric=metric)
    assert (query.shape, query.dtype) == ((1, 6), np.float32)
    found = ExactIndex.build(GALLERY, metric=metric).search(query, 40)
    assert found.ids[0].tolist() == wanted_order(
        metric, GALLERY, wanted, unwanted, weight
    )


def test_items_of_cut_embeddings_are_ranked_by_mean_scores():
    query = combine_queries(first_dimensions(WANTED, 3), first_dimensions(UNWANTED, 3))
    found = ExactIndex.build(GALLERY, dimensions=3).search(query, 40)
    cut = [rows[:, :3] for rows in (GALLERY, WANTED, UNWANTED)]
    assert found.ids[0].tolist() == wanted_order("cosine", *cut, 0.5)


@pytest.mark.parametrize("metric", METRICS)
def test_one_query_alone_stays_what_it_is(metric):
    alone = combine_queries(WANTED[:1], metric=metric)
    expected = WANTED[:1] / (np.linalg.norm(WANTED[0]) if metric == "cosine" else 1)
    np.testing.assert_allclose(alone, expected, rtol=1e-6)
    same = combine_queries(WANTED[:1], WANTED[:1], metric=metric)
    factor = 0.5 if metric == "dot_product" else 1
    np.testing.assert_allclose(same, factor * alone, rtol=1e-5)


def test_lengths_and_order_do_not_matter_to_cosines():
    lengths = GENERATOR.uniform(0.1, 9, size=(5, 1))
    np.testing.assert_allclose(
        combine_queries((WANTED * lengths)[::-1], 7 * UNWANTED),
        combine_queries(WANTED, UNWANTED),
        atol=1e-6,
    )


@refusals(
    ("positives", np.empty((0, 6)), "must have at least one row"),
    ("positives", WANTED[0], "must have the shape [rows, D]"),
    ("positives", np.zeros((1, 6)), "must not have a row of zeros"),
    ("positives", np.full((1, 6), np.nan), "must be finite"),
    ("positives", np.stack([WANTED[0], -WANTED[0]]), "must not cancel each other"),
    ("negatives", np.zeros((1, 6)), "must not have a row of zeros"),
    ("negatives", np.ones((1, 5)), "must have as many columns as `positives`, 6"),
    ("negative_weight", 1, "must be at least 0 and below 1"),
    ("negative_weight", -0.1, "must be at least 0 and below 1"),
    ("negative_weight", np.nan, "must be at least 0 and below 1"),
    ("metric", "euclidean", "must be one of cosine, dot_product, squared_euclidean"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    refuses(
        combine_queries,
        argument=argument,
        value=value,
        rule=rule,
        valid={"positives": WANTED},
    )
