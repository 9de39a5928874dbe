"""Searches with expanded queries, of every kind of index in this process."""

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tests.support.saved_indexes import clustered
from tfdml.index import ExactIndex, LocalIndex, expanded_search
from tfdml.neighbors import expand_queries, first_dimensions, nearest_neighbors

ROWS = clustered(300, 16)
QUERIES = clustered(310, 16)[300:] + 0.1
NAMES = [f"item {row}" for row in range(300)]


def by_hand(rows, queries, k, neighbors, alpha):
    moved = expand_queries(queries, rows, k=neighbors, alpha=alpha)
    found, scores = nearest_neighbors(moved, rows, k)
    return [[NAMES[row] for row in own] for own in found], scores


@pytest.mark.parametrize("index_class", [ExactIndex, LocalIndex])
@pytest.mark.parametrize("dimensions", [None, 6])
def test_answers_are_those_of_expanded_queries(index_class, dimensions):
    index = index_class.build(ROWS, NAMES, dimensions=dimensions)
    rows, queries = ROWS, QUERIES
    if dimensions:
        rows, queries = (first_dimensions(part, 6) for part in (ROWS, QUERIES))
    for neighbors, alpha in ((1, 3.0), (5, 0), (300, 1.0), (400, 2.0)):
        found = expanded_search(index, QUERIES, 7, neighbors=neighbors, alpha=alpha)
        ids, scores = by_hand(rows, queries, 7, min(neighbors, 300), alpha)
        assert found.ids.tolist() == ids
        np.testing.assert_allclose(found.scores, scores, atol=1e-6)


def test_filters_and_exclusions_hold_in_both_searches():
    classes = ["even", "odd"] * 150
    index = ExactIndex.build(ROWS, NAMES, {"class": classes})
    found = expanded_search(
        index, ROWS[:5], 3, where={"class": "even"}, exclude=["item 0", "item 2"]
    )
    own = np.array(index.ids[::2].tolist())
    kept = np.isin(own, ["item 0", "item 2"], invert=True)
    rows = ROWS[::2][kept]
    moved = expand_queries(ROWS[:5], rows, k=10)
    true, _ = nearest_neighbors(moved, rows, 3)
    assert found.ids.tolist() == own[kept][true].tolist()


def test_empty_galleries_find_nothing():
    index = ExactIndex.build(np.empty((0, 16)))
    assert expanded_search(index, QUERIES).ids.shape == (10, 0)


@refusals(
    ("neighbors", 0, "must be a whole number of at least 1"),
    ("alpha", -1, "must be at least 0"),
    ("index", ExactIndex.build(ROWS, metric="dot_product"), "must compare by cosine"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    valid = {"index": ExactIndex.build(ROWS), "queries": QUERIES}
    refuses(expanded_search, argument=argument, value=value, rule=rule, valid=valid)
