"""The loss of hierarchical average precision against its definition."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, slow_on_jax
from tests.support.loss_entry import rebuilt
from tests.support.ranked_batches import (
    apart,
    batch,
    check_gradient,
    check_values,
    sigmoid,
    similarities,
)
from tfdml.losses import HierarchicalAPLoss, SupAPLoss

pytestmark = [pytest.mark.backend, *slow_on_jax]

COMPILED = {"tensorflow": [False, True], "jax": [True], "torch": [False]}[BACKEND]
LOSS = HierarchicalAPLoss(1.5, temperature=0.1, slope=3.0, delta=0.3)


def paths(seed, size=12, levels=3):
    """A tree whose ids are those of a node among its siblings."""
    labels = np.random.default_rng(seed).integers(0, 2, (size, levels))
    labels[-1] = 9  # alone on every level
    return labels


def depth(path, other):
    """How many ids two paths share from the coarsest on."""
    shared = 0
    while shared < len(path) and path[shared] == other[shared]:
        shared += 1
    return shared


def steep(x):
    """H of SupAP, with the arguments of `LOSS`."""
    if x <= 0:
        return sigmoid(x, 0.1)
    return sigmoid(min(x, 0.3), 0.1) + 0.5 + 3 * max(0, x - 0.3)


def naive(labels, s, alpha=1.5):
    """1 - H-AP of each anchor with relevant candidates, candidate by candidate."""
    values = np.zeros(len(labels))
    for a in range(len(labels)):
        others = [i for i in range(len(labels)) if i != a]
        level = {i: depth(labels[a], labels[i]) for i in others}
        number = {n: sum(level[i] == n for i in others) for n in level.values()}
        rel = {
            i: (level[i] / labels.shape[1]) ** alpha / number[level[i]] for i in others
        }
        relevant = [i for i in others if level[i] > 0]
        if not relevant:
            continue
        total = 0.0
        for i in relevant:
            rest = [j for j in others if j != i]
            hierarchical = rel[i] + sum(
                min(rel[i], rel[j]) for j in rest if level[j] and s[a, j] >= s[a, i]
            )
            rank = 1 + sum(
                float(s[a, j] >= s[a, i])
                if level[j] >= level[i]
                else steep(s[a, j] - s[a, i])
                for j in rest
            )
            total += hierarchical / rank
        values[a] = 1 - total / sum(rel[i] for i in relevant)
    return values


def relevant_anchors(labels):
    return sum((labels[:, 0] == label).sum() > 1 for label in labels[:, 0])


@pytest.mark.parametrize(
    "levels", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 5))]
)
def test_values_are_those_of_the_definition(levels):
    for seed in range(2):
        labels, embeddings = paths(seed, levels=levels), apart(batch(seed)[1])
        anchors = relevant_anchors(labels)
        check_values(LOSS, naive, labels, embeddings, anchors=anchors)


@pytest.mark.slow
@pytest.mark.jax
@pytest.mark.parametrize("compiled", COMPILED)
def test_gradients_are_the_slopes_of_the_definition(compiled):
    labels, embeddings = paths(3), apart(batch(7)[1])
    weights = np.linspace(0.2, 1.7, len(labels))

    def definition(x):
        total = (naive(labels, similarities(x)) * weights).sum()
        return float(total / relevant_anchors(labels))

    check_gradient(LOSS, definition, labels, embeddings, compiled=compiled)


def test_with_one_level_it_is_sup_ap():
    labels, embeddings = batch(1)
    expected = float(SupAPLoss(0.1, slope=3.0, delta=0.3)(labels, embeddings))
    for given in (labels, labels[:, None], labels.astype("float32").tolist()):
        assert float(LOSS(given, embeddings)) == pytest.approx(expected, rel=1e-6)


def test_ids_below_another_parent_are_not_shared():
    """Armchair 0 of the chairs is no desk 0 of the tables."""
    embeddings = batch(2)[1]
    among_siblings = paths(4)
    names = {path: i for i, path in enumerate(sorted(set(map(tuple, among_siblings))))}
    whole = among_siblings.copy()
    whole[:, 2] = [names[tuple(path)] for path in among_siblings]
    expected = float(LOSS(among_siblings, embeddings))
    assert float(LOSS(whole, embeddings)) == pytest.approx(expected, rel=1e-6)


def test_a_near_miss_costs_less_than_a_far_one():
    labels = np.array([[0, 0], [0, 0], [0, 1], [1, 2]])
    angles = np.array([0.0, 0.5, 0.2, 1.2])
    loss = rebuilt(LOSS, reduction=None)

    def value(angles):
        rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype("float32")
        return float(ops.convert_to_numpy(loss(labels, rows))[0])

    ordered, near, far = angles[[0, 2, 1, 3]], angles, angles[[0, 1, 3, 2]]
    assert value(ordered) < value(near) < value(far)


def test_fit_takes_labels_of_several_levels():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    model.compile("sgd", loss=HierarchicalAPLoss())
    embeddings = batch(0)[1].astype("float32")
    history = model.fit(embeddings, paths(0), batch_size=12, epochs=1, verbose=0)
    assert history.history["loss"][0] > 0


@pytest.mark.parametrize(
    ("labels", "rule"),
    [
        (np.zeros((12, 17), int), r"at most 16 levels\. Received: shape=\(12, 17\)"),
        (np.zeros((12, 0), int), r"shape \[batch, levels\]"),
        (np.zeros((12, 2, 2), int), r"shape \[batch, levels\]"),
        (np.zeros((11, 2), int), "equally many rows"),
        (np.full((12, 2), 0.5), "must be whole numbers"),
        (np.full((12, 2), "a"), "must be whole numbers"),
    ],
)
def test_labels_are_refused(labels, rule):
    with pytest.raises(ValueError, match=rule):
        LOSS(labels, batch(0)[1])


def test_a_batch_without_a_common_id_is_warned_of_once():
    labels = np.arange(12)[:, None] * [1, 0]
    loss = rebuilt(LOSS)
    with pytest.warns(UserWarning, match="no positive pair"):
        assert float(loss(labels, batch(0)[1])) == 0
