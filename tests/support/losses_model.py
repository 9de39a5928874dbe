"""One model that many losses train, each a branch of its own.

`python -m tests.support.losses_model FOLDER` loads the saved model of a folder and
writes what it finds.
"""

import json
import sys
from pathlib import Path

import keras
import numpy as np

from tests.support.all_losses import ENTRIES
from tests.support.loss_entry import DIMENSION, batch


def built(names: list[str]) -> keras.Model:
    """Return a model with a dense layer, and the head of the loss, for each name."""
    inputs = keras.Input((DIMENSION,))
    outputs = {}
    for name in names:
        x = keras.layers.Dense(DIMENSION, use_bias=False)(inputs)
        head = ENTRIES[name].make_head
        x = x if head is None else head()(x)
        # A cast would hide from the loss that a head made its input.
        passed = keras.layers.Identity(name=name, dtype=head and "float32")
        outputs[name] = passed(x)
    return keras.Model(inputs, outputs)


def labels_of(model: keras.Model, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return the labels of a batch for every output."""
    return dict.fromkeys(model.output, labels)


def evaluated(model: keras.Model, eagerly: bool) -> dict[str, float]:
    """Return the loss of each output on the common batch."""
    model.run_eagerly = eagerly
    labels, inputs = batch()
    labels = labels_of(model, labels)
    return model.evaluate(inputs, labels, batch_size=16, verbose=0, return_dict=True)


def main(folder: Path) -> None:
    """Write the losses of a loaded model, and how they are configured."""
    model = keras.saving.load_model(folder / "model.keras")
    configs = {name: loss.get_config() for name, loss in model.loss.items()}
    # For one batch TensorFlow traces longer than it computes; JAX compiles each
    # operation that this process has not seen.
    eagerly = keras.backend.backend() != "jax"
    found = {"evaluated": evaluated(model, eagerly), "configs": configs}
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
