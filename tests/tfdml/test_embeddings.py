"""Rows are checked alike, whether one is given or many."""

import numpy as np
import pytest

from tfdml._core.embeddings import as_embeddings, embeddings_and_norms, row_norms

COUNTS = pytest.mark.parametrize("count", [1, 2, 300])


def drawn(count):
    return np.random.default_rng(0).normal(size=(count, 24)).astype(np.float32)


@COUNTS
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e15])
def test_norms_are_the_lengths_of_the_rows(count, size):
    rows = drawn(count) * np.float32(size)
    checked, norms = embeddings_and_norms("rows", rows, unit=True)
    assert checked is rows
    expected = [sum(float(x) ** 2 for x in row) ** 0.5 for row in rows]
    np.testing.assert_allclose(norms, expected, rtol=1e-14)


@pytest.mark.parametrize("dimension", [3, 500, 9_000])  # above einsum's buffer
def test_norm_of_a_row_depends_on_no_other(dimension, monkeypatch):
    monkeypatch.setattr("tfdml._core.embeddings._WORTH_A_THREAD", 5 * dimension)
    row = np.random.default_rng(1).normal(size=dimension).astype(np.float32)
    alone = row_norms(row[None])
    for count in (2, 7, 31):
        assert set(row_norms(np.tile(row, (count, 1)))) == set(alone)


@COUNTS
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, ">f4"])
def test_any_dtype_and_layout_is_read_as_float32(count, dtype):
    rows = np.asfortranarray((100 * drawn(count)).astype(dtype))
    checked, _ = embeddings_and_norms("rows", rows, unit=False)
    assert checked.dtype == np.float32
    assert checked.flags.c_contiguous
    np.testing.assert_array_equal(checked, rows.astype(np.float32))


@COUNTS
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_row_that_is_not_finite_is_named(count, value):
    rows = drawn(count).astype(np.float64)
    rows[-1, 5] = value
    with pytest.raises(ValueError, match=f"must be finite.*in row {count - 1}"):
        as_embeddings("rows", rows, unit=False)


@COUNTS
def test_row_of_zeros_is_refused_where_it_has_no_meaning(count):
    rows = drawn(count)
    rows[-1] = 0
    with pytest.raises(ValueError, match=f"zeros in row {count - 1}"):
        embeddings_and_norms("rows", rows, unit=True)
    checked, norms = embeddings_and_norms("rows", rows, unit=False)
    assert checked is rows
    assert norms[-1] == 0


@COUNTS
def test_row_that_float32_makes_zeros_of_is_refused(count):
    rows = drawn(count).astype(np.float64)
    rows[-1] = 1e-60
    with pytest.raises(ValueError, match=f"makes zeros of row {count - 1}"):
        as_embeddings("rows", rows, unit=False)


def test_no_rows_are_rows_too():
    checked, norms = embeddings_and_norms("rows", np.empty((0, 3)), unit=True)
    assert checked.shape == (0, 3)
    assert norms.shape == (0,)
