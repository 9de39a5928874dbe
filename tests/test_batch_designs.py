"""The group design: whose images share a batch."""

import numpy as np
import pytest

from tfdml.batch_designs import GroupBatches

LABELS = np.array([0, 1, 2, 3, 4] * 6 + [5, 6, 6])  # class 5 has one image, 6 two


def test_batch_holds_m_images_of_n_classes():
    design = GroupBatches(LABELS, 3, 2, seed=1)
    batches = design.batches(0)
    assert batches.shape == (len(design), design.batch_size) == (3, 6)
    for batch in batches:
        classes, counts = np.unique(LABELS[batch], return_counts=True)
        assert len(classes) == 2
        assert counts.tolist() == [3, 3]


def test_class_comes_once_in_a_pass_and_every_class_in_some():
    design = GroupBatches(LABELS, 2, 2, seed=1)
    seen = set()
    for number in range(20):
        classes = LABELS[design.batches(number)[:, ::2]].ravel()
        assert len(set(classes)) == len(classes)
        seen |= set(classes.tolist())
    assert seen == set(range(7))


def test_images_of_a_class_differ_where_there_are_enough():
    for batch in GroupBatches(LABELS, 6, 1, seed=0).batches(3):
        if LABELS[batch[0]] < 5:
            assert len(set(batch.tolist())) == 6


def test_small_class_gives_all_its_images_repeated_as_little_as_can_be():
    design = GroupBatches([0, 0, 0, 1], 5, 2, seed=0)
    for number in range(5):
        images, counts = np.unique(design.batches(number), return_counts=True)
        assert images.tolist() == [0, 1, 2, 3]
        assert sorted(counts[:3].tolist()) == [1, 2, 2]
        assert counts[3] == 5


def test_pass_depends_on_seed_and_number_alone():
    first, second = (GroupBatches(LABELS, 2, 3, seed=4) for _ in range(2))
    first.batches(0)
    np.testing.assert_array_equal(first.batches(7), second.batches(7))
    assert not np.array_equal(first.batches(7), first.batches(8))
    other = GroupBatches(LABELS, 2, 3, seed=5)
    assert not np.array_equal(first.batches(7), other.batches(7))


def test_each_image_of_a_class_is_drawn_as_often():
    design = GroupBatches(np.zeros(5, int), 2, 1, seed=0)
    drawn = np.concatenate([design.batches(i).ravel() for i in range(5000)])
    shares = np.bincount(drawn, minlength=5) / len(drawn)
    np.testing.assert_allclose(shares, 0.2, atol=0.02)  # five standard errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((LABELS, 0, 2), "`images_per_class` must be at least 1. Received: 0"),
        ((LABELS, 2, 0), "`classes_per_batch` must be at least 1. Received: 0"),
        ((LABELS, 2, 8), "at most the number of classes, 7. Received: 8"),
        (([], 2, 1), "`labels` must be integers"),
        ((LABELS.astype(float), 2, 1), "`labels` must be integers .*float64"),
        ((LABELS[:, None], 2, 1), r"shape \[N\]"),
    ],
)
def test_impossible_designs_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GroupBatches(*arguments)
