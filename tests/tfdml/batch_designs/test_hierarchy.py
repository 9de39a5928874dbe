"""The tree of classes against loops, and the batches of classes that are near."""

import numpy as np
import pytest

from tests.support.naive_hierarchy import naive_tree
from tfdml.batch_designs import ClassHierarchy, HierarchyBatches


def some(seed, sizes, spread=1.0):
    random = np.random.default_rng(seed)
    labels = np.repeat(3 * np.arange(len(sizes)) + 5, sizes)
    centers = random.normal(size=(len(sizes), 3))
    rows = np.repeat(centers, sizes, axis=0) + spread * random.normal(
        size=(len(labels), 3)
    )
    order = random.permutation(len(labels))
    return rows[order], labels[order]


@pytest.mark.parametrize("levels", [1, 3, 16])
@pytest.mark.parametrize(
    ("sizes", "spread"),
    [
        ([2, 3, 4, 2, 5, 3], 0.3),
        ([2, 3, 4, 2, 5, 3], 1.0),
        ([1, 3, 2, 1], 0.5),  # classes of one image
        ([1, 1, 1], 0.5),
        ([4], 1.0),
    ],
)
def test_tree_equals_the_loops(sizes, spread, levels):
    for seed in range(4):
        rows, labels = some(seed, sizes, spread)
        if seed == 3:
            rows[0] = 0  # has no direction
        tree = ClassHierarchy(rows, labels, levels=levels)
        d, s, thresholds, merging = naive_tree(rows, labels, levels)
        np.testing.assert_allclose(tree.spreads, s, atol=1e-12)
        np.testing.assert_allclose(tree.thresholds, thresholds, atol=1e-12)
        for number in range(len(sizes)):
            others = np.arange(len(sizes)) != number
            received = tree.distances_from(number)[others]
            np.testing.assert_allclose(received, d[number][others], atol=1e-12)
        apart = (tree.nodes[:, None] != tree.nodes).sum(axis=2)
        received = tree.thresholds[apart]
        different = ~np.eye(len(sizes), dtype=bool)
        np.testing.assert_allclose(received[different], merging[different], atol=1e-12)


def test_targets_are_rows_of_the_classes():
    rows, labels = some(0, [2, 3, 4])
    tree = ClassHierarchy(rows, labels, levels=3)
    received = tree.targets([11, 5, 11])
    assert received.dtype == "float32"
    for row, place in zip(received, (2, 0, 2), strict=True):
        expected = [place, tree.spreads[place], tree.thresholds[0], *tree.nodes[place]]
        np.testing.assert_allclose(row, expected, rtol=1e-6)


def test_names_may_be_texts():
    rows, labels = some(0, [2, 3, 4])
    names = np.array([f"class {label:02}" for label in labels])
    tree = ClassHierarchy(rows, names)
    expected = ClassHierarchy(rows, labels).targets([8, 5])
    np.testing.assert_array_equal(tree.targets(["class 08", "class 05"]), expected)


@pytest.mark.parametrize("anchors", [1, 2, 3])
def test_batch_holds_classes_with_their_nearest(anchors):
    rows, labels = some(1, [2, 3, 4, 2, 5, 3, 1, 4, 3, 2])
    names = np.unique(labels)
    tree = ClassHierarchy(rows, labels)
    design = HierarchyBatches(labels, anchors, 3, 3, hierarchy=tree, seed=4)
    assert len(design) == 10 // (anchors * 3)
    firsts = []
    for number in range(3):
        batches = design.batches(number)
        assert batches.shape == (len(design), design.batch_size)
        firsts = []
        for batch in batches:
            classes = np.searchsorted(names, labels[batch][::3])
            assert (labels[batch].reshape(-1, 3) == labels[batch][::3, None]).all()
            assert len(set(classes)) == anchors * 3
            firsts += list(classes[:anchors])
            taken = list(classes[:anchors])
            for place, anchor in enumerate(classes[:anchors]):
                distances = tree.distances_from(anchor)
                free = [c for c in np.argsort(distances) if c not in taken]
                start = anchors + 2 * place
                assert list(classes[start : start + 2]) == free[:2]
                taken += free[:2]
        assert len(set(firsts)) == len(firsts)


def test_without_a_tree_no_class_occurs_twice_in_a_pass():
    labels = np.repeat(np.arange(12), 2)
    batches = HierarchyBatches(labels, 2, 2, 2).batches(0)
    assert len(np.unique(batches)) == batches.size == 24


def test_class_gives_different_images_as_long_as_it_can():
    labels = np.repeat(np.arange(4), [5, 2, 3, 1])
    for batch in HierarchyBatches(labels, 2, 2, 3).batches(0):
        for images in batch.reshape(-1, 3):
            size = np.bincount(labels)[labels[images[0]]]
            assert len(set(images)) == min(3, size)


ROWS, LABELS = some(0, [2, 2, 2])


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: ClassHierarchy(ROWS[:5], LABELS), "`embeddings` must be real numbers"),
        (lambda: ClassHierarchy(np.zeros((0, 2)), []), "at least one"),
        (lambda: ClassHierarchy(ROWS * np.nan, LABELS), "`embeddings` must be finite"),
        (lambda: ClassHierarchy(ROWS, LABELS, levels=0), "`levels` must be a whole"),
        (
            lambda: ClassHierarchy(ROWS, LABELS).targets([5, 6]),
            r"`labels` must be of classes .* Received: \[6\]",
        ),
        (lambda: HierarchyBatches(LABELS, 2, 2, 1), "at most the number of classes, 3"),
        (lambda: HierarchyBatches(LABELS, 1, 1, 1), "`classes_per_anchor` must be a"),
        (lambda: HierarchyBatches(LABELS, 0, 2, 1), "`anchors` must be a whole"),
        (lambda: HierarchyBatches(LABELS, 1, 2, 0), "`images_per_class` must be a"),
        (
            lambda: HierarchyBatches(
                LABELS + 1, 1, 2, 2, hierarchy=ClassHierarchy(ROWS, LABELS)
            ),
            "`hierarchy` must be of the classes of `labels`",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, rule):
    with pytest.raises(ValueError, match=rule):
        make()
