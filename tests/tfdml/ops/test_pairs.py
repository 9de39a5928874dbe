"""Unit rows, masks and top scores."""

import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, tensors, value_and_gradient
from tfdml.ops import cosine_similarities, label_masks, softplus, top_scores, unit_rows
from tfdml.ops._top_scores import top_scores_in_turn

pytestmark = pytest.mark.backend


def numpy(x):
    return ops.convert_to_numpy(x)


@pytest.mark.parametrize("scale", [1e-35, 1e-20, 1.0, 1e20, 1e35])
def test_rows_of_any_scale_become_unit_rows(scale):
    x = (np.array([[3.0, 4.0], [-5.0, 12.0]]) * scale).astype("float32")
    expected = [[0.6, 0.8], [-5 / 13, 12 / 13]]
    np.testing.assert_allclose(numpy(unit_rows(*tensors(x))), expected, rtol=1e-5)


def test_zero_row_stays_zero_with_zero_gradient():
    x = np.array([[0.0, 0.0], [3.0, 4.0]], dtype="float32")
    value, gradient = value_and_gradient(lambda x: ops.sum(unit_rows(x)), x)
    assert value == pytest.approx(1.4)
    assert gradient[0].tolist() == [0, 0]


def test_gradient_of_unit_rows_is_the_projection():
    x = np.array([[3.0, 4.0]])
    direction = np.array([[1.0, 2.0]])
    _, gradient = value_and_gradient(
        lambda x: ops.sum(unit_rows(x) * tensors(direction)[0]), x
    )
    unit = x / 5
    expected = (direction - unit * (unit @ direction.T)) / 5
    np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_cosine_similarities_of_angles():
    angles = np.radians([0.0, 60.0, 90.0, 180.0])
    points = 7 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    expected = np.cos(angles[:, None] - angles[None, :2])
    received = numpy(cosine_similarities(*tensors(points, points[:2])))
    np.testing.assert_allclose(received, expected, atol=1e-7)


def test_duplicates_are_positives_and_an_item_is_never_its_own():
    positives, negatives = label_masks(ops.convert_to_tensor([4, 4, 9]))
    assert numpy(positives).tolist() == [
        [False, True, False],
        [True, False, False],
        [False, False, False],
    ]
    assert numpy(negatives).tolist() == [
        [False, False, True],
        [False, False, True],
        [True, True, False],
    ]


@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_top_scores_are_the_largest_masked_ones(k):
    scores = np.array([[0.1, 0.9, 0.5, 0.7], [0.3, 0.2, 0.1, 0.0]], dtype="float32")
    mask = np.array([[True, False, True, True], [False, False, False, False]])
    values, found = top_scores(ops.convert_to_tensor(scores), mask, k)
    count = min(k, 3)
    assert numpy(values)[0, :count].tolist() == scores[0, [3, 2, 0]][:count].tolist()
    assert numpy(found).tolist() == [
        [True] * count + [False] * (k - count),
        [False] * k,
    ]


@pytest.mark.skipif(BACKEND == "torch", reason="its top_k takes ties in any order")
@pytest.mark.parametrize("k", [1, 3, 7])
def test_top_scores_in_turn_are_those_of_top_k_ties_included(k):
    scores = np.random.default_rng(k).integers(0, 4, size=(20, 7)).astype("float32")
    weights = np.arange(20 * k, dtype="float32").reshape(20, k)

    def weighted(find):
        return value_and_gradient(
            lambda s: ops.sum(find(s) * tensors(weights)[0]), scores
        )

    value, gradient = weighted(lambda s: top_scores_in_turn(s, k))
    expected, slopes = weighted(lambda s: ops.top_k(s, k)[0])
    assert value == expected
    np.testing.assert_array_equal(gradient, slopes)


def test_top_scores_in_turn_pass_nan():
    scores = np.array([[0.1, np.nan, 0.3]], "float32")
    assert np.isnan(numpy(top_scores_in_turn(*tensors(scores), 2))[0, 0])


@pytest.mark.parametrize(("dtype", "digits"), [("float32", 5e-7), ("float64", 1e-15)])
def test_softplus_and_its_slope_are_exact_to_the_last_digits(dtype, digits):
    if BACKEND == "torch" and dtype == "float64":
        pytest.skip("torch's own softplus is x above 20, 2e-9 off")
    x = np.concatenate([np.linspace(-90, 90, 1801), [1e-20, -1e-20, 1e30, -1e30]])
    x = x.astype(dtype)
    value, slope = value_and_gradient(lambda x: ops.sum(softplus(x)), x)
    wide = x.astype("longdouble")
    right = np.logaddexp(0, wide)
    np.testing.assert_allclose(numpy(softplus(x)), right, rtol=digits, atol=1e-37)
    expected = np.exp(-np.logaddexp(0, -wide))
    np.testing.assert_allclose(slope, expected, rtol=20 * digits, atol=1e-37)
    assert value == pytest.approx(float(np.logaddexp(0, wide).sum()), rel=1e-5)


def test_softplus_of_infinity_and_nan():
    x = np.array([-np.inf, np.inf, np.nan], "float32")
    assert numpy(softplus(x))[:2].tolist() == [0, np.inf]
    assert np.isnan(numpy(softplus(x))[2])
    _, slope = value_and_gradient(lambda x: ops.sum(softplus(x)[:2]), x)
    assert slope[:2].tolist() == [0, 1]
