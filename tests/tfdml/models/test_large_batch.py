"""Gradient caching: a batch in chunks trains as the undivided batch does."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, JIT
from tests.support.refuses import refusals, refuses
from tfdml.images import RandomChanges
from tfdml.layers import DividedEmbedding, ImageChanges, Proxies
from tfdml.losses import (
    BIERLoss,
    DistanceWeightedMarginLoss,
    MultiSimilarityLoss,
    ProxyAnchorLoss,
    SmoothAPLoss,
    TopKPrecisionLoss,
    TripletLoss,
)
from tfdml.metrics import MisplacedPairs
from tfdml.models import (
    CrossBatchMemory,
    LargeBatch,
    build_embedder,
    load_embedder,
    search_metric,
)

pytestmark = [
    pytest.mark.backend,
    pytest.mark.slow,
    pytest.mark.skipif(BACKEND == "torch", reason="does not run on torch"),
]

numpy = ops.convert_to_numpy
on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="of TensorFlow")
BATCH, CLASSES = 128, 16


def batch(count=BATCH, dtype="float64"):
    """Rows class after class, as a design lists them."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), count // CLASSES)
    return generator.normal(size=(count, 6)).astype(dtype), labels


@pytest.fixture
def in_float64():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy(before)


def rows(name=None):
    # Of float32 where it is not said: XLA may leave its rounding out.
    return keras.Input(
        (6,), name=name, dtype=keras.config.dtype_policy().variable_dtype
    )


def network(*layers, head=True):
    keras.utils.set_random_seed(1)
    x = inputs = rows()
    if head:
        x = keras.layers.Dense(8, activation="relu")(x)
    for layer in layers:
        x = layer(x)
    return keras.Model(inputs, keras.layers.Dense(4)(x) if head else x)


def copied(model):
    """A model of the same layers and values, but of variables of its own."""
    other = keras.models.clone_model(model)
    other.set_weights(model.get_weights())
    return other


def trained(model, loss, x, labels, rate=0.1, jit_compile=False, **arguments):
    """Train one step; return the values of `fit` and the weights after it."""
    model.compile(keras.optimizers.SGD(rate), loss=loss, jit_compile=jit_compile)
    history = model.fit(
        x, labels, batch_size=len(labels), shuffle=False, verbose=0, **arguments
    )
    return history.history, model.get_weights()


