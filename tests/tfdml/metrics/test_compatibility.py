"""New queries on an old gallery, by loops, and the order of backfilling."""

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.metrics import (
    backfill_curve,
    backfill_order,
    compatibility,
    query_metrics,
)

CLASSES, IMAGES = 8, 4
LABELS = np.repeat([f"class {c}" for c in range(CLASSES)], IMAGES)
COUNT = len(LABELS)


def rows(noise, seed, dimension=6):
    centers = np.random.default_rng(0).normal(size=(CLASSES, dimension))
    scatter = np.random.default_rng(seed).normal(size=(COUNT, dimension))
    return np.repeat(centers, IMAGES, axis=0) + noise * scatter


OLD, NEW = rows(1.3, 1), rows(0.7, 2)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def naive_precision_at_1(queries, gallery, asked, searched, own):
    """Precision@1 of each query, one pair after the other."""
    found = []
    for i in asked:
        scores = {
            j: float(unit(queries)[i] @ unit(gallery)[j])
            for j in searched
            if own[j] != own[i]
        }
        best = max(scores, key=scores.get)
        found.append(float(LABELS[best] == LABELS[i]))
    return found


EVERY = np.arange(COUNT)
ROLES = np.arange(COUNT) % IMAGES < 2


@pytest.mark.parametrize("with_roles", [False, True])
def test_each_measurement_has_its_own_queries_and_gallery(with_roles):
    about, asked, searched, own = {}, EVERY, EVERY, EVERY
    if with_roles:
        own = EVERY // 2
        about = {"is_query": ROLES, "is_gallery": np.ones(COUNT, bool), "groups": own}
        asked = np.flatnonzero(ROLES)
    found = compatibility(OLD, NEW, LABELS, [1], **about)
    for name, queries, gallery in (
        ("old_on_old", OLD, OLD),
        ("new_on_old", NEW, OLD),
        ("new_on_new", NEW, NEW),
    ):
        received = getattr(found, name)
        expected = naive_precision_at_1(queries, gallery, asked, searched, own)
        assert received.values["precision_at_1"].tolist() == expected, name
        assert received.queries.tolist() == asked.tolist()
        assert received.classes.tolist() == LABELS[asked].tolist()


def test_change_and_share_of_the_gain_are_those_of_the_means():
    found = compatibility(OLD, NEW, LABELS, [1])
    means = [
        results.means()["map_at_r"]
        for results in (found.old_on_old, found.new_on_old, found.new_on_new)
    ]
    change = found.change("map_at_r")
    assert change.difference == pytest.approx(means[1] - means[0])
    share = found.gain_share("map_at_r")
    expected = (means[1] - means[0]) / (means[2] - means[0])
    assert share.share == pytest.approx(expected)
    assert share.low < share.share < share.high
    same = compatibility(OLD, OLD, LABELS, [1])
    assert same.change() == (0, 0, 0, False)
    assert same.gain_share() is None
    assert compatibility(NEW, OLD, LABELS, [1]).gain_share("map_at_r") is None


def test_incompatible_model_is_significantly_worse():
    turned = NEW @ np.linalg.qr(np.random.default_rng(5).normal(size=(6, 6)))[0]
    found = compatibility(OLD, turned, LABELS, [1])
    assert found.change().is_significant
    assert found.change().difference < 0
    # By itself it is as good as the one that was not turned.
    assert found.new_on_new.means() == pytest.approx(
        query_metrics(NEW, LABELS, [1]).means()
    )


def test_lengths_count_where_distances_are_compared():
    found = compatibility(OLD, 9 * NEW, LABELS, [1], metric="squared_euclidean")
    again = compatibility(OLD, 9 * NEW, LABELS, [1])
    assert found.new_on_old.means() != again.new_on_old.means()


