"""Cross-batch memory against a plain list of past embeddings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, JIT, value_and_gradient
from tfdml.losses import MetricLoss, PairLoss, TopKPrecisionLoss
from tfdml.models import CrossBatchMemory
from tfdml.ops import cosine_similarities

pytestmark = [pytest.mark.backend, pytest.mark.slow]

numpy = ops.convert_to_numpy
ROOT = Path(__file__).parents[3]


@keras.saving.register_keras_serializable(package="tests")
class SumLoss(PairLoss):
    """Every pair counts: sum_neg (S + 1)^2 + sum_pos (1 - S)."""

    def pair_loss(self, scores, positives, negatives):
        right = ops.where(positives, 1 - scores, 0)
        wrong = ops.where(negatives, ops.square(scores + 1), 0)
        return ops.sum(right + wrong, axis=1)


def naive_loss(labels, x, past_labels, past):
    """The mean over the batch, by a loop over all pairs."""
    unit, others = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for rows in (x, np.concatenate([x, past]))
    )
    other_labels = np.concatenate([labels, past_labels])
    total = 0.0
    for i in range(len(labels)):
        for j in range(len(others)):
            score = unit[i] @ others[j]
            if j != i and labels[i] == other_labels[j]:
                total += 1 - score
            elif j != i:
                total += (score + 1) ** 2
    return total / len(labels)


def batches(*sizes, classes=3, seed=0):
    generator = np.random.default_rng(seed)
    return [
        (
            generator.normal(size=(size, 5)).astype("float32"),
            generator.integers(0, classes, size),
        )
        for size in sizes
    ]


def memory_model(size=8, loss=None, rate=0.0, jit_compile=False, **arguments):
    keras.utils.set_random_seed(3)
    inputs = keras.Input((5,))
    embedder = keras.Model(inputs, keras.layers.Dense(4)(inputs))
    model = CrossBatchMemory(embedder, size, **arguments)
    model.compile(
        keras.optimizers.SGD(rate), loss=loss or SumLoss(), jit_compile=jit_compile
    )
    return model


def step(model, x, labels, **arguments):
    """Train one step and return the loss that `fit` reports."""
    history = model.fit(
        x, labels, batch_size=len(x), shuffle=False, verbose=0, **arguments
    )
    return history.history["loss"][0]


def contents(model):
    count = int(numpy(model.filled))
    return numpy(model.past_labels)[:count], numpy(model.past_embeddings)[:count]


@pytest.mark.parametrize("jit_compile", JIT)
def test_each_step_compares_with_the_batches_before(jit_compile):
    model = memory_model(size=9, jit_compile=jit_compile)
    past_labels, past = np.zeros(0, int), np.zeros((0, 4))
    for x, labels in batches(4, 4, 3, 4, 4):
        embeddings = model.predict(x, verbose=0)
        expected = naive_loss(labels, embeddings, past_labels, past)
        assert step(model, x, labels) == pytest.approx(expected, rel=1e-5)
        past_labels = np.concatenate([labels, past_labels])[:9]
        past = np.concatenate([embeddings, past])[:9]
        np.testing.assert_array_equal(contents(model)[0], past_labels)
        np.testing.assert_allclose(contents(model)[1], past, rtol=1e-5)


def test_empty_memory_gives_the_plain_loss_and_update():
    x, labels = batches(8)[0]
    model = memory_model(rate=0.1)
    plain = keras.models.clone_model(model.embedder)
    plain.set_weights(model.embedder.get_weights())
    plain.compile(keras.optimizers.SGD(0.1), loss=SumLoss())
    assert step(model, x, labels) == pytest.approx(step(plain, x, labels))
    for received, expected in zip(
        model.embedder.get_weights(), plain.get_weights(), strict=True
    ):
        np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-6)


def test_past_embeddings_are_constants_of_the_update():
    (first, first_labels), (x, labels) = batches(6, 6)
    model = memory_model()
    step(model, first, first_labels)
    past_labels, past = contents(model)
    kernel, bias = model.embedder.get_weights()
    gallery_labels = np.concatenate([labels, past_labels])
    same = labels[:, None] == gallery_labels
    other = np.arange(6)[:, None] != np.arange(12)

    def loss(kernel):
        embeddings = ops.matmul(x, kernel) + ops.convert_to_tensor(bias)
        gallery = ops.concatenate([embeddings, ops.convert_to_tensor(past)])
        scores = cosine_similarities(embeddings, gallery)
        return ops.mean(SumLoss().pair_loss(scores, same & other, ~same))

    _, gradient = value_and_gradient(loss, kernel)
    model.optimizer.learning_rate = 0.1
    step(model, x, labels)
    np.testing.assert_allclose(
        model.embedder.get_weights()[0], kernel - 0.1 * gradient, atol=1e-5
    )


def test_memory_fills_but_is_not_used_while_warming_up():
    model = memory_model(warmup_steps=2)
    steps = batches(4, 4, 4)
    empty = np.zeros(0, int), np.zeros((0, 4))
    for x, labels in steps[:2]:
        expected = naive_loss(labels, model.predict(x, verbose=0), *empty)
        assert step(model, x, labels) == pytest.approx(expected, rel=1e-5)
    assert int(numpy(model.filled)) == 8
    x, labels = steps[2]
    expected = naive_loss(labels, model.predict(x, verbose=0), *contents(model))
    assert step(model, x, labels) == pytest.approx(expected, rel=1e-5)
    assert int(numpy(model.steps_seen)) == 2  # counted no further


def test_batch_larger_than_the_memory_is_kept_in_part():
    model = memory_model(size=3)
    x, labels = batches(5)[0]
    step(model, x, labels)
    np.testing.assert_array_equal(contents(model)[0], labels[:3])
    assert np.isfinite(step(model, x, labels))


def test_last_short_batch_is_remembered_too():
    model = memory_model(size=20)
    x, labels = batches(7)[0]
    model.fit(x, labels, batch_size=4, epochs=2, verbose=0)
    assert int(numpy(model.filled)) == 14
    assert sorted(contents(model)[0]) == sorted([*labels, *labels])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_large_class_ids_stay_apart(dtype):
    expected, received = memory_model(), memory_model()
    for x, labels in batches(4, 4):
        classes = (labels % 2).astype(dtype)
        large = classes + np.array(2**24, dtype)
        assert step(received, x, large) == step(expected, x, classes)
    assert set(contents(received)[0]) == {2**24, 2**24 + 1}


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_labels_may_be_of_any_whole_type_and_a_column(dtype):
    expected, received = memory_model(), memory_model()
    for x, labels in batches(4, 4):
        column = labels.astype(dtype)[:, None]
        assert step(received, x, column) == step(expected, x, labels)


def test_evaluation_is_the_plain_loss_and_leaves_the_memory():
    (x, labels), (other, other_labels) = batches(6, 6)
    model = memory_model()
    step(model, x, labels)
    before = [w.copy() for w in model.get_weights()]
    value = model.evaluate(other, other_labels, batch_size=6, verbose=0)
    embeddings = model.predict(other, verbose=0)
    expected = naive_loss(other_labels, embeddings, labels[:0], embeddings[:0])
    assert value == pytest.approx(expected, rel=1e-5)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_cleared_memory_is_empty():
    (x, labels), _ = batches(6, 6)
    model = memory_model()
    first = step(model, x, labels)
    assert step(model, x, labels) > first
    model.clear_memory()
    assert step(model, x, labels) == pytest.approx(first)


def test_sample_weights_weight_the_anchors():
    x, labels = batches(4)[0]
    weights = np.array([2.0, 0.0, 0.0, 0.0], dtype="float32")
    model = memory_model(loss=SumLoss(reduction="sum"))
    embeddings = model.predict(x, verbose=0)
    values = numpy(SumLoss(reduction=None)(labels, embeddings))
    received = step(model, x, labels, sample_weight=weights)
    assert received == pytest.approx(2 * values[0], rel=1e-5)


def test_regularisers_of_the_embedder_count():
    x, labels = batches(4)[0]
    inputs = keras.Input((5,))
    dense = keras.layers.Dense(4, kernel_regularizer=keras.regularizers.L2(10.0))
    embedder = keras.Model(inputs, dense(inputs))
    model = CrossBatchMemory(embedder, 8)
    model.compile(keras.optimizers.SGD(0.0), loss=SumLoss())
    plain = SumLoss()(labels, model.predict(x, verbose=0))
    penalty = 10 * np.square(embedder.get_weights()[0]).sum()
    assert step(model, x, labels) == pytest.approx(float(plain) + penalty, rel=1e-5)


def test_nan_embedding_surfaces():
    x, labels = batches(4)[0]
    x[1, 2] = np.nan
    assert np.isnan(step(memory_model(), x, labels))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_model_trains(policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = memory_model(rate=0.01, jit_compile=JIT[-1])
        losses = [step(model, *batch) for batch in batches(4, 4, 4)]
    finally:
        keras.config.set_dtype_policy("float32")
    assert np.all(np.isfinite(losses))
    assert contents(model)[1].dtype == np.float32


FRESH = """
import json, sys
import keras, numpy as np
import tfdml
model = keras.saving.load_model(sys.argv[1])
data = np.load(sys.argv[2])
history = model.fit(data["x"], data["labels"], batch_size=4, shuffle=False, verbose=0)
print(json.dumps([history.history["loss"][0], int(model.filled), model.size,
                  model.warmup_steps, int(model.steps_seen)]))
