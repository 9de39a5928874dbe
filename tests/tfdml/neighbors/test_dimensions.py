"""Embeddings that are cut to their first dimensions."""

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.neighbors import first_dimensions, nearest_neighbors

ROWS = np.random.default_rng(0).normal(size=(30, 8)).astype("float32")


@pytest.mark.parametrize("dimensions", [1, 3, 8, 3.0])
def test_rows_are_the_first_numbers_at_length_one(dimensions):
    cut = first_dimensions(ROWS, dimensions)
    assert cut.dtype == np.float32
    for row, own in zip(ROWS.astype("float64"), cut, strict=True):
        kept = row[: int(dimensions)]
        np.testing.assert_allclose(own, kept / np.sqrt((kept**2).sum()), rtol=1e-6)


@pytest.mark.parametrize("metric", ["dot_product", "squared_euclidean"])
def test_lengths_stay_where_they_count(metric):
    cut = first_dimensions(ROWS, 3, metric=metric)
    np.testing.assert_array_equal(cut, ROWS[:, :3])
    assert not np.shares_memory(cut, ROWS)


def test_neighbors_are_those_of_the_first_numbers():
    found, scores = nearest_neighbors(
        first_dimensions(ROWS[:5], 4), first_dimensions(ROWS, 4), 6
    )
    true, expected = nearest_neighbors(ROWS[:5, :4], ROWS[:, :4], 6)
    np.testing.assert_array_equal(found, true)
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_no_rows_have_no_numbers():
    assert first_dimensions(np.empty((0, 4)), 2).shape == (0, 2)


@refusals(
    ("dimensions", 0, "must be a whole number of at least 1"),
    ("dimensions", 2.5, "must be a whole number of at least 1"),
    ("dimensions", True, "must be a whole number of at least 1"),
    ("dimensions", 9, "must be from 1 to 8"),
    ("embeddings", np.ones(8), "must have the shape [rows, D]"),
    ("embeddings", np.eye(8), "must not be zero in the first 3 dimensions"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    valid = {"embeddings": ROWS, "dimensions": 3}
    refuses(first_dimensions, argument=argument, value=value, rule=rule, valid=valid)
