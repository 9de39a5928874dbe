"""Compute the contrastive loss over all pairs of the training images."""

import numpy as np

_ROWS = 1000  # of the matrix of distances at one time


def contrastive_of_all(
    embeddings: np.ndarray, labels: np.ndarray, margin: float
) -> float:
    """Return what importance sampling makes a batch estimate: Hong et al., Eq. 10.

    Args:
        embeddings: Of all training images, `[N, D]`.
        labels: Their classes, `[N]`.
        margin: Of the loss.

    Returns:
        The mean over all ordered pairs of two images of D^2 for positives and
        max(0, margin - D)^2 for negatives, with D the Euclidean distance.
    """
    vectors = embeddings.astype("float64")
    squares = (vectors**2).sum(axis=1)
    total = 0.0
    for start in range(0, len(vectors), _ROWS):
        rows = slice(start, start + _ROWS)
        products = vectors[rows] @ vectors.T
        distances = np.maximum(squares[rows, None] + squares - 2 * products, 0) ** 0.5
        alike = labels[rows, None] == labels
        costs = np.where(alike, distances, np.maximum(margin - distances, 0)) ** 2
        # An image with itself is no pair; rounding may leave it a distance.
        total += costs.sum() - np.diagonal(costs, start).sum()
    return float(total / (len(vectors) * (len(vectors) - 1)))