"""


def test_memory_goes_on_in_a_fresh_process(tmp_path):
    loss = TopKPrecisionLoss(k=3, margin=0.5)
    model = memory_model(size=11, loss=loss, rate=0.1, warmup_steps=1)
    (first, first_labels), (x, labels) = batches(8, 4)
    model.fit(first, first_labels + 2**24, batch_size=4, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "data.npz", x=x, labels=labels + 2**24)
    expected = step(model, x, labels + 2**24)
    plain = float(loss(labels, model.embedder.predict(x, verbose=0)))
    done = subprocess.run(
        [sys.executable, "-c", FRESH, "model.keras", "data.npz"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": BACKEND},
    )
    assert done.returncode == 0, done.stderr
    received = json.loads(done.stdout.splitlines()[-1])
    assert received == [pytest.approx(expected, rel=1e-5), 11, 11, 1, 1]
    assert expected != pytest.approx(plain, rel=1e-3)


def test_loaded_model_has_the_same_memory_and_embedder(tmp_path):
    model = memory_model(size=5, name="mine")
    for batch in batches(4, 4):
        step(model, *batch)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.name == "mine"
    for a, b in zip(contents(model), contents(loaded), strict=True):
        np.testing.assert_array_equal(a, b)
    x = batches(3)[0][0]
    model.embedder.save(tmp_path / "embedder.keras")
    embedder = keras.saving.load_model(tmp_path / "embedder.keras")
    for other in (loaded, embedder):
        np.testing.assert_allclose(
            other.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-6
        )


def test_memory_is_no_trainable_weight():
    model = memory_model()
    names = {w.name for w in model.non_trainable_weights}
    assert names == {"past_embeddings", "past_labels", "filled", "steps_seen"}
    assert len(model.trainable_weights) == 2


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_size_that_is_no_positive_whole_number_is_refused(size):
    with pytest.raises(ValueError, match=r"`size` must be a whole number .* size="):
        memory_model(size=size)


@pytest.mark.parametrize("steps", [-1, 0.5])
def test_warm_up_below_zero_is_refused(steps):
    with pytest.raises(ValueError, match=r"`warmup_steps` must be .* warmup_steps="):
        memory_model(warmup_steps=steps)


def test_embedder_of_unknown_dimension_is_refused():
    with pytest.raises(ValueError, match=r"`embedder` must be a built model"):
        CrossBatchMemory(keras.Sequential([keras.layers.Dense(4)]), 8)
    maps = keras.Input((4, 4, 3))
    with pytest.raises(ValueError, match=r"output shape \(None, 4, 4, 3\)"):
        CrossBatchMemory(keras.Model(maps, keras.layers.ReLU()(maps)), 8)


def test_loss_that_cannot_use_a_memory_is_refused():
    class Other(MetricLoss):
        def call(self, labels, embeddings):
            return embeddings[:, 0]

    x, labels = batches(4)[0]
    for loss in ("mse", Other()):
        with pytest.raises(
            TypeError, match=r"must be a PairLoss.*Received: (str|Other)"
        ):
            step(memory_model(loss=loss), x, labels)
