"""The random numbers of changes of training images."""

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.images import RandomChanges

ALL = RandomChanges(0.3, 0.2, 20, True, 0.25, 0.4, 0.8, 0.1, 0.5)
NEUTRAL = [1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0]


def column(numbers, name):
    return numbers[:, RandomChanges.COLUMNS.index(name)]


def test_numbers_fill_the_ranges_of_their_strengths():
    numbers = ALL.numbers(seed=0, step=0, count=20_000)
    assert numbers.dtype == "float32"
    ranges = {
        "zoom_height": (0.7, 1.3),
        "zoom_width": (0.7, 1.3),
        "shift_height": (-0.2, 0.2),
        "shift_width": (-0.2, 0.2),
        "rotation": (-20, 20),
        "brightness": (-0.25, 0.25),
        "contrast": (0.6, 1.4),
        "saturation": (0.2, 1),
        "hue": (-0.05, 0.05),
    }
    for name, (low, high) in ranges.items():
        values = (column(numbers, name) - low) / (high - low)
        assert -1e-6 <= values.min() < 0.001, name
        assert 0.999 < values.max() <= 1 + 1e-6, name
        assert values.mean() == pytest.approx(0.5, abs=0.01), name
    for name in ("flip", "grayscale"):
        assert set(column(numbers, name)) == {0, 1}
        assert column(numbers, name).mean() == pytest.approx(0.5, abs=0.015)
    related = np.corrcoef(numbers, rowvar=False) - np.eye(len(RandomChanges.COLUMNS))
    assert np.abs(related).max() < 0.03


def test_share_of_gray_images_is_the_probability():
    rare = RandomChanges(grayscale=0.1).numbers(0, 0, 10_000)
    assert column(rare, "grayscale").mean() == pytest.approx(0.1, abs=0.01)
    assert column(RandomChanges(grayscale=1).numbers(0, 0, 9), "grayscale").all()


def test_numbers_of_changes_that_are_left_out_change_nothing():
    numbers = RandomChanges().numbers(seed=3, step=4, count=5)
    np.testing.assert_array_equal(numbers, [NEUTRAL] * 5)
    assert not RandomChanges()
    shifted = RandomChanges(shift=0.1)
    assert shifted
    others = [not name.startswith("shift") for name in RandomChanges.COLUMNS]
    received = shifted.numbers(seed=3, step=4, count=5)[:, others]
    np.testing.assert_array_equal(received, np.tile(NEUTRAL, (5, 1))[:, others])


def test_numbers_depend_on_seed_step_and_place_alone():
    whole = ALL.numbers(seed=1, step=2, count=64)
    np.testing.assert_array_equal(ALL.numbers(1, 2, 10), whole[:10])
    assert ALL.numbers(1, 2, 0).shape == (0, len(NEUTRAL))
    # Adding one change does not draw others anew.
    turned = RandomChanges(rotation=20).numbers(1, 2, 64)
    np.testing.assert_array_equal(column(turned, "rotation"), column(whole, "rotation"))
    many = [ALL.numbers(s, t, 64) for s in range(4) for t in range(4)]
    assert len(np.unique(np.concatenate(many), axis=0)) == 16 * 64


def test_numbers_are_independent_of_other_draws_for_the_same_seed_and_step():
    """Random crops draw from [seed, step, place], designs from [seed, pass]."""
    flipped = RandomChanges(flip=True).numbers(5, 6, 1)
    drawn = ALL.numbers(5, 6, 1)
    for others in ([5, 6], [5, 6, 0]):
        rest = np.random.default_rng(others).random(len(NEUTRAL))
        share = (column(drawn, "rotation")[0] + 20) / 40
        assert np.abs(rest - share).min() > 1e-6
    assert flipped.shape == (1, len(NEUTRAL))


GOLDEN = [
    *(1.193928599, 0.959517121, -0.005012359, 0.084005244, 17.451768875, 1.0),
    *(-0.122390792, 1.016659260, 0.344405890, -0.032157131, 1.0),
]


def test_numbers_are_the_same_as_ever():
    """A run that goes on after an upgrade sees the changes that it would have seen."""
    received = ALL.numbers(seed=0, step=7, count=1)[0]
    np.testing.assert_allclose(received, GOLDEN, rtol=1e-6)


@refusals(
    ("zoom", 1, "must be below 1"),
    ("zoom", -0.1, "must be from 0 to 1"),
    ("shift", 1.5, "must be from 0 to 1"),
    ("rotation", 181, "must be from 0 to 180"),
    ("rotation", float("nan"), "must be from 0 to 180"),
    ("flip", 1, "must be True or False"),
    ("brightness", "bright", "must be from 0 to 1"),
    ("contrast", None, "must be from 0 to 1"),
    ("saturation", 2, "must be from 0 to 1"),
    ("hue", True, "must be from 0 to 1"),
    ("grayscale", -1, "must be from 0 to 1"),
)
def test_strengths_out_of_range_are_refused(argument, value, rule):
    refuses(RandomChanges, argument=argument, value=value, rule=rule)


@refusals(
    ("seed", -1, "must be a whole number of at least 0"),
    ("step", 0.5, "must be a whole number of at least 0"),
    ("count", -3, "must be a whole number of at least 0"),
)
def test_numbers_of_no_batch_are_refused(argument, value, rule):
    valid = {"seed": 0, "step": 0, "count": 1}
    refuses(ALL.numbers, argument=argument, value=value, rule=rule, valid=valid)
