"""Every loss in a model: training, mixed precision, masks, saving and loading."""

import functools
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import layers, ops

from tests.support.all_losses import ENTRIES, QUICK, every_loss
from tests.support.autodiff import BACKEND
from tests.support.loss_entry import DIMENSION, batch, rebuilt
from tests.support.losses_model import built, evaluated, labels_of
from tfdml.losses import MultiSimilarityLoss

pytestmark = [pytest.mark.backend, pytest.mark.slow, pytest.mark.jax]

# What is traced, compiled and cast does not depend on the arguments of a loss.
ONE_PER_CLASS = tuple(name for name in ENTRIES if "-" not in name)
# There all is compiled once more, for another shape or in another process.
full_on_jax = pytest.mark.full if BACKEND == "jax" else pytest.mark.slow


def with_one_more(labels, inputs):
    """Add a row to a batch of 16."""
    return np.append(labels, 3), np.append(inputs, inputs[:1], axis=0)


@functools.cache
def trained(policy, jit_compile, names):
    """Train losses on two batches; return what the model showed and has learned."""
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(policy)
    try:
        model = built(names)
        optimizer = keras.optimizers.Adam(0.01)
        if policy == "mixed_float16":
            # Its default of 2^15 makes the first steps of most models too large.
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, 128)
        model.compile(
            optimizer,
            loss={name: ENTRIES[name].loss for name in names},
            jit_compile=jit_compile or BACKEND == "jax",
        )
        optimizer.build(model.trainable_variables)
        before = [ops.convert_to_numpy(w) for w in model.trainable_variables]
        labels, inputs = batch()
        order = np.random.default_rng(1).permutation(16)
        shown, expected = [], []
        for y, x in ((labels, inputs), (labels[order], 0.5 * inputs[order] + 0.3)):
            outputs = model.predict(x, batch_size=16, verbose=0)
            if not shown:
                # It makes the variables of its means here, not in what `fit` traces,
                # which Keras 3.15 on TensorFlow would trace once more.
                model.compute_loss(x, labels_of(model, y), outputs)
            # Keras 3.15 on torch keeps bfloat16 arrays whatever type is asked for.
            outputs = {n: a.astype("float32") for n, a in outputs.items()}
            expected.append({n: float(ENTRIES[n].loss(y, outputs[n])) for n in names})
            if policy == "float32":
                # A row that no step reaches: TensorFlow traces the step for batches of
                # any size, as for a last batch of one row. Those of the other policies
                # are of 16 rows.
                y, x = with_one_more(y, x)
            history = model.fit(
                x,
                labels_of(model, y),
                batch_size=16,
                shuffle=False,
                steps_per_epoch=1,
                verbose=0,
            )
            shown.append(history.history)
    finally:
        keras.config.set_dtype_policy("float32")
    moved = {
        variable.path: np.any(ops.convert_to_numpy(variable) != old)
        and np.all(np.isfinite(ops.convert_to_numpy(variable)))
        for variable, old in zip(model.trainable_variables, before, strict=True)
    }
    return model, shown, expected, moved


@full_on_jax
def test_last_batch_of_one_row_is_finite():
    # It comes before the other policies: to set a seed makes TensorFlow forget what it
    # has compiled.
    model = trained("float32", False, ONE_PER_CLASS)[0]
    labels, inputs = with_one_more(*batch())
    history = model.fit(inputs, labels_of(model, labels), batch_size=16, verbose=0)
    wrong = [
        name for name, (value,) in history.history.items() if not np.isfinite(value)
    ]
    assert not wrong


def trained_with(name, policy):
    """The losses of one model: all, or in half precision one of each family."""
    if policy == "float32":
        return ONE_PER_CLASS
    return tuple(x for x in ONE_PER_CLASS if (x in QUICK) == (name in QUICK))


RUNS = [
    pytest.param(name, policy, jit_compile, marks=[pytest.mark.full] * is_rare)
    for name in ONE_PER_CLASS
    for policy, jit_compile, is_rare in (
        ("float32", False, False),
        ("mixed_float16", False, BACKEND == "jax" or name not in QUICK),
        # JAX compiles always, torch never.
        ("mixed_bfloat16", BACKEND == "tensorflow", True),
    )
]
# All of one model one after the other: a seed makes TensorFlow forget what it compiled.
RUNS.sort(key=lambda run: (run.values[1], run.values[0] in QUICK))