def assert_equal(received, expected, tolerance=1e-9):
    for a, b in zip(received, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def gradients(model, loss, x, labels):
    """The gradient of each trainable weight, in the order of `model`'s weights."""
    before = [numpy(v.value).copy() for v in model.trainable_variables]
    model.compile(keras.optimizers.SGD(1.0), loss=loss, jit_compile=False)
    model.fit(x, labels, batch_size=BATCH, shuffle=False, verbose=0)
    return [
        old - numpy(v.value)
        for old, v in zip(before, model.trainable_variables, strict=True)
    ]


LOSSES = {
    "TopKPrecision": TopKPrecisionLoss(k=3, dtype="float64"),
    "MultiSimilarity": MultiSimilarityLoss(dtype="float64"),
    "Triplet": TripletLoss(dtype="float64"),
    "SmoothAP": SmoothAPLoss(dtype="float64"),
    "ProxyAnchor": ProxyAnchorLoss(dtype="float64"),
    "ProxyAnchorInside": ProxyAnchorLoss(dtype="float64"),
}


def of_all_losses(wrap):
    """A model of two inputs with an embedder, and so gradients, for each loss."""
    keras.utils.set_random_seed(1)
    inputs = {name: rows(name) for name in ("first", "second")}
    outputs = {}
    for name in LOSSES:
        hidden = keras.layers.Add()(list(inputs.values()))
        hidden = keras.layers.Dense(8, activation="relu")(hidden)
        outputs[name] = keras.layers.Dense(4)(hidden)
    inside = Proxies(CLASSES, dtype="float64")
    outputs["ProxyAnchorInside"] = inside(outputs["ProxyAnchorInside"])
    outputs = wrap(keras.Model(inputs, outputs))(inputs)
    behind = Proxies(CLASSES, dtype="float64")
    outputs["ProxyAnchor"] = behind(outputs["ProxyAnchor"])
    return keras.Model(inputs, outputs)


@pytest.fixture(scope="module")
def gradients_of_one_batch():
    return cached(lambda embedder: embedder)


def cached(wrap):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    try:
        x, labels = batch()
        inputs = {"first": x, "second": x[::-1]}
        model = of_all_losses(wrap)
        return gradients(model, LOSSES, inputs, dict.fromkeys(LOSSES, labels))
    finally:
        keras.config.set_dtype_policy(before)


@pytest.mark.jax
@pytest.mark.parametrize("count", [2, 64])
def test_gradients_are_those_of_the_undivided_batch(count, gradients_of_one_batch):
    expected = gradients_of_one_batch
    assert len(expected) == 4 * len(LOSSES) + 2
    assert min(abs(g).max() for g in expected) > 1e-5
    received = cached(lambda embedder: LargeBatch(embedder, BATCH // count))
    assert_equal(received, expected)


def test_compiled_steps_with_weights_clipping_and_metrics():
    x, labels = batch(32, "float32")
    weights = np.random.default_rng(1).uniform(0, 2, 32)
    results = []
    for wrap in (copied, lambda embedder: LargeBatch(embedder, 8)):
        model = wrap(network())
        model.compile(
            keras.optimizers.Adam(0.01, global_clipnorm=0.1),
            loss=TopKPrecisionLoss(k=1),
            metrics=[MisplacedPairs(1, 0.1)],
            jit_compile=JIT[-1],
            steps_per_execution=2,
        )
        history = model.fit(
            np.concatenate([x] * 4),
            np.concatenate([labels] * 4),
            sample_weight=np.concatenate([weights] * 4),
            batch_size=32,
            shuffle=False,
            epochs=2,
            verbose=0,
        )
        results.append((history.history, model.get_weights()))
    (expected, weights_of_one), (received, weights_of_chunks) = results
    for name, values in expected.items():
        assert received[name] == pytest.approx(values, rel=1e-5)
    assert_equal(weights_of_chunks, weights_of_one, 1e-5)


@pytest.mark.parametrize(
    "policy",
    ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.full)],
)
def test_mixed_precision_trains_as_undivided(policy):
    keras.config.set_dtype_policy(policy)
    try:
        x, labels = batch(32, "float32")
        embedder = network()
        one, model = copied(embedder), LargeBatch(embedder, 8)
        loss = TopKPrecisionLoss(k=1)
        _, expected = trained(one, loss, x, labels)
        _, received = trained(model, loss, x, labels)
    finally:
        keras.config.set_dtype_policy("float32")
    kind = keras.optimizers.LossScaleOptimizer
    assert isinstance(model.optimizer, kind) is (policy == "mixed_float16")
    assert_equal(received, expected, 2e-3)


def chunks(x, size):
    """The rows of each chunk, every n-th of the batch."""
    count = len(x) // size
    return [x[start::count] for start in range(count)]


def test_dropout_is_that_of_the_chunks_one_after_another(in_float64):
    x, _ = batch(32)
    embedder = network(keras.layers.Dropout(0.5, seed=3))
    one = copied(embedder)
    parts = [one(part, training=True) for part in chunks(x, 8)]
    model = LargeBatch(embedder, 8)
    received = numpy(model(ops.convert_to_tensor(x), training=True))
    for start, part in enumerate(parts):
        np.testing.assert_allclose(received[start::4], numpy(part), rtol=1e-9)
    seeds = [numpy(v.value) for m in (embedder, one) for v in m.non_trainable_variables]
    np.testing.assert_array_equal(seeds[0], seeds[1])
    assert seeds[0][1] == 4  # draws, not 8


class Noisy(keras.layers.Layer):
    """Adds noise, whose average the kernel's gradient sees."""

    def __init__(self, seed=5, **kwargs):
        super().__init__(**kwargs)
        self.seed = seed
        self.noise = keras.random.SeedGenerator(seed)

    def call(self, inputs, training=False):
        shape, dtype = ops.shape(inputs), inputs.dtype
        if not training:
            return inputs
        return inputs * keras.random.uniform(shape, seed=self.noise, dtype=dtype)

    def get_config(self):
        return {**super().get_config(), "seed": self.seed}


def test_second_pass_repeats_the_first(in_float64):
    """The gradient of a sum is linear in the noise that the sum was computed with."""
    x, labels = batch(32)

    class Total(TopKPrecisionLoss):
        def call(self, labels, embeddings):
            return ops.sum(embeddings, axis=1)

    keras.utils.set_random_seed(1)
    inputs = rows()
    linear = keras.Model(inputs, keras.layers.Dense(4, use_bias=False)(Noisy()(inputs)))
    before = linear.get_weights()[0]
    model = LargeBatch(linear, 8)
    model.compile(keras.optimizers.SGD(1.0), loss=Total(dtype="float64"))
    history = model.fit(x, labels, batch_size=32, shuffle=False, verbose=0)
    gradient = before - linear.get_weights()[0]
    assert history.history["loss"][0] == pytest.approx((gradient * before).sum())


def test_batch_norm_sees_a_chunk_and_is_updated_in_one_pass():
    x, labels = batch(32, "float32")
    embedder = network(keras.layers.BatchNormalization(momentum=0.5))
    one = copied(embedder)
    outputs = [numpy(one(part, training=True)) for part in chunks(x, 8)]
    model = LargeBatch(embedder, 8)
    received = numpy(model(ops.convert_to_tensor(x), training=True))
    for start, part in enumerate(outputs):
        np.testing.assert_allclose(received[start::4], part, rtol=1e-4, atol=1e-5)
    assert_equal(model.get_weights(), one.get_weights(), 1e-5)
    before = model.get_weights()
    trained(model, TopKPrecisionLoss(k=1), x, labels, rate=0.0)
    for part in chunks(x, 8):
        one(part, training=True)
    assert_equal(model.get_weights(), one.get_weights(), 1e-5)
    assert not np.allclose(before[4], model.get_weights()[4])


def test_frozen_layers_stay_and_the_rest_learns_as_undivided(in_float64):
    x, labels = batch(32)
    norm = keras.layers.BatchNormalization()
    embedder = network(norm)
    norm.trainable = False
    embedder.layers[1].trainable = False
    one = copied(embedder)
    for layer, other in zip(embedder.layers, one.layers, strict=True):
        other.trainable = layer.trainable
    loss = MultiSimilarityLoss(dtype="float64")
    expected = trained(one, loss, x, labels)
    received = trained(LargeBatch(embedder, 8), loss, x, labels)
    assert received[0]["loss"] == pytest.approx(expected[0]["loss"])
    assert_equal(received[1], expected[1])


def test_losses_of_layers_and_regularizers_count_as_undivided():
    x, labels = batch(32, "float32")

    def embedder():
        keras.utils.set_random_seed(4)
        return network(
            keras.layers.Dense(
                8,
                kernel_regularizer=keras.regularizers.L2(0.3),
                activity_regularizer=keras.regularizers.L2(0.2),
            ),
            DividedEmbedding((1, 2, 3), diversity=0.5),
            head=False,
        )

    loss = BIERLoss([1, 2, 3])
    expected = trained(embedder(), loss, x, labels)
    received = trained(LargeBatch(embedder(), 8), loss, x, labels)
    assert received[0]["loss"] == pytest.approx(expected[0]["loss"], rel=1e-5)
    assert_equal(received[1], expected[1], 1e-5)


def test_weights_before_it_learn_too(in_float64):
    x, labels = batch()
    loss = TopKPrecisionLoss(k=1, dtype="float64")

    def model(wrap):
        embedder = wrap(network())
        keras.utils.set_random_seed(2)
        inputs = rows()
        return keras.Model(inputs, embedder(keras.layers.Dense(6)(inputs)))

    expected = gradients(model(copied), loss, x, labels)
    received = gradients(model(lambda e: LargeBatch(e, 8)), loss, x, labels)
    assert_equal(received, expected)


def test_memory_behind_it_holds_the_whole_batch():
    x, labels = batch(32, "float32")
    loss = MultiSimilarityLoss()
    results = []
    for wrap in (copied, lambda embedder: LargeBatch(embedder, 8)):
        model = CrossBatchMemory(wrap(network()), size=40)
        model.compile(keras.optimizers.SGD(0.1), loss=loss)
        model.fit(
            np.concatenate([x, x + 1]),
            np.concatenate([labels, labels]),
            batch_size=32,
            shuffle=False,
            verbose=0,
        )
        assert int(numpy(model.filled)) == 40
        results.append(model.get_weights())
    # The memory is among the weights, in another order.
    by_shape = [sorted(ws, key=lambda w: (w.shape, str(w.dtype))) for ws in results]
    assert_equal(*by_shape[::-1], 1e-5)


def test_inference_takes_batches_of_any_size():
    x, _ = batch(32, "float32")
    embedder = network(keras.layers.BatchNormalization())
    model = LargeBatch(embedder, 8)
    for rows in (x[:5], x):
        np.testing.assert_allclose(
            model.predict(rows, verbose=0), embedder.predict(rows, verbose=0)
        )


def test_saved_model_goes_on_and_gives_the_embedder(tmp_path):
    x, labels = batch(32, "float32")
    model = LargeBatch(network(), chunk=8, name="mine")
    loss = TopKPrecisionLoss(k=1)
    trained(model, loss, x, labels)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert (loaded.name, loaded.chunk) == ("mine", 8)
    assert type(loaded.loss) is TopKPrecisionLoss
    np.testing.assert_allclose(
        loaded.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-6
    )
    arguments = {"batch_size": 32, "shuffle": False, "verbose": 0}
    for one in (model, loaded):
        one.fit(x, labels, **arguments)
    assert_equal(loaded.get_weights(), model.get_weights(), 1e-5)


def test_file_of_it_is_loaded_as_the_embedder(tmp_path):
    embedder = build_embedder(8, 4, widths=(4,), unit_length=False)
    model = LargeBatch(embedder, 4)
    assert search_metric(model) == "squared_euclidean"
    model.save(tmp_path / "model.keras")
    loaded = load_embedder(tmp_path / "model.keras")
    assert not isinstance(loaded, LargeBatch)
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3))
    np.testing.assert_allclose(
        numpy(loaded(images)), numpy(embedder(images)), rtol=1e-5
    )


