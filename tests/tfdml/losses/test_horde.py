"""HORDE: the moments of a feature map by loops, and the sum of the losses on them."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import JIT, value_and_gradient
from tfdml.layers import HighOrderMoments
from tfdml.losses import (
    ContrastiveLoss,
    HORDELoss,
    LogRatioLoss,
    MultiSimilarityLoss,
    ProxyAnchorLoss,
    TopKPrecisionLoss,
)
from tfdml.models import load_embedder

pytestmark = pytest.mark.backend

LABELS = np.array([0, 0, 1, 1, 2])


def inputs():
    random = np.random.default_rng(9)
    return random.normal(size=(5, 3)), random.normal(size=(5, 2, 2, 4))


def naive_moments(layer, embedding, maps):
    """Return all parts of the output, one image, position and order after the other."""
    factors = [ops.convert_to_numpy(v) for v in layer.factors]
    projections = [ops.convert_to_numpy(v) for v in layer.projections]
    rows = []
    for image, feature_map in zip(embedding, maps, strict=True):
        row = [image]
        for k in range(2, layer.order + 1):
            products = [
                np.prod([x @ factor for factor in factors[:k]], axis=0)
                for x in feature_map.reshape(-1, feature_map.shape[-1])
            ]
            moment = np.mean(products, axis=0) @ projections[k - 2]
            row.append(moment / np.linalg.norm(moment))
        rows.append(np.concatenate(row))
    return np.array(rows)


def test_output_is_the_embedding_and_its_moments():
    layer = HighOrderMoments(order=4, width=6, dtype="float64")
    received = ops.convert_to_numpy(layer(list(inputs())))
    # `ops.mean` computes in float32 on JAX (Keras 3.15).
    np.testing.assert_allclose(received, naive_moments(layer, *inputs()), atol=1e-6)


@pytest.mark.parametrize("compiled", JIT)
@pytest.mark.parametrize("loss", [ContrastiveLoss, TopKPrecisionLoss])
def test_value_is_the_sum_of_the_losses(loss, compiled):
    embedding, maps = inputs()
    layer = HighOrderMoments(order=4, width=6, dtype="float64")
    parts = np.split(ops.convert_to_numpy(layer([embedding, maps])), 4, axis=1)
    alone = loss(dtype="float64")
    whole = HORDELoss(alone, order=4)
    value, gradient = value_and_gradient(
        lambda x: whole(LABELS, layer([x, maps])), embedding, compiled=compiled
    )
    expected = sum(float(alone(LABELS, part)) for part in parts)
    assert value == pytest.approx(expected, rel=1e-6)
    # The moments are those of the maps alone.
    _, of_embedding = value_and_gradient(lambda x: alone(LABELS, x), embedding)
    np.testing.assert_allclose(gradient, of_embedding, atol=1e-12)


def test_config_round_trip_keeps_the_loss():
    loss = HORDELoss(MultiSimilarityLoss(negative_scale=30.0), order=3)
    stored = keras.saving.serialize_keras_object(loss)
    again = keras.saving.deserialize_keras_object(stored)
    assert again.get_config() == loss.get_config()
    assert again.loss.negative_scale == 30.0
    layer = HighOrderMoments(order=3, width=6)
    assert HighOrderMoments.from_config(layer.get_config()).get_config() == (
        layer.get_config()
    )


def network(order):
    images = keras.Input((6, 6, 3))
    maps = keras.layers.Conv2D(4, 3)(images)
    embedding = keras.layers.Dense(2)(keras.layers.GlobalAveragePooling2D()(maps))
    moments = HighOrderMoments(order=order, width=5)([embedding, maps])
    return keras.Model(images, embedding), keras.Model(images, moments)


def test_fit_trains_the_embedder_that_a_saved_model_gives_back(tmp_path):
    keras.utils.set_random_seed(0)
    embedder, model = network(3)
    images = np.random.default_rng(0).normal(size=(6, 6, 6, 3)).astype("float32")
    before = embedder.predict(images, verbose=0)
    model.compile("adam", loss=HORDELoss(MultiSimilarityLoss(), order=3))
    model.fit(images, np.repeat([0, 1, 2], 2), batch_size=6, epochs=2, verbose=0)
    after = embedder.predict(images, verbose=0)
    assert np.abs(after - before).max() > 0
    model.save(tmp_path / "model.keras")
    loaded = load_embedder(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(images, verbose=0), after, atol=1e-6)


def test_output_of_another_layer_is_refused():
    loss = HORDELoss(ContrastiveLoss(), order=3)
    embeddings = ops.ones((5, 6))
    with pytest.raises(ValueError, match=r"HORDELoss must be an embedding and its mom"):
        loss(LABELS, embeddings)
    moments = HighOrderMoments(order=3, width=4)(
        [ops.ones((5, 2)), ops.ones((5, 9, 4))]
    )
    with pytest.raises(ValueError, match=r"must be embeddings.*and its moments"):
        ContrastiveLoss()(LABELS, moments)
    with pytest.raises(ValueError, match=r"a multiple of 4 columns. Received: 6 col"):
        HORDELoss(ContrastiveLoss(), order=4)(LABELS, moments)
    assert np.isfinite(float(loss(LABELS, moments)))


@pytest.mark.parametrize("loss", [ProxyAnchorLoss(), LogRatioLoss(), "contrastive"])
def test_losses_of_other_kinds_are_refused(loss):
    with pytest.raises(TypeError, match=r"`loss` must be a loss of tfdml\.losses over"):
        HORDELoss(loss)


@pytest.mark.parametrize("value", [0, 1, 2.5, True, "3"])
def test_bad_orders_are_refused(value):
    rule = "`order` must be a whole number of at least 2"
    with pytest.raises(ValueError, match=rule):
        HighOrderMoments(order=value)
    with pytest.raises(ValueError, match=rule):
        HORDELoss(ContrastiveLoss(), order=value)


def test_inputs_without_a_feature_map_are_refused():
    with pytest.raises(ValueError, match="must be a list of an embedding"):
        HighOrderMoments(order=2, width=3)(ops.ones((2, 4)))
    with pytest.raises(ValueError, match="must be a list of an embedding"):
        HighOrderMoments(order=2, width=3)([ops.ones((2, 4)), ops.ones((2, 4))])
