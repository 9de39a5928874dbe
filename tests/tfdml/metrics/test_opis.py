"""OPIS: a loop over classes, thresholds and pairs."""

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.metrics import (
    MetricLimits,
    RetrievalTask,
    opis,
    pair_counts,
    true_accept_rates,
)

SIZES = [6, 5, 4, 1, 3]
LABELS = np.repeat(["a", "b", "c", "d", "e"], SIZES)
SPREADS = np.repeat([0.2, 0.6, 1.0, 0.5, 0.4], SIZES)


def rows():
    random = np.random.default_rng(12)
    centers = np.repeat(random.normal(size=(5, 4)), SIZES, axis=0)
    noise = random.normal(size=(len(LABELS), 4))
    return (centers + SPREADS[:, np.newaxis] * noise).astype("float32")


def naive(x, labels, is_query, is_gallery, rates, points):
    """Compute OPIS pair by pair, given which ordered pairs count."""
    unit = x.astype("float64")
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    similarity = np.round((unit @ unit.T + 1) * 2**20) / 2**20 - 1
    everything = range(len(x))
    pairs = [
        (i, j)
        for i in everything
        for j in everything
        if i != j and is_query[i] and is_gallery[j]
    ]
    roles = {"is_query": is_query, "is_gallery": is_gallery}
    found = true_accept_rates(pair_counts(x, labels, **roles), rates)
    ends = [point.threshold for point in found]
    utilities = []
    for name in np.unique(labels):
        own = [(i, j) for i, j in pairs if labels[i] == name]
        near = [similarity[i, j] for i, j in own if labels[j] == name]
        far = [similarity[i, j] for i, j in own if labels[j] != name]
        if not near or not far:
            continue
        of_class = []
        first, last = (np.sqrt(2 - 2 * end) for end in ends)
        for distance in np.linspace(first, last, points):
            threshold = 1 - distance**2 / 2 - 1e-9
            accepted = np.mean([s >= threshold for s in near])
            refused = np.mean([s < threshold for s in far])
            total = accepted + refused
            of_class.append(2 * accepted * refused / total if total else 0.0)
        utilities.append(of_class)
    utilities = np.array(utilities)
    deviations = [(row - utilities.mean(axis=0)) ** 2 for row in utilities]
    return np.mean(deviations), np.mean(utilities), len(utilities)


@pytest.mark.parametrize("with_roles", [False, True])
@pytest.mark.parametrize(("rates", "points"), [((0.02, 0.2), 11), ((0.1, 0.5), 2)])
def test_value_is_that_of_the_loop(with_roles, rates, points):
    x = rows()
    is_query, is_gallery = (np.ones(len(x), bool) for _ in range(2))
    if with_roles:
        is_query[::3] = False
        is_gallery[1::4] = False
    expected = naive(x, LABELS, is_query, is_gallery, rates, points)
    roles = {"is_query": is_query, "is_gallery": is_gallery} if with_roles else {}
    for limits in (MetricLimits(), MetricLimits(pairs=30)):
        task = RetrievalTask(x, LABELS, **roles, limits=limits)
        found = opis(task, false_accept_rates=rates, points=points)
        assert list(found) == ["opis", "utility", "calibrated_classes"]
        assert list(found.values()) == pytest.approx(expected, abs=1e-12)
    assert found["opis"] > 0
    counted = opis(task, None, rates, points=points, counts=pair_counts(task))
    assert counted == found


def test_pairs_of_one_group_are_left_out():
    x, labels = rows(), np.repeat(np.arange(len(LABELS) // 2 + 1), 2)[: len(LABELS)]
    task = RetrievalTask(x, LABELS, groups=labels)
    whole = opis(x, LABELS, (0.1, 0.5))
    assert opis(task, false_accept_rates=(0.1, 0.5))["opis"] != whole["opis"]


def test_equally_spread_classes_have_no_inconsistency():
    angles = np.radians([0, 10, 90, 100, 180, 190, 270, 280])
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    found = opis(x, np.repeat(np.arange(4), 2), (0.2, 0.5))
    assert found["opis"] == pytest.approx(0, abs=1e-12)
    assert 0 < found["utility"] <= 1


@refusals(
    ("false_accept_rates", (0.5, 0.1), "must be two rates, the lower first"),
    ("false_accept_rates", (0.1,), "must be two rates, the lower first"),
    ("false_accept_rates", (1e-9, 0.1), "must be below 1 and at least 1 / negative"),
    ("points", 1, "must be a whole number of at least 2"),
    ("labels", np.arange(len(LABELS)), "Verification needs pairs"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    valid = {"embeddings": rows(), "labels": LABELS}
    if argument == "labels":
        with pytest.raises(ValueError, match=rule):
            opis(rows(), value)
        return
    text = "1e-09" if value == (1e-9, 0.1) else str(value)
    refuses(opis, argument=argument, value=value, rule=rule, valid=valid, received=text)


def test_one_class_with_pairs_is_too_few():
    labels = [0] * 3 + list(range(1, len(LABELS) - 2))
    with pytest.raises(ValueError, match=r"at least two classes .* Received: 1"):
        opis(rows(), labels, (0.1, 0.5))
