"""Neighbor batches: anchors, the nearest by label, and random images."""

import numpy as np
import pytest

from tfdml.batch_designs import NeighborBatches
from tfdml.ops import caption_distance

POSES = np.random.default_rng(0).normal(size=(40, 3, 2))


def nearest_by_definition(distances, k):
    """The k nearest others of each row; the first of equal ones comes first."""
    return [
        sorted(set(range(len(row))) - {i}, key=lambda j: (row[j], j))[:k]
        for i, row in enumerate(distances)
    ]


def squared(labels):
    flat = labels.reshape(len(labels), -1)
    return np.square(flat[:, None] - flat).sum(axis=2)


def test_batch_is_anchor_neighbors_and_others():
    design = NeighborBatches(POSES, 10, neighbors=4, seed=1)
    nearest = nearest_by_definition(squared(POSES), 4)
    for batch in design.batches(3):
        assert len(set(batch.tolist())) == 10
        assert batch[1:5].tolist() == nearest[batch[0]]


@pytest.mark.parametrize("anchors", [2, 3, 5])
def test_batch_holds_all_neighbors_of_each_anchor(anchors):
    design = NeighborBatches(POSES, 25, neighbors=4, anchors=anchors, seed=1)
    nearest = nearest_by_definition(squared(POSES), 4)
    for batch in design.batches(0):
        rows = batch.tolist()
        assert len(set(rows)) == 25
        near = [j for anchor in rows[:anchors] for j in nearest[anchor]]
        fixed = list(dict.fromkeys(rows[:anchors] + near))
        assert rows[: len(fixed)] == fixed


@pytest.mark.parametrize("anchors", [1, 3])
def test_each_image_is_an_anchor_once_in_a_pass(anchors):
    design = NeighborBatches(POSES, 20, neighbors=4, anchors=anchors)
    assert len(design) == 40 // anchors
    firsts = design.batches(0)[:, :anchors].ravel().tolist()
    assert len(set(firsts)) == len(firsts) == 40 // anchors * anchors


def test_others_are_random_images():
    design = NeighborBatches(POSES, 12, neighbors=4, seed=0)
    others = np.concatenate([design.batches(i)[:, 5:].ravel() for i in range(100)])
    counts = np.bincount(others, minlength=40)
    # 7 places are left for the 35 images that are neither the anchor nor near it.
    nearest = np.array(nearest_by_definition(squared(POSES), 4))
    chances = 100 * (39 - np.bincount(nearest.ravel(), minlength=40)) * 7 / 35
    assert np.abs(counts - chances).max() < 5 * np.sqrt(chances.max())


def test_equal_labels_are_nearest_and_ties_go_by_position():
    labels = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 5.0])
    design = NeighborBatches(labels, 3, neighbors=2)
    expected = [[2, 4], [3, 0], [0, 4], [1, 0], [0, 2], [0, 2]]
    assert design.nearest.tolist() == expected

    def zeros(labels, others):
        return np.zeros((len(labels), len(others)))

    design = NeighborBatches(POSES, 40, neighbors=38, distance=zeros)
    assert design.nearest.tolist() == nearest_by_definition(np.zeros((40, 40)), 38)


def test_batch_may_be_the_whole_data_set():
    for batch in NeighborBatches(POSES, 40, neighbors=39).batches(0):
        assert sorted(batch.tolist()) == list(range(40))


@pytest.mark.parametrize("block", [1, 120, 2**22])
def test_distance_may_be_any_function(monkeypatch, block):
    monkeypatch.setattr("tfdml.batch_designs._neighbors._BLOCK", block)
    captions = np.random.default_rng(2).normal(size=(40, 2, 3))
    design = NeighborBatches(captions, 8, neighbors=3, distance=caption_distance)
    matrix = np.asarray(caption_distance(captions, captions))
    assert design.nearest.tolist() == nearest_by_definition(matrix, 3)

    def city_block(labels, others):
        return np.abs(labels[:, None] - others).sum(axis=(2, 3))

    design = NeighborBatches(POSES, 8, neighbors=3, distance=city_block)
    expected = nearest_by_definition(city_block(POSES, POSES), 3)
    assert design.nearest.tolist() == expected


def test_wrong_distances_are_refused():
    def short(labels, others):
        return np.zeros((len(labels), 2))

    def missing(labels, others):
        return np.full((len(labels), len(others)), np.nan)

    for function, message in (
        (short, r"shape \[40, 40\].*\(40, 2\)"),
        (missing, r"1600 of them NaN"),
    ):
        design = NeighborBatches(POSES, 8, distance=function)
        with pytest.raises(ValueError, match=message):
            design.batches(0)


@pytest.mark.parametrize(
    ("labels", "arguments", "message"),
    [
        (POSES, {"neighbors": 0}, r"`neighbors` .*=0"),
        (POSES, {"anchors": 0}, r"`anchors` .*=0"),
        (POSES, {"batch_size": 41}, r"number of images, 40\..*=41"),
        (POSES, {"batch_size": 11, "anchors": 2}, r"`batch_size` .* 12.*=11"),
        (np.array(["a", "b"]), {}, r"`labels` must be numbers .*<U1"),
        (np.float64(3), {}, r"`labels` must be numbers .*shape=\(\)"),
        (np.array([0, 1, np.nan]), {}, r"`labels` must be finite.* in row 2"),
    ],
)
def test_impossible_neighbors_are_refused(labels, arguments, message):
    with pytest.raises(ValueError, match=message):
        NeighborBatches(labels, **{"batch_size": 12, **arguments})
