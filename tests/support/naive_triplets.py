"""Triplets by loops, and distances by their definition."""

import itertools

import numpy as np


def triplets_of(positives, negatives):
    for a in range(len(positives)):
        pairs = np.flatnonzero(positives[a]), np.flatnonzero(negatives[a])
        for p, n in itertools.product(*pairs):
            yield a, p, n


def naive_distances(x):
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return ((x[:, None] - x) ** 2).sum(2)


def random_rows(seed, anchors=5, gallery=12):
    """Return scores on a grid, so full of ties, and masks with empty rows."""
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, 8, (anchors, gallery)) / 8
    kind = generator.integers(0, 3, (anchors, gallery))
    kind[0], kind[1] = kind[0] % 2, kind[1] % 2 * 2
    return scores, kind == 1, kind == 2