@refusals(
    ("chunk", 0, "must be a whole number of at least 1"),
    ("chunk", 2.5, "must be a whole number of at least 1"),
    ("chunk", True, "must be a whole number of at least 1"),
)
def test_bad_chunks_are_refused(argument, value, rule):
    refuses(
        LargeBatch,
        argument=argument,
        value=value,
        rule=rule,
        valid={"embedder": network()},
    )


@pytest.mark.parametrize("size", [6, 20])
def test_chunk_that_does_not_divide_the_batch_is_refused(size):
    x, labels = batch(16, "float32")
    model = LargeBatch(network(), size)
    rule = rf"`chunk` must be at most the batch and divide it.*chunk={size}.* 16"
    with pytest.raises(ValueError, match=rule):
        model(ops.convert_to_tensor(x), training=True)
    with pytest.raises(Exception, match=r"chunk.{1,2}must.*divide"):
        trained(model, TopKPrecisionLoss(k=1), x, labels, jit_compile=JIT[-1])


@on_tensorflow
def test_short_last_batch_is_refused_where_only_the_step_knows_it():
    x, labels = batch(48, "float32")
    model = LargeBatch(network(), 16)
    for jit_compile in (False, True):
        model.compile("sgd", loss=TopKPrecisionLoss(k=1), jit_compile=jit_compile)
        with pytest.raises(Exception, match=r"chunk.{1,2}must.*divide"):
            model.fit(x[:40], labels[:40], batch_size=32, verbose=0)


