"""Callbacks get arrays or numbers, as they say."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from training import environment
from training.run.without_waiting import WithoutWaiting

pytestmark = pytest.mark.backend


class Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen, self.epochs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append((batch, logs["loss"]))

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(logs["loss"])


class SeenAsArrays(Seen):
    takes_arrays = True


def test_callbacks_get_what_they_take():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    x, y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")
    numbers, arrays = Seen(), SeenAsArrays()
    callbacks = WithoutWaiting([numbers, arrays], model, epochs=2, steps=4)
    history = model.fit(x, y, batch_size=2, epochs=2, verbose=0, callbacks=callbacks)
    assert [batch for batch, _ in numbers.seen] == [0, 1, 2, 3] * 2
    assert all(type(loss) is float for _, loss in numbers.seen)
    assert not any(isinstance(loss, float) for _, loss in arrays.seen)
    assert [float(loss) for _, loss in arrays.seen] == [
        loss for _, loss in numbers.seen
    ]
    assert history.history["loss"] == numbers.epochs == arrays.epochs
    assert callbacks.params["steps"] == 4


def test_callback_without_steps_costs_no_number():
    class Unreadable:
        def __float__(self):
            raise AssertionError

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    epochs = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None)
    callbacks = WithoutWaiting([epochs, SeenAsArrays()], model, epochs=1, steps=1)
    callbacks.on_train_batch_end(0, {"loss": Unreadable()})


def test_compiled_code_is_kept_for_a_gpu_alone(monkeypatch, tmp_path):
    jax = pytest.importorskip("jax")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    updated = {}
    config = SimpleNamespace(
        jax_compilation_cache_dir=None,
        update=lambda name, value: updated.update({name: value}),
    )
    monkeypatch.setattr(jax, "config", config)
    monkeypatch.setattr(environment.keras.backend, "backend", lambda: "jax")
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    environment.keep_compiled()
    assert not updated
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    environment.keep_compiled()
    assert updated["jax_compilation_cache_dir"] == str(tmp_path / "tfdml" / "jax")
    updated.clear()
    config.jax_compilation_cache_dir = "mine"
    environment.keep_compiled()
    assert not updated
