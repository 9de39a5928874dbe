"""Word mover's distances of captions against a linear program and permutations."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from tfdml.losses import LogRatioLoss
from tfdml.metrics import word_movers_distances

WORDS = ["a", "bird", "sits", "on", "the", "red", "car", "and", "two", "dogs", "run"]
RANDOM = np.random.default_rng(3)
VECTORS = {word: RANDOM.normal(size=4) for word in WORDS}


def naive_word_movers(caption, other):
    """The transport of Kusner et al. as a linear program over all flows."""
    left, right = sorted(set(caption)), sorted(set(other))
    shares = [caption.count(word) / len(caption) for word in left]
    others = [other.count(word) / len(other) for word in right]
    costs = [np.linalg.norm(VECTORS[v] - VECTORS[w]) for v in left for w in right]
    leaving = np.kron(np.eye(len(left)), np.ones(len(right)))
    arriving = np.kron(np.ones(len(left)), np.eye(len(right)))
    found = linprog(costs, A_eq=np.vstack([leaving, arriving]), b_eq=[*shares, *others])
    return found.fun


def naive_distance(captions, others):
    """The sums of minima of Kim et al. (CVPR 2019), one caption after the other."""
    there = sum(min(naive_word_movers(c, d) for d in others) for c in captions)
    back = sum(min(naive_word_movers(c, d) for c in captions) for d in others)
    return there + back


@pytest.fixture(scope="module")
def images():
    """Images with one to three captions of one to six words, some of them twice."""
    random = np.random.default_rng(5)
    return [
        [
            [str(word) for word in random.choice(WORDS, random.integers(1, 7))]
            for _ in range(random.integers(1, 4))
        ]
        for _ in range(5)
    ]


def test_distances_equal_the_linear_program(images):
    expected = [[naive_distance(y, z) for z in images] for y in images]
    received = word_movers_distances(images, vectors=VECTORS)
    np.testing.assert_allclose(received, expected, atol=1e-9)
    assert not np.diag(received).any()


def test_other_images_are_compared_as_the_same_ones(images):
    received = word_movers_distances(images[:2], images, vectors=VECTORS)
    expected = word_movers_distances(images, vectors=VECTORS)[:2]
    np.testing.assert_allclose(received, expected, atol=1e-12)
    assert not word_movers_distances(images[:1], images[:1], vectors=VECTORS).any()
    assert word_movers_distances([], images, vectors=VECTORS).shape == (0, 5)


def test_equally_many_words_are_moved_one_to_one():
    left, right = ["two", "red", "dogs"], ["a", "bird", "sits"]
    costs = [
        np.linalg.norm([VECTORS[w] for w in left] - np.array(order), axis=1).sum()
        for order in itertools.permutations(VECTORS[w] for w in right)
    ]
    received = word_movers_distances([[left]], [[right]], vectors=VECTORS)
    assert received.item() == pytest.approx(2 * min(costs) / 3)


def test_words_without_a_vector_are_left_out():
    some = word_movers_distances([[["red"]], [["car"]]], vectors=VECTORS)
    more = word_movers_distances([[["red", "xy"]], [["zw", "car"]]], vectors=VECTORS)
    np.testing.assert_array_equal(more, some)


def test_distances_are_labels_of_a_loss(images):
    labels = word_movers_distances(images, vectors=VECTORS)
    embeddings = np.random.default_rng(0).normal(size=(5, 3))
    assert float(LogRatioLoss("precomputed")(labels, embeddings)) > 0


@pytest.mark.parametrize(
    ("captions", "rule"),
    [
        (
            [["a red car"]],
            r"`captions`\[0\] must have captions that are lists of words",
        ),
        (["a red car"], r"`captions`\[0\] must be a list of captions, at least one"),
        ([[["red"]], []], r"`captions`\[1\] must be a list of captions"),
        ([[["red"], []]], r"`captions`\[0\] .* with a word that has a vector.*\[\]"),
        ([[["xy"]]], r"with a word that has a vector. Received: \['xy'\]"),
        ([[["red", "long"]]], "`vectors` must be of one length.*4, and 2 for 'long'"),
        ([[["nan"]]], r"`vectors` must give finite numbers \[dimension\].*for 'nan'"),
    ],
    ids=str,
)
def test_captions_without_a_distance_are_refused(captions, rule):
    vectors = {**VECTORS, "long": [1.0, 2.0], "nan": [np.nan] * 4}
    with pytest.raises(ValueError, match=rule):
        word_movers_distances(captions, vectors=vectors)