class Unseeded(keras.layers.Layer):
    def call(self, inputs):
        return inputs + keras.random.normal(ops.shape(inputs))


def spectral():
    return keras.layers.SpectralNormalization(keras.layers.Dense(8))


def one_step(layer):
    x, labels = batch(16, "float32")
    trained(LargeBatch(network(layer), 8), TopKPrecisionLoss(k=1), x, labels)


def test_layer_that_changes_its_trainable_weights_is_named():
    with pytest.raises(ValueError, match=r"changes '.*spectral_normalization"):
        one_step(spectral())


@pytest.mark.skipif(BACKEND == "jax", reason="Keras itself refuses it on JAX")
def test_random_numbers_without_a_generator_are_named():
    with pytest.raises(ValueError, match=r"SeedGenerator.*global_seed|seed_generator"):
        one_step(Unseeded())


@on_tensorflow
def test_state_of_tensorflow_is_named():
    import tensorflow as tf

    class Raw(keras.layers.Layer):
        def call(self, inputs):
            return inputs + tf.random.normal(tf.shape(inputs))

    with pytest.raises(ValueError, match=r"Received: the operation '.*raw.*Random"):
        one_step(Raw(name="raw"))


def test_embedders_that_cannot_be_repeated_are_refused():
    steps = keras.Input((3, 6), batch_size=4)
    recurrent = keras.layers.LSTM(4, stateful=True, name="memory")
    with pytest.raises(ValueError, match=r"be stateful.* 'memory' of the class LSTM"):
        LargeBatch(keras.Model(steps, recurrent(steps)))
    with pytest.raises(ValueError, match=r"\(`compute_loss`\).*CrossBatchMemory"):
        LargeBatch(CrossBatchMemory(network(), 8))
    with pytest.raises(ValueError, match="must be built"):
        LargeBatch(keras.Sequential([keras.layers.Dense(4)]))
    with pytest.raises(TypeError, match=r"`embedder` must be a keras.Model"):
        LargeBatch(keras.layers.Dense(4))


def test_sampled_loss_trains():
    x, labels = batch(32, "float32")
    loss = DistanceWeightedMarginLoss(dimension=4)
    history, _ = trained(LargeBatch(network(), 8), loss, x, labels)
    assert np.isfinite(history["loss"]).all()


def test_other_backends_are_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(NotImplementedError, match="on the backends tensorflow, jax"):
        LargeBatch(network(), 8)


@pytest.mark.jax
def test_layers_that_need_the_size_of_a_batch_are_divided():
    changes = RandomChanges(flip=True)
    pixels = keras.Input((8, 8, 3), dtype="uint8")
    numbers = keras.Input((len(changes.COLUMNS),))
    changed = ImageChanges(changes)([pixels, numbers])
    outputs = keras.layers.Dense(2)(keras.layers.Flatten()(changed))
    part = LargeBatch(keras.Model([pixels, numbers], outputs), 2)
    model = keras.Model([pixels, numbers], part([pixels, numbers]))
    assert model.output_shape == (None, 2)
    model.compile("sgd", loss=TopKPrecisionLoss(k=1))
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), "uint8")
    rows = changes.numbers(seed=0, step=0, count=4)
    assert np.isfinite(model.train_on_batch([images, rows], np.array([0, 0, 1, 1])))
