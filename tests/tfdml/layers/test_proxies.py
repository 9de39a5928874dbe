"""Proxies: similarities, the learning-rate multiplier, saving, the regularizer."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import JIT, value_and_gradient
from tfdml.layers import CenterRegularizer, Proxies
from tfdml.losses import ProxyAnchorLoss

pytestmark = [pytest.mark.backend, pytest.mark.slow]


def numpy(x):
    return ops.convert_to_numpy(x)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.fixture
def random():
    return np.random.default_rng(3)


@pytest.mark.parametrize("centers", [1, 3])
@pytest.mark.parametrize("multiplier", [1.0, 100.0])
def test_output_is_the_cosine_of_embedding_and_proxy(random, centers, multiplier):
    proxies = random.normal(size=(5, 4) if centers == 1 else (5, centers, 4))
    embeddings = random.normal(size=(7, 4))
    layer = Proxies(5, centers, multiplier, dtype="float64")
    layer.set_proxies(proxies)
    expected = np.einsum("...d,bd->b...", unit(proxies), unit(embeddings))
    similarities = layer(embeddings)
    assert tuple(similarities.shape) == layer.compute_output_shape((7, 4))
    np.testing.assert_allclose(numpy(similarities), expected, rtol=0, atol=1e-14)


def test_proxies_are_shown_in_their_true_scale(random):
    proxies = random.normal(size=(5, 4)).astype("float32")
    layer = Proxies(5, learning_rate_multiplier=100.0)
    layer.set_proxies(proxies)
    np.testing.assert_allclose(numpy(layer.proxies), proxies, rtol=1e-6)
    np.testing.assert_allclose(layer.get_weights()[0], proxies / 100, rtol=1e-6)


def test_zero_embedding_and_zero_proxy_are_finite():
    layer = Proxies(2)
    layer.set_proxies([[0.0, 0.0], [1.0, 0.0]])
    value, gradient = value_and_gradient(
        lambda x: ops.sum(ops.exp(layer(x))), np.array([[0, 0], [1, 0]], "float32")
    )
    assert value == pytest.approx(3 + np.e)
    np.testing.assert_array_equal(gradient[0], [0, 0])
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize(("centers", "multiplier"), [(1, 1.0), (1, 100.0), (4, 1.0)])
def test_initial_proxies_have_the_variance_of_proxy_anchors_code(centers, multiplier):
    keras.utils.set_random_seed(1)
    layer = Proxies(100, centers, multiplier)
    layer.build((None, 200))
    proxies = numpy(layer.proxies)
    assert proxies.std() == pytest.approx((2 / (100 * centers)) ** 0.5, rel=0.02)
    assert abs(proxies.mean()) < 0.004


class Adam:
    """Adam of Kingma and Ba, Algorithm 1, for one array.

    Keras holds the decay rates in float32: these are exact there.
    """

    first_decay, second_decay = 1 - 1 / 8, 1 - 1 / 128

    def __init__(self, learning_rate, epsilon):
        self.learning_rate, self.epsilon = learning_rate, epsilon
        self.first = self.second = 0.0
        self.step = 0

    def moved(self, x, gradient):
        self.step += 1
        b1, b2 = self.first_decay, self.second_decay
        self.first = b1 * self.first + (1 - b1) * gradient
        self.second = b2 * self.second + (1 - b2) * gradient**2
        # Keras puts the corrections before epsilon, as the paper's section 2 allows.
        rate = self.learning_rate * (1 - b2**self.step) ** 0.5 / (1 - b1**self.step)
        return x - rate * self.first / (self.second**0.5 + self.epsilon)


@pytest.mark.parametrize("multiplier", [1.0, 100.0])
def test_multiplier_equals_a_second_adam_with_a_larger_rate(random, multiplier):
    inputs = random.normal(size=(12, 6))
    labels = np.arange(12) % 4
    keras.config.set_floatx("float64")
    try:
        dense = keras.layers.Dense(5, use_bias=False, dtype="float64")
        layer = Proxies(4, learning_rate_multiplier=multiplier, dtype="float64")
        model = keras.Sequential([keras.Input((6,)), dense, layer])
        loss = ProxyAnchorLoss(scale=4.0, dtype="float64")
        # A large epsilon, to see that it is divided by the multiplier.
        adam = keras.optimizers.Adam(
            0.001, Adam.first_decay, Adam.second_decay, epsilon=0.01
        )
        model.compile(adam, loss=loss)
        kernel, proxies = numpy(dense.kernel), numpy(layer.proxies)

        def value(kernel, proxies):
            fresh = Proxies(4, dtype="float64")
            fresh.build((None, 5))
            embeddings = ops.matmul(inputs, kernel)
            # The layer's own function, at proxies that have a gradient.
            fresh._scaled_proxies = proxies
            return loss(labels, fresh.call(embeddings))

        network = Adam(0.001, 0.01)
        faster = Adam(0.001 * multiplier, 0.01 / multiplier)
        for _ in range(4):
            _, at_kernel = value_and_gradient(lambda k, p=proxies: value(k, p), kernel)
            _, at_proxies = value_and_gradient(lambda p, k=kernel: value(k, p), proxies)
            kernel = network.moved(kernel, at_kernel)
            proxies = faster.moved(proxies, at_proxies)
            model.fit(inputs, labels, batch_size=12, verbose=0, shuffle=False)
    finally:
        keras.config.set_floatx("float32")
    np.testing.assert_allclose(numpy(dense.kernel), kernel, rtol=0, atol=1e-12)
    np.testing.assert_allclose(numpy(layer.proxies), proxies, rtol=0, atol=1e-11)


def proxy_model(classes=4, **arguments):
    embedder = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5)])
    return keras.Sequential([embedder, Proxies(classes, **arguments)])


def test_model_is_saved_and_loaded_with_its_proxies(random, tmp_path):
    inputs = random.normal(size=(12, 6)).astype("float32")
    model = proxy_model(
        centers_per_class=3,
        learning_rate_multiplier=100.0,
        regularizer=CenterRegularizer(0.3),
        initializer="glorot_uniform",
    )
    expected = model.predict(inputs, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(inputs, verbose=0), expected)
    np.testing.assert_array_equal(
        numpy(loaded.layers[-1].proxies), numpy(model.layers[-1].proxies)
    )
    assert loaded.layers[-1].get_config() == model.layers[-1].get_config()
    assert loaded.layers[-1].regularizer.strength == 0.3


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_similarities_are_float32_in_a_mixed_precision_model(random, policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = proxy_model()
        model.compile("adam", loss=ProxyAnchorLoss(), jit_compile=JIT[-1])
        inputs = random.normal(size=(12, 6)) * 30
        history = model.fit(inputs, np.arange(12) % 4, epochs=2, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.predict(inputs, verbose=0).dtype == "float32"
    assert np.all(np.isfinite(history.history["loss"]))


def naive_penalty(centers, strength):
    classes, count, _ = centers.shape
    w = unit(centers)
    total = sum(
        (2 + 1e-5 - 2 * w[c, s] @ w[c, t]) ** 0.5
        for c in range(classes)
        for t in range(count)
        for s in range(t)
    )
    return strength * total / (classes * count * (count - 1))


def test_center_regularizer_equals_its_definition(random):
    centers = random.normal(size=(3, 4, 5))
    centers[0, 0] = 2 * centers[0, 1]  # the same direction
    value, gradient = value_and_gradient(CenterRegularizer(0.2), centers)
    assert value == pytest.approx(naive_penalty(centers, 0.2), abs=1e-12)
    assert np.all(np.isfinite(gradient))


def test_one_center_a_class_has_no_penalty(random):
    for shape in [(3, 5), (3, 1, 5)]:
        assert float(CenterRegularizer(1.0)(random.normal(size=shape))) == 0


def test_regularizer_sees_the_proxies_in_their_true_scale(random):
    model = proxy_model(learning_rate_multiplier=100.0, regularizer="l2")
    proxies = numpy(model.layers[-1].proxies)
    [penalty] = model.losses
    assert float(penalty) == pytest.approx(0.01 * (proxies**2).sum(), rel=1e-5)


def test_regularizer_is_added_to_the_loss_that_fit_shows(random):
    inputs = random.normal(size=(12, 6)).astype("float32")
    labels = np.arange(12) % 4
    model = proxy_model(regularizer="l2")
    model.compile("sgd", loss=ProxyAnchorLoss())
    bare = float(ProxyAnchorLoss()(labels, model.predict(inputs, verbose=0)))
    [penalty] = model.losses
    history = model.fit(inputs, labels, batch_size=12, verbose=0)
    expected = bare + float(penalty)
    assert history.history["loss"][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "3"])
@pytest.mark.parametrize("name", ["num_classes", "centers_per_class"])
def test_counts_that_are_no_positive_whole_numbers_are_refused(name, count):
    with pytest.raises(ValueError, match=rf"`{name}` must be .* {name}={count!r}"):
        Proxies(**{"num_classes": 3, name: count})


@pytest.mark.parametrize("multiplier", [0, -1.0, float("nan"), float("inf")])
def test_multiplier_must_be_above_zero(multiplier):
    with pytest.raises(ValueError, match="`learning_rate_multiplier` must be above 0"):
        Proxies(3, learning_rate_multiplier=multiplier)


@pytest.mark.parametrize("strength", [-0.1, float("nan"), float("inf")])
def test_strength_of_the_regularizer_must_be_at_least_zero(strength):
    with pytest.raises(ValueError, match="`strength` must be at least 0"):
        CenterRegularizer(strength)


def test_embeddings_that_are_no_matrix_are_refused():
    with pytest.raises(ValueError, match=r"\[batch, dimension\].*\(2, 3, 4\)"):
        Proxies(3)(np.ones((2, 3, 4)))


def test_proxies_of_another_shape_are_refused():
    layer = Proxies(3)
    with pytest.raises(ValueError, match=r"shape \(3, 4\)\. Received: .*\(2, 4\)"):
        layer.set_proxies(np.ones((2, 4)))


def test_proxies_before_the_first_call_are_refused():
    with pytest.raises(
        ValueError, match="called on embeddings before its proxies are read"
    ):
        _ = Proxies(3).proxies
