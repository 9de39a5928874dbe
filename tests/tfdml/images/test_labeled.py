"""Classes that are held out of a folder of images."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.images import LabeledImages

LABELS = np.repeat(np.arange(8), [1, 2, 3, 1, 2, 3, 1, 2])
IMAGES = LabeledImages(
    tuple(Path(f"{place}.png") for place in range(len(LABELS))),
    LABELS,
    tuple("abcdefgh"),
)


def test_whole_classes_are_held_out():
    training, held_out = IMAGES.hold_out(0.375, seed=1)
    assert len(set(held_out.labels.tolist())) == 3
    assert not set(held_out.labels.tolist()) & set(training.labels.tolist())
    assert {*training.files, *held_out.files} == set(IMAGES.files)
    for part in (training, held_out):
        assert part.class_names == IMAGES.class_names
        places = [int(file.stem) for file in part.files]
        assert places == sorted(places)
        assert part.labels.tolist() == LABELS[places].tolist()


def test_seed_says_which_classes():
    classes = [
        tuple(np.unique(IMAGES.hold_out(seed=seed)[1].labels)) for seed in (0, 0, 1, 2)
    ]
    assert classes[0] == classes[1]
    assert len(set(classes)) > 1


@pytest.mark.parametrize(("share", "count"), [(0.0, 2), (0.01, 2), (0.5, 4), (0.99, 6)])
def test_two_classes_at_least_are_on_each_side(share, count):
    _, held_out = IMAGES.hold_out(share)
    assert len(np.unique(held_out.labels)) == count


@refusals(
    ("share", 1, "must be at least 0 and below 1"),
    ("share", -0.1, "must be at least 0 and below 1"),
    ("seed", -1, "must be a whole number of at least 0"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    refuses(IMAGES.hold_out, argument=argument, value=value, rule=rule)


def test_three_classes_are_too_few():
    few = LabeledImages(IMAGES.files[:6], LABELS[:6], tuple("abc"))
    with pytest.raises(ValueError, match=r"at least 4 classes.*Received: 3"):
        few.hold_out()
