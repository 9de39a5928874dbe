"""Averages of the weights: what validation and the saved model have."""

import keras
import numpy as np
import pytest

from training.recipe.recipe import Fit
from training.run.averages import OnAverages, averaged, take_averages
from training.run.build_optimizer import build_optimizer

pytestmark = [pytest.mark.backend, pytest.mark.slow, pytest.mark.jax]

X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
Y = np.random.default_rng(1).normal(size=(8, 2)).astype("float32")


def compiled(*, half=False, **fit):
    keras.utils.set_random_seed(0)
    layers = [keras.Input((3,)), keras.layers.Dense(2)]
    model = keras.Sequential([*layers, keras.layers.BatchNormalization()])
    settings = {"schedule": "constant", "learning_rate": 0.1, "ema_momentum": 0.8}
    optimizer = build_optimizer(Fit(**{**settings, **fit}))
    if half:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer=optimizer, loss="mse")
    return model


def trainable(model):
    return [np.array(keras.ops.convert_to_numpy(v)) for v in model.trainable_variables]


@pytest.mark.parametrize("half", [False, True])
def test_averages_weigh_the_steps_by_the_momentum(half):
    model = compiled(half=half)
    expected = None
    for _ in range(4):
        model.train_on_batch(X, Y)
        now = trainable(model)
        expected = (
            [0.8 * a + 0.2 * b for a, b in zip(expected, now, strict=True)]
            if expected
            else now
        )
    statistics = keras.ops.convert_to_numpy(model.non_trainable_variables[0])
    with averaged(model):
        received = trainable(model)
        model.predict(X, verbose=0)
        kept = keras.ops.convert_to_numpy(model.non_trainable_variables[0])
    for a, b in zip(received, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(kept, statistics)
    for a, b in zip(trainable(model), now, strict=True):
        np.testing.assert_array_equal(a, b)


def test_training_goes_on_with_the_weights_themselves():
    models = [compiled(), compiled(ema_momentum=0.0)]

    class Predict(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.predict(X, verbose=0)

    seen = []
    for model in models:
        note = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs, model=model: seen.append(trainable(model))
        )
        model.fit(
            X,
            Y,
            epochs=3,
            shuffle=False,
            verbose=0,
            callbacks=[OnAverages(Predict()), note],
        )
    for a, b in zip(seen[2], seen[5], strict=True):
        np.testing.assert_array_equal(a, b)


def test_callback_on_averages_sees_them_and_adds_to_the_logs():
    model = compiled()
    seen = []

    class Evaluate(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(trainable(self.model))
            logs["val_it"] = 1.0

    history = model.fit(
        X, Y, epochs=3, verbose=0, callbacks=[OnAverages(Evaluate())]
    ).history
    assert history["val_it"] == [1.0, 1.0, 1.0]
    # `fit` itself ends with the averages in the model.
    for a, b in zip(seen[-1], trainable(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_model_without_averages_or_steps_is_left_as_it_is():
    for model in (compiled(ema_momentum=0.0), compiled()):
        model.optimizer.build(model.trainable_variables)
        before = trainable(model)
        take_averages(model)
        for a, b in zip(trainable(model), before, strict=True):
            np.testing.assert_array_equal(a, b)
