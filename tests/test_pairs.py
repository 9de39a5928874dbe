"""Unit rows, masks and top scores."""

import numpy as np
import pytest
from keras import ops

from tests.autodiff import value_and_gradient
from tfdml.pairs import cosine_similarities, label_masks, top_scores, unit_rows

pytestmark = pytest.mark.backend


def numpy(x):
    return ops.convert_to_numpy(x)


@pytest.mark.parametrize("scale", [1e-35, 1e-20, 1.0, 1e20, 1e35])
def test_rows_of_any_scale_become_unit_rows(scale):
    x = (np.array([[3.0, 4.0], [-5.0, 12.0]]) * scale).astype("float32")
    expected = [[0.6, 0.8], [-5 / 13, 12 / 13]]
    np.testing.assert_allclose(numpy(unit_rows(x)), expected, rtol=1e-5)


def test_zero_row_stays_zero_with_zero_gradient():
    x = np.array([[0.0, 0.0], [3.0, 4.0]], dtype="float32")
    value, gradient = value_and_gradient(lambda x: ops.sum(unit_rows(x)), x)
    assert value == pytest.approx(1.4)
    assert gradient[0].tolist() == [0, 0]


def test_gradient_of_unit_rows_is_the_projection():
    x = np.array([[3.0, 4.0]])
    direction = np.array([[1.0, 2.0]])
    _, gradient = value_and_gradient(lambda x: ops.sum(unit_rows(x) * direction), x)
    unit = x / 5
    expected = (direction - unit * (unit @ direction.T)) / 5
    np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_cosine_similarities_of_angles():
    angles = np.radians([0.0, 60.0, 90.0, 180.0])
    points = 7 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    expected = np.cos(angles[:, None] - angles[None, :2])
    received = numpy(cosine_similarities(points, points[:2]))
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