@refusals(
    ("new", rows(1, 1)[:-1], "must have the same shape"),
    ("new", rows(1, 1, dimension=5), "equal dimensions, or they cannot be compared"),
    ("new", np.full((COUNT, 6), np.nan), "must be finite in float32"),
    ("labels", np.arange(COUNT), "must hold some label twice"),
    ("groups", np.arange(3), "must have the shape [32]"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    valid = {"old": OLD, "new": NEW, "labels": LABELS, "ks": [1]}
    refuses(
        compatibility,
        argument=argument,
        value=value,
        rule=rule,
        valid=valid,
        received="",
    )


def test_unknown_metric_and_a_single_class_are_refused():
    found = compatibility(OLD, NEW, LABELS, [1])
    with pytest.raises(ValueError, match=r"`metric` must be one of precision_at_1, "):
        found.gain_share("precision")
    alone = compatibility(OLD[:4], NEW[:4], LABELS[:4], [1])
    with pytest.raises(ValueError, match="two classes"):
        alone.change()


def test_curve_begins_new_on_old_and_ends_new_on_new():
    order = np.random.default_rng(0).permutation(COUNT)
    found = backfill_curve(OLD, NEW, LABELS, order, [1], shares=(0, 0.3, 1))
    whole = compatibility(OLD, NEW, LABELS, [1])
    assert found[0].means() == whole.new_on_old.means()
    assert found[2].means() == whole.new_on_new.means()
    mixed = OLD.copy()
    mixed[order[:10]] = NEW[order[:10]]
    expected = naive_precision_at_1(NEW, mixed, EVERY, EVERY, EVERY)
    assert found[1].values["precision_at_1"].tolist() == expected


def test_only_items_of_the_gallery_are_embedded_again():
    about = {"is_query": ROLES, "is_gallery": ~ROLES}
    found = backfill_curve(OLD, NEW, LABELS, EVERY, [1], shares=[0.5], **about)
    mixed = OLD.copy()
    done = np.flatnonzero(~ROLES)[: COUNT // 4]
    mixed[done] = NEW[done]
    expected = naive_precision_at_1(
        NEW, mixed, np.flatnonzero(ROLES), np.flatnonzero(~ROLES), EVERY
    )
    assert found[0].values["precision_at_1"].tolist() == expected


@pytest.mark.parametrize("metric", ["cosine", "squared_euclidean"])
def test_worst_placed_items_come_first(metric):
    order = backfill_order(OLD, LABELS, metric=metric)
    about = unit(OLD) if metric == "cosine" else OLD
    distances = []
    for row, label in zip(about, LABELS, strict=True):
        mean = about[label == LABELS].mean(axis=0)
        if metric == "cosine":
            distances.append(1 - row @ mean / np.linalg.norm(mean))
        else:
            distances.append(np.sum((row - mean) ** 2))
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(COUNT))
    ordered = np.array(distances)[order]
    assert (np.diff(ordered) <= 1e-6).all()


def test_worst_placed_items_first_help_earlier_than_a_random_order():
    """Images of 150 classes; what is hard for the old model need not be for the new."""
    labels = np.repeat(np.arange(150), 6)
    centers = np.random.default_rng(0).normal(size=(150, 24))[labels]

    def simulated(noise, seed):
        random = np.random.default_rng(seed)
        hardness = np.exp(0.5 * random.normal(size=(len(labels), 1)))
        return centers + noise * hardness * random.normal(size=centers.shape)

    old, new = simulated(1.2, 1), simulated(0.6, 2)
    curves = [
        [
            results.means()["map_at_r"]
            for results in backfill_curve(old, new, labels, order, [1])
        ]
        for order in (
            np.random.default_rng(3).permutation(len(labels)),
            backfill_order(old, labels),
        )
    ]
    assert curves[0][0] == curves[1][0]
    assert curves[0][4] == curves[1][4]
    assert all(curves[1][i] > curves[0][i] + 0.05 for i in (1, 2, 3))


def test_traffic_comes_before_the_class_and_ties_keep_their_order():
    traffic = np.arange(COUNT) % 2
    order = backfill_order(OLD, LABELS, traffic=traffic)
    by_class = backfill_order(OLD, LABELS).tolist()
    expected = [i for i in by_class if i % 2] + [i for i in by_class if not i % 2]
    assert order.tolist() == expected
    assert backfill_order(traffic=np.zeros(5)).tolist() == [0, 1, 2, 3, 4]
    alone = backfill_order(rows(1, 9), np.arange(COUNT))
    assert alone.tolist() == list(range(COUNT))
    assert backfill_order(np.zeros((3, 2)), [0, 0, 1]).tolist() == [0, 1, 2]


@refusals(
    ("labels", None, "must be given together with `old`, or `traffic` alone"),
    ("traffic", [1.0, -1.0], "must be real numbers of the shape [32]"),
    ("traffic", np.full(COUNT, -1.0), "must be finite and at least 0"),
    ("traffic", ["a"] * COUNT, "must be real numbers of the shape [32]"),
    ("old", np.ones(3), "must have the shape [rows, D]"),
)
def test_bad_orders_are_refused(argument, value, rule):
    valid = {"old": OLD, "labels": LABELS}
    refuses(
        backfill_order,
        argument=argument,
        value=value,
        rule=rule,
        valid=valid,
        received="",
    )


@refusals(
    ("order", np.arange(3), "must hold each whole number from 0 to 31 once"),
    ("order", np.zeros(COUNT, int), "must hold each whole number from 0 to 31 once"),
    ("shares", [0.5, 1.5], "must be from 0 to 1"),
    ("new", rows(1, 1, dimension=5), "equal dimensions"),
)
def test_bad_curves_are_refused(argument, value, rule):
    valid = {"old": OLD, "new": NEW, "labels": LABELS, "order": EVERY, "ks": [1]}
    refuses(
        backfill_curve,
        argument=argument,
        value=value,
        rule=rule,
        valid=valid,
        received="",
    )