@pytest.mark.parametrize(("name", "policy", "jit_compile"), RUNS)
def test_fit_trains_on_two_batches_in_a_row(name, policy, jit_compile):
    model, shown, expected, moved = trained(
        policy, jit_compile, trained_with(name, policy)
    )
    # Prediction and training may round to half precision at different places, and a
    # small loss is a difference of distances near 1, which bfloat16 rounds to 2^-8.
    tolerance = {
        "float32": {"rel": 1e-4},
        "mixed_float16": {"rel": 0.03},
        "mixed_bfloat16": {"rel": 0.03, "abs": 2**-8},
    }[policy]
    for step in range(2):
        value = shown[step][f"{name}_loss"][0]
        assert value == pytest.approx(expected[step][name], **tolerance)
    assert expected[0][name] != 0
    branch = keras.Model(model.input, model.output[name])
    assert branch.trainable_variables
    assert all(moved[variable.path] for variable in branch.trainable_variables)


@full_on_jax
def test_model_is_loaded_with_its_losses_in_a_fresh_process(tmp_path):
    model = trained("float32", False, ONE_PER_CLASS)[0]
    model.save(tmp_path / "model.keras")
    command = [sys.executable, "-m", "tests.support.losses_model", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found["evaluated"] == pytest.approx(evaluated(model, True), rel=1e-5)
    for name, config in found["configs"].items():
        assert config == json.loads(json.dumps(ENTRIES[name].loss.get_config())), name
    assert len(found["configs"]) == len(ONE_PER_CLASS)


@every_loss()
def test_config_round_trip_keeps_every_argument(entry):
    changed = rebuilt(entry.loss, dtype="float16", name="mine", reduction="sum")
    again = rebuilt(changed)
    assert again.get_config() == changed.get_config()
    assert (again.dtype, again.name, again.reduction) == ("float16", "mine", "sum")
    pairs = [(entry.loss.get_config(), changed.get_config())]
    if "reduction" not in pairs[0][0]:  # a wrapper has that of its loss
        pairs.append(tuple(config.pop("loss")["config"] for config in pairs[0]))
    for before, after in pairs:
        for name in before.keys() - {"dtype", "name", "reduction"}:
            assert after[name] == before[name]


def masked_model(*before_the_last):
    return keras.Sequential([*before_the_last, layers.Dense(4)])


@every_loss()
def test_mask_of_rows_is_refused(entry):
    labels, embeddings = batch()
    outputs = ops.convert_to_tensor(entry.outputs(embeddings))
    outputs._keras_mask = ops.ones((16,), "bool")
    with pytest.raises(ValueError, match="must not carry a Keras mask"):
        entry.loss(labels, outputs)


def test_mask_of_rows_is_refused_in_fit():
    labels, inputs = batch()
    model = masked_model(keras.Input((DIMENSION,)), layers.Masking())
    model.compile("sgd", loss=MultiSimilarityLoss())
    with pytest.raises(ValueError, match="must not carry a Keras mask"):
        model.fit(inputs, labels, batch_size=16, verbose=0)


def test_mask_of_steps_that_pooling_ends_is_no_mask_of_rows():
    labels, inputs = batch()
    steps = np.stack([inputs, np.zeros_like(inputs), inputs[::-1]], axis=1)
    pooled = layers.GlobalAveragePooling1D()
    model = masked_model(keras.Input((3, DIMENSION)), layers.Masking(), pooled)
    loss = MultiSimilarityLoss()
    model.compile("sgd", loss=loss)
    embeddings = model.predict(steps, verbose=0)
    history = model.fit(steps, labels, batch_size=16, verbose=0)
    expected = float(loss(labels, embeddings))
    assert history.history["loss"][0] == pytest.approx(expected, rel=1e-5)
    # Pooling left the masked step out.
    kernel, bias = model.get_weights()
    mean = (inputs + inputs[::-1]) / 2
    np.testing.assert_allclose(
        model.predict(steps, verbose=0), mean @ kernel + bias, 1e-4
    )
