"""Query expansion and gallery augmentation against loops in float64."""

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.neighbors import augment_gallery, expand_queries, nearest_neighbors

GENERATOR = np.random.default_rng(0)
GALLERY = GENERATOR.normal(size=(40, 6)) + 0.5
QUERIES = GENERATOR.normal(size=(7, 6)) + 0.5


def unit(row):
    return row / np.sqrt((row * row).sum())


def naive(query, gallery, k, alpha, exclude=()):
    cosines = [
        (-float(unit(query) @ unit(row)), place)
        for place, row in enumerate(gallery)
        if place not in exclude
    ]
    total = unit(query)
    for opposite, place in sorted(cosines)[:k]:
        if opposite < 0:
            total = total + (-opposite) ** alpha * unit(gallery[place])
    return unit(total)


@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("alpha", [0, 1, 3.0])
def test_queries_are_moved_as_the_formula_says(k, alpha):
    moved = expand_queries(QUERIES, GALLERY, k=k, alpha=alpha)
    assert moved.dtype == np.float32
    for query, own in zip(QUERIES, moved, strict=True):
        np.testing.assert_allclose(own, naive(query, GALLERY, k, alpha), atol=2e-6)


def test_excluded_rows_move_nothing():
    exclude = np.array([[place, -1] for place in range(7)])
    moved = expand_queries(QUERIES, GALLERY, k=3, exclude=exclude)
    for place, (query, own) in enumerate(zip(QUERIES, moved, strict=True)):
        expected = naive(query, GALLERY, 3, 3.0, {place})
        np.testing.assert_allclose(own, expected, atol=2e-6)


@pytest.mark.parametrize("k", [1, 4, 39])
def test_gallery_rows_are_moved_without_themselves(k):
    moved = augment_gallery(GALLERY, k=k, alpha=2.0)
    for place, own in enumerate(moved):
        expected = naive(GALLERY[place], GALLERY, k, 2.0, {place})
        np.testing.assert_allclose(own, expected, atol=2e-6)


def test_lengths_do_not_matter_and_rows_that_point_away_count_for_nothing():
    longer = GALLERY * GENERATOR.uniform(0.1, 9, size=(40, 1))
    np.testing.assert_allclose(
        expand_queries(3 * QUERIES, longer), expand_queries(QUERIES, GALLERY), atol=1e-6
    )
    away = expand_queries([[1.0, 0.0]], [[-1.0, 0.0], [0.0, 2.0]], k=2, alpha=0)
    assert away.tolist() == [[1.0, 0.0]]


def test_expanded_queries_find_more_of_their_cluster():
    centers = GENERATOR.normal(size=(20, 16))
    labels = np.repeat(np.arange(20), 30)
    rows = centers[labels] + 1.2 * GENERATOR.normal(size=(600, 16))
    own = np.arange(600)

    def share(queries):
        found, _ = nearest_neighbors(queries, rows, 20, exclude=own)
        return (labels[found] == labels[:, None]).mean()

    assert share(expand_queries(rows, rows, exclude=own)) > share(rows) + 0.02


def test_no_queries_stay_none():
    assert expand_queries(QUERIES[:0], GALLERY).shape == (0, 6)


@refusals(
    ("k", 0, "must be from 1 to 40"),
    ("k", 41, "must be from 1 to 40"),
    ("alpha", -1, "must be at least 0"),
    ("alpha", np.nan, "must be at least 0"),
    ("queries", np.zeros((1, 6)), "must not have a row of zeros"),
    ("queries", np.ones((1, 5)), "must have the dimension of the gallery, 6"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    valid = {"queries": QUERIES, "gallery": GALLERY}
    received = {"queries": ""}.get(argument)
    refuses(
        expand_queries,
        argument=argument,
        value=value,
        rule=rule,
        valid=valid,
        received=received,
    )


@refusals(
    ("k", 40, "must be from 1 to 39"),
    ("alpha", -1, "must be at least 0"),
)
def test_bad_arguments_of_augmentation_are_refused(argument, value, rule):
    valid = {"gallery": GALLERY}
    refuses(augment_gallery, argument=argument, value=value, rule=rule, valid=valid)
