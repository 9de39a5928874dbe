"""The batches that the compiled steps of each backend get."""

import keras
import numpy as np
import pytest

from tests.training.run.test_batches import batches, read_epochs
from training.run.steps import fed

pytestmark = pytest.mark.backend


class Brightness(keras.layers.Layer):
    """The mean of an image, times a weight that is trained."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, images):
        return keras.ops.mean(keras.ops.cast(images, "float32"), (1, 2, 3)) * self.scale


class Remembered(keras.metrics.Metric):
    """A number of all labels that steps got, in their order."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.number = self.add_variable((), "zeros", name="number")

    def update_state(self, y_true, y_pred, sample_weight=None):
        y = keras.ops.reshape(keras.ops.cast(y_true, "float32"), (4,))
        places = np.arange(1, 5, dtype="float32")
        self.number.assign(
            keras.ops.mod(3 * self.number.value + keras.ops.sum(y * places), 1009)
        )

    def result(self):
        return 1 * self.number

    def reset_state(self):
        """Keep the number over all epochs."""


@pytest.mark.parametrize(("first", "epochs"), [(0, 2), (1, 4)])
def test_steps_get_every_batch_of_the_run_in_order(first, epochs):
    dataset = batches(3)
    inputs = keras.Input((8, 8, 3), dtype="uint8")
    model = keras.Model(inputs, Brightness()(inputs))
    model.compile("sgd", loss="mse", metrics=[Remembered(name="seen")])
    begin = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: dataset.begin_at(epoch)
    )
    history = model.fit(
        **fed(model, dataset, first),
        initial_epoch=first,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[begin],
    )
    expected = 0.0
    for _, labels in read_epochs(batches(3), epochs - first, first=first):
        weighed = np.sum(labels * np.arange(1, 5))
        expected = (3 * expected + weighed) % 1009
    assert history.history["seen"][-1] == expected


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="its dataset")
def test_dataset_has_no_thread_whose_end_a_run_would_wait_for():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten()])
    model.compile("sgd", "mse")
    assert not fed(model, batches(3), 0)["x"].options().autotune.enabled
