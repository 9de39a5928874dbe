"""The pairwise sigmoid loss: a naive loop, and the scale and bias that are learned."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import JIT, value_and_gradient
from tests.support.refuses import refusals, refuses
from tfdml.layers import ScaleAndBias
from tfdml.losses import LearnedPairwiseSigmoidLoss, PairwiseSigmoidLoss

pytestmark = pytest.mark.backend

LABELS = np.array([0, 0, 1, 1, 2, 0])


def rows():
    return np.random.default_rng(6).normal(size=(6, 4))


def naive(labels, embeddings, scale, bias):
    """Add the costs of all pairs of an anchor, one after the other."""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    values = []
    for i in range(len(labels)):
        value = 0.0
        for j in range(len(labels)):
            if i != j:
                z = 1 if labels[i] == labels[j] else -1
                logit = scale * (unit[i] @ unit[j]) + bias
                value += np.logaddexp(0, -z * logit)
        values.append(value)
    return values


@pytest.mark.parametrize(("scale", "bias"), [(10.0, -10.0), (3.0, 1.5)])
def test_value_is_that_of_the_loop(scale, bias):
    x = rows()
    expected = naive(LABELS, x, scale, bias)
    options = {"reduction": None, "dtype": "float64"}
    fixed = PairwiseSigmoidLoss(scale, bias=bias, **options)
    values = ops.convert_to_numpy(fixed(LABELS, x))
    np.testing.assert_allclose(values, expected, rtol=1e-9)
    outputs = ScaleAndBias(scale, bias, dtype="float64")(x)
    learned = LearnedPairwiseSigmoidLoss(**options)
    values = ops.convert_to_numpy(learned(LABELS, outputs))
    np.testing.assert_allclose(values, expected, rtol=1e-6)  # log t is a float32 on JAX


@pytest.mark.parametrize("compiled", JIT)
def test_gradient_reaches_scale_and_bias(compiled):
    x = rows()
    loss = LearnedPairwiseSigmoidLoss(dtype="float64")
    both = np.array([math.log(10.0), -10.0])

    def value(both):
        columns = ops.broadcast_to(both, (6, 2))
        outputs = ops.concatenate([ops.convert_to_tensor(x), columns], axis=1)
        return ops.mean(loss.call(ops.convert_to_tensor(LABELS), outputs))

    _, gradient = value_and_gradient(value, both, compiled=compiled)
    step = 1e-5
    for place in range(2):
        ends = []
        for sign in (1, -1):
            moved = both.copy()
            moved[place] += sign * step
            ends.append(np.mean(naive(LABELS, x, np.exp(moved[0]), moved[1])))
        slope = (ends[0] - ends[1]) / (2 * step)
        assert gradient[place] == pytest.approx(slope, rel=1e-5)


@pytest.mark.slow
def test_fit_learns_scale_and_bias_and_leaves_the_embedder(tmp_path):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    embeddings = keras.layers.Dense(3)(inputs)
    layer = ScaleAndBias()
    model = keras.Model(inputs, layer(embeddings))
    assert model.output_shape == (None, 5)
    model.compile(keras.optimizers.Adam(0.1), loss=LearnedPairwiseSigmoidLoss())
    before = float(layer.scale), float(layer.bias)
    assert before == pytest.approx((10.0, -10.0))
    x = rows().astype("float32")
    model.fit(x, LABELS, batch_size=6, epochs=3, verbose=0)
    assert abs(float(layer.scale) - before[0]) > 0.1
    assert abs(float(layer.bias) - before[1]) > 0.1
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert float(loaded.layers[-1].bias) == float(layer.bias)
    assert loaded.layers[-1].get_config() == layer.get_config()


def test_output_of_another_layer_is_refused():
    x = ops.convert_to_tensor(rows())
    with pytest.raises(ValueError, match=r"End the model with `ScaleAndBias\(\)`"):
        LearnedPairwiseSigmoidLoss()(LABELS, x)
    with pytest.raises(ValueError, match=r"must be embeddings.*scale and bias"):
        PairwiseSigmoidLoss()(LABELS, ScaleAndBias()(x))
    with pytest.raises(ValueError, match="Received: outputs of 2 columns"):
        LearnedPairwiseSigmoidLoss()(LABELS, rows()[:, :2])


@refusals(
    ("scale", 0.0, "must be from 0.0001 to 10000"),
    ("scale", True, "must be from 0.0001 to 10000"),
    ("bias", float("nan"), "must be finite"),
    ("bias", "low", "must be finite"),
)
def test_bad_arguments_of_the_layer_are_refused(argument, value, rule):
    refuses(ScaleAndBias, argument=argument, value=value, rule=rule)
