"""Batches for losses on ranks, and how such a loss is compared with its definition."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import value_and_gradient
from tests.support.loss_entry import rebuilt

Naive = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""A definition, item by item: labels and similarities to the value of each anchor."""


def batch(seed: int, size: int = 12, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Classes of different sizes, a duplicate, singletons."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, size)
    embeddings = (
        generator.normal(size=(size, 3)) + generator.normal(size=(classes, 3))[labels]
    )
    embeddings[4] = embeddings[1]
    labels[-1] = 99
    return labels, embeddings


def similarities(embeddings: np.ndarray) -> np.ndarray:
    """Cosine similarities."""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    return unit @ unit.T


def apart(embeddings: np.ndarray) -> np.ndarray:
    """Move the duplicate away: where scores are equal, losses with jumps have two."""
    moved = embeddings.copy()
    moved[4] += [0.3, -0.2, 0.1]
    return moved


def with_positives(labels: np.ndarray) -> int:
    """How many anchors have another item of their class."""
    return sum((labels == label).sum() > 1 for label in labels)


def sets_of(labels: np.ndarray, anchor: int) -> tuple[list[int], list[int]]:
    """Return the positives and the negatives of an anchor."""
    positives = [i for i, y in enumerate(labels) if y == labels[anchor] and i != anchor]
    return positives, [i for i, y in enumerate(labels) if y != labels[anchor]]


def sigmoid(x: float, temperature: float) -> float:
    """1 / (1 + e^(-x / temperature))."""
    return 0.5 * (1 + np.tanh(x / temperature / 2))


def check_values(
    loss: keras.losses.Loss,
    naive: Naive,
    labels: Any,
    embeddings: np.ndarray,
    *,
    anchors: int | None = None,
) -> None:
    """Assert that each anchor has its value, up to the factor of the mean."""
    expected = naive(labels, similarities(embeddings))
    received = rebuilt(loss, dtype="float64", reduction=None)(labels, embeddings)
    scale = len(labels) / (anchors or with_positives(labels))
    assert expected.any()
    np.testing.assert_allclose(
        ops.convert_to_numpy(received), scale * expected, atol=1e-9
    )
    single = rebuilt(loss, reduction=None)(labels, embeddings.astype("float32"))
    np.testing.assert_allclose(
        ops.convert_to_numpy(single), scale * expected, rtol=2e-4, atol=2e-4
    )


def check_gradient(
    loss: keras.losses.Loss,
    definition: Callable[[np.ndarray], float],
    labels: Any,
    embeddings: np.ndarray,
    *,
    compiled: bool,
) -> None:
    """Assert that a weighted sum has the value and the slopes of its definition."""
    weights = np.linspace(0.2, 1.7, len(labels))
    value, gradient = value_and_gradient(
        lambda x: rebuilt(loss, dtype="float64")(labels, x, sample_weight=weights),
        embeddings,
        compiled=compiled,
    )
    assert value == pytest.approx(definition(embeddings), rel=1e-9)
    assert gradient.any()
    for place in np.ndindex(embeddings.shape):
        step = np.zeros_like(embeddings)
        step[place] = 1e-6
        up, down = definition(embeddings + step), definition(embeddings - step)
        assert gradient[place] == pytest.approx((up - down) / 2e-6, rel=1e-4, abs=1e-6)


def weighted(naive: Naive, labels: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return what `check_gradient` compares, for one value per anchor."""
    weights = np.linspace(0.2, 1.7, len(labels))
    anchors = with_positives(labels)
    return lambda x: float((naive(labels, similarities(x)) * weights).sum() / anchors)
