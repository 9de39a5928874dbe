"""Losses where products are rounded to 11 bits, as NVIDIA's GPUs do by default."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.all_losses import every_loss
from tests.support.autodiff import differentiated, slow_on_jax
from tests.tfdml.losses.test_every_loss import hard_batch
from tfdml.layers import CenterRegularizer
from tfdml.losses import LogRatioLoss

pytestmark = [pytest.mark.backend, *slow_on_jax]

MATMUL = keras.ops.matmul


def rounded(x):
    """Round to 11 significant bits; the gradient is that of the identity."""
    many = (2.0**13 + 1) * x
    return x + ops.stop_gradient(many - (many - x) - x)


@pytest.fixture
def tf32(monkeypatch):
    def matmul(x, y):
        return MATMUL(rounded(x), rounded(y))

    monkeypatch.setattr(keras.ops, "matmul", matmul)
    monkeypatch.setattr("tfdml.losses._log_ratio.has_gpu", lambda: True)


def test_products_are_rounded(tf32):
    row = np.full((1, 1), 1 + 2.0**-12, "float32")
    assert float(ops.matmul(row, row)[0, 0]) == 1.0


@every_loss()
@pytest.mark.parametrize("case", ["equal rows", "one zero row", "duplicates"])
def test_value_and_gradient_are_finite(entry, case, tf32):
    labels, embeddings = hard_batch(case, entry)
    both = differentiated(lambda x: entry.value(labels, x))
    value, gradient = both(embeddings)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_penalty_on_centers_is_finite(tf32):
    centers = np.random.default_rng(0).normal(size=(20, 3, 64)).astype("float32")
    unit = centers / np.linalg.norm(centers, axis=-1, keepdims=True)
    own = ops.matmul(unit, ops.transpose(unit, (0, 2, 1)))
    assert np.max(ops.convert_to_numpy(own)) > 1 + 1e-5
    value, gradient = differentiated(CenterRegularizer())(centers)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_log_ratio_sees_distances_of_near_duplicates(monkeypatch, tf32):
    random = np.random.default_rng(0)
    steps = np.cumsum(random.normal(size=(32, 3)), axis=0)
    rows = (random.normal(size=3) + 0.02 * steps).astype("float32")
    rows[::2] *= 0.2
    loss = LogRatioLoss()
    both = differentiated(lambda x: loss(steps.astype("float32"), x))
    value, gradient = both(rows)
    monkeypatch.setattr(keras.ops, "matmul", MATMUL)
    exact, direction = both(rows)
    assert value == pytest.approx(exact, rel=0.01)
    np.testing.assert_allclose(gradient, direction, atol=0.02 * abs(direction).max())
