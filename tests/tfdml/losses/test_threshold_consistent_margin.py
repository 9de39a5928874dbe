"""The threshold-consistent margin: naive means over the hard pairs, around a loss."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import JIT, value_and_gradient
from tfdml.layers import Proxies
from tfdml.losses import (
    BIERLoss,
    ContrastiveLoss,
    LogRatioLoss,
    MatryoshkaLoss,
    MultiSimilarityLoss,
    ProxyAnchorLoss,
    ThresholdConsistentMarginLoss,
)

pytestmark = pytest.mark.backend

LABELS = np.array([0, 0, 0, 1, 1, 2])


def rows():
    return np.random.default_rng(8).normal(size=(6, 3)) + 0.7


def naive(labels, embeddings, positive_margin=0.9, negative_margin=0.5):
    """Return both means, over all ordered pairs."""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    near, far = [], []
    for i in range(len(labels)):
        for j in range(len(labels)):
            score = unit[i] @ unit[j]
            if i == j:
                continue
            if labels[i] == labels[j] and score <= positive_margin:
                near.append(positive_margin - score)
            if labels[i] != labels[j] and score >= negative_margin:
                far.append(score - negative_margin)
    return [np.mean(costs) if costs else 0.0 for costs in (near, far)]


@pytest.mark.parametrize("compiled", JIT)
@pytest.mark.parametrize(
    "margins",
    [
        {},
        {"positive_margin": 0.2, "negative_margin": 0.9},
        {"positive_margin": -1.0, "negative_margin": 1.0},
    ],
)
def test_value_is_that_of_the_loop(margins, compiled):
    x = rows()
    near, far = naive(LABELS, x, **margins)
    loss = ThresholdConsistentMarginLoss(
        positive_weight=2.0, negative_weight=0.5, dtype="float64", **margins
    )
    value, gradient = value_and_gradient(
        lambda x: loss(LABELS, x), x, compiled=compiled
    )
    assert value == pytest.approx(2 * near + 0.5 * far, rel=1e-9)
    assert np.isfinite(gradient).all()
    assert gradient.any() == (value > 0)


def test_it_is_added_to_the_loss():
    x = rows()
    alone = MultiSimilarityLoss(dtype="float64")
    loss = ThresholdConsistentMarginLoss(alone, dtype="float64")
    expected = float(alone(LABELS, x)) + sum(naive(LABELS, x))
    assert float(loss(LABELS, x)) == pytest.approx(expected, rel=1e-9)
    nested = MatryoshkaLoss(loss, dimensions=(2, 3))
    expected += float(alone(LABELS, x[:, :2])) + sum(naive(LABELS, x[:, :2]))
    assert float(nested(LABELS, x)) == pytest.approx(expected, rel=1e-9)


def test_lengths_count_where_they_count_for_the_loss():
    raw = ThresholdConsistentMarginLoss(ContrastiveLoss(normalize=False))
    assert raw.compares_lengths
    assert not ThresholdConsistentMarginLoss(ContrastiveLoss()).compares_lengths


@pytest.mark.slow
def test_proxies_train_beside_it():
    """One output of embeddings has the margin, the other the proxies."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((3,))
    embeddings = keras.layers.Dense(4)(inputs)
    outputs = {"proxies": Proxies(3)(embeddings), "margin": embeddings}
    model = keras.Model(inputs, outputs)
    losses = {"proxies": ProxyAnchorLoss(), "margin": ThresholdConsistentMarginLoss()}
    model.compile("adam", loss=losses)
    x = rows().astype("float32")
    history = model.fit(
        x, dict.fromkeys(outputs, LABELS), batch_size=6, verbose=0
    ).history
    assert np.isfinite(history["loss"]).all()
    expected = history["proxies_loss"][0] + history["margin_loss"][0]
    assert history["loss"][0] == pytest.approx(expected, rel=1e-5)


def test_config_round_trip_keeps_the_loss():
    for alone in (None, MultiSimilarityLoss(negative_scale=30.0)):
        loss = ThresholdConsistentMarginLoss(alone, positive_margin=0.8)
        stored = keras.saving.serialize_keras_object(loss)
        again = keras.saving.deserialize_keras_object(stored)
        assert again.get_config() == loss.get_config()
        assert type(again.loss) is type(alone)


@pytest.mark.parametrize(
    "loss",
    [
        ProxyAnchorLoss(),
        LogRatioLoss(),
        BIERLoss([2, 1]),
        MatryoshkaLoss(ContrastiveLoss()),
        "contrastive",
    ],
)
def test_losses_of_other_kinds_are_refused(loss):
    with pytest.raises(TypeError, match=r"`loss` must be a loss of tfdml\.losses over"):
        ThresholdConsistentMarginLoss(loss)


def test_batch_without_hard_pairs_adds_nothing():
    x = np.repeat(np.eye(3), [3, 2, 1], axis=0)
    loss = ThresholdConsistentMarginLoss(reduction=None)
    assert not ops.convert_to_numpy(loss(LABELS, x)).any()
