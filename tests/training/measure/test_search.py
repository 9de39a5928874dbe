"""Searches among the images of a split."""

import numpy as np

from tfdml.images import View
from training.data.data_set import DataSet
from training.data.images import Images
from training.data.split import Split
from training.measure.search import search_split

EMBEDDINGS = np.random.default_rng(0).normal(size=(8, 3))
LABELS = np.array([0, 0, 0, 0, 1, 1, 1, 1])


def split(**more):
    images = np.zeros((8, 1, 1, 3), "uint8")
    data = DataSet(images, LABELS, np.full(8, "test"), ("a", "b"), **more)
    return Split(data, Images(data, View(1)), np.arange(8))


def nearest(query, allowed):
    unit = EMBEDDINGS / np.linalg.norm(EMBEDDINGS, axis=1, keepdims=True)
    scores = unit[allowed] @ unit[query]
    order = np.argsort(-scores)
    return np.array(allowed)[order], scores[order]


def test_gallery_is_searched_without_the_image_itself():
    roles = np.array(["", "query", "gallery", "", "", "gallery", "", "query"])
    found, scores = search_split(split(roles=roles), EMBEDDINGS, np.array([0, 1]), 4)
    for row, (query, allowed) in enumerate(
        [(0, [2, 3, 4, 5, 6]), (1, [0, 2, 3, 4, 5, 6])]
    ):
        expected, similar = nearest(query, allowed)
        assert found[row].tolist() == expected[:4].tolist()
        np.testing.assert_allclose(scores[row], similar[:4], rtol=1e-5)


def test_own_sequence_is_left_out():
    clips = np.array(["x", "y", "x", "z", "y", "x", "z", "y"])
    found, _ = search_split(split(sequences=clips), EMBEDDINGS, np.array([3, 5]), 9)
    assert found.shape == (2, 5)  # what the one with the largest clip may find
    assert found[0].tolist() == nearest(3, [0, 1, 2, 4, 5, 7])[0][:5].tolist()
    assert found[1].tolist() == nearest(5, [1, 3, 4, 6, 7])[0].tolist()


def test_nothing_is_found_where_one_may_find_nothing():
    clips = np.full(8, "x")
    found, scores = search_split(split(sequences=clips), EMBEDDINGS, np.arange(8), 3)
    assert found.shape == scores.shape == (8, 0)
