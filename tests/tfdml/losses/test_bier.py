"""BIER against loops over pairs and learners, and its layer against its formula."""

import itertools
import math

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import JIT, value_and_gradient
from tfdml.layers import DividedEmbedding
from tfdml.losses import BIERLoss, BinomialDevianceLoss
from tfdml.models import build_embedder, load_embedder

pytestmark = pytest.mark.backend

LEARNERS = [2, 1, 3]
BATCHES = {
    "classes of one to four": [0, 0, 0, 0, 1, 1, 2, 3, 3],
    "one class": [5, 5, 5],
    "no positives": [0, 1, 2, 3],
}


def cosine(x, y):
    lengths = np.linalg.norm(x) * np.linalg.norm(y)
    return x @ y / lengths if lengths else 0.0


def naive_loss(labels, embeddings, alpha, beta, threshold):
    """Algorithm 1, one pair after the other, in float64."""

    def u(score, is_positive):
        if is_positive:
            return alpha * (score - threshold)
        return -beta * (score - threshold)

    ends = np.cumsum([0, *LEARNERS])
    costs = {True: [], False: []}
    for a, b in itertools.permutations(range(len(labels)), 2):
        is_positive = labels[a] == labels[b]
        together, weight, cost = 0.0, 1.0, 0.0
        for m, (start, end) in enumerate(itertools.pairwise(ends), start=1):
            score = cosine(embeddings[a, start:end], embeddings[b, start:end])
            cost += weight * math.log1p(math.exp(-u(score, is_positive)))
            eta = 2 / (m + 1)
            together = (1 - eta) * together + eta * score
            weight = 1 / (1 + math.exp(u(together, is_positive)))
        costs[is_positive].append(cost / len(LEARNERS))
    return sum(np.mean(kind) for kind in costs.values() if kind)


def rows(labels):
    """Return embeddings in whose parts all learners are wrong about some pairs."""
    embeddings = np.random.default_rng(6).normal(size=(len(labels), sum(LEARNERS)))
    embeddings[1, 2] = 0  # a learner without an opinion
    return embeddings


@pytest.mark.parametrize("compiled", JIT)
@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES)
def test_value_equals_the_loop_over_pairs(labels, compiled):
    labels = np.array(labels)
    embeddings = rows(labels)
    loss = BIERLoss(
        LEARNERS,
        positive_scale=3.0,
        negative_scale=7.0,
        threshold=0.3,
        dtype="float64",
    )
    value, gradient = value_and_gradient(
        lambda x: loss(labels, x), embeddings, compiled=compiled
    )
    expected = naive_loss(labels, embeddings, 3.0, 7.0, 0.3)
    assert value == pytest.approx(expected, rel=1e-12)
    assert np.isfinite(gradient).all()


def test_weights_are_constants_to_the_gradient():
    """The second of two learners does not reach the first through its weight."""
    labels, first = np.array([0, 0, 1, 1]), rows([0] * 4)[:, :2]
    second = np.random.default_rng(7).normal(size=(4, 3))
    ensemble = BIERLoss([2, 3], dtype="float64")
    alone = BIERLoss([2], dtype="float64")

    def both(x):
        return ensemble(labels, ops.concatenate([x, second], axis=1))

    _, received = value_and_gradient(both, first)
    _, expected = value_and_gradient(lambda x: alone(labels, x) / 2, first)
    np.testing.assert_allclose(received, expected, rtol=1e-12)


def test_one_learner_is_binomial_deviance():
    labels = np.array(BATCHES["classes of one to four"])
    embeddings = rows(labels)
    loss = BIERLoss([6], negative_scale=40.0, threshold=0.2, dtype="float64")
    other = BinomialDevianceLoss(
        negative_scale=40.0, threshold=0.2, per_anchor=False, dtype="float64"
    )
    expected = float(other(labels, embeddings))
    assert float(loss(labels, embeddings)) == pytest.approx(expected, rel=1e-12)


def test_embedding_of_another_dimension_is_refused():
    with pytest.raises(ValueError, match="`learners` must add up to the dimension"):
        BIERLoss([2, 3])([0, 0], np.ones((2, 6)))


def layer_and_features(learners, diversity=0.0):
    layer = DividedEmbedding(learners, diversity=diversity, dtype="float64")
    features = np.random.default_rng(8).normal(size=(5, 4))
    layer.build(features.shape)
    layer.bias.assign(np.linspace(-1, 1, sum(learners)))
    return layer, features


def test_cosine_of_two_embeddings_is_the_weighted_mean_of_the_learners():
    layer, features = layer_and_features(LEARNERS)
    received = ops.convert_to_numpy(layer(features))
    kernel, bias = (ops.convert_to_numpy(v) for v in (layer.kernel, layer.bias))
    outputs = features @ kernel + bias
    for a, b in itertools.combinations(range(5), 2):
        # s_M of the recursion of the loss.
        together, start = 0.0, 0
        for m, width in enumerate(LEARNERS, start=1):
            part = slice(start, start := start + width)
            eta = 2 / (m + 1)
            score = cosine(outputs[a, part], outputs[b, part])
            together = (1 - eta) * together + eta * score
        assert received[a] @ received[b] == pytest.approx(together, abs=1e-12)
    np.testing.assert_allclose(np.linalg.norm(received, axis=1), 1, atol=1e-12)


def naive_activation_loss(kernel, features, learners):
    ends = list(itertools.pairwise(np.cumsum([0, *learners])))
    outputs = features @ kernel
    total = 0.0
    for (i, one), (j, other) in itertools.product(enumerate(ends), repeat=2):
        if i < j:
            total += np.mean(
                [
                    (row[k] * row[n]) ** 2
                    for row in outputs
                    for k in range(*one)
                    for n in range(*other)
                ]
            )
    for start, end in ends:
        lengths = [kernel[:, unit] @ kernel[:, unit] for unit in range(start, end)]
        total += 100 * np.mean([(length - 1) ** 2 for length in lengths])
    return total


def test_activation_loss_is_added_while_training():
    layer, features = layer_and_features(LEARNERS, diversity=0.25)
    layer(features, training=True)
    kernel = ops.convert_to_numpy(layer.kernel)
    expected = 0.25 * naive_activation_loss(kernel, features, LEARNERS)
    # `ops.mean` computes in float32 on JAX (Keras 3.15).
    assert float(layer.losses[0]) == pytest.approx(expected, rel=1e-6)
    layer(features, training=False)
    assert not layer.losses


def adversarial_layer(**changes):
    arguments = {"diversity": 0.25, "adversary": 3, "weight_penalty": 0.7}
    layer = DividedEmbedding(LEARNERS, **{"dtype": "float64"} | arguments | changes)
    features = np.random.default_rng(8).normal(size=(5, 4))
    layer.build(features.shape)
    random = np.random.default_rng(9)
    layer.set_weights([random.normal(size=w.shape) for w in layer.get_weights()])
    return layer, features


def naive_adversarial_loss(kernel, adversaries, features, penalty_weight):
    """Return what the adversaries look for and the penalty, by loops."""
    ends = list(itertools.pairwise(np.cumsum([0, *LEARNERS])))
    found, matrices, biases = 0.0, [kernel[:, s:e] for s, e in ends], []
    pairs = list(itertools.combinations(range(len(ends)), 2))
    for (i, j), (a, a_bias, b, b_bias) in zip(pairs, adversaries, strict=True):
        products = []
        for x in features:
            target, source = x @ matrices[i], x @ matrices[j]
            y = np.maximum(source @ a + a_bias, 0) @ b + b_bias
            products += [(t * o) ** 2 for t, o in zip(target, y, strict=True)]
        found -= np.mean(products)
        matrices += [a, b]
        biases += [a_bias, b_bias]
    penalty = sum(np.mean([(row @ row - 1) ** 2 for row in m]) for m in matrices)
    penalty += sum(max(0.0, bias @ bias - 1) for bias in biases)
    return found, penalty_weight * penalty


def parts_of_adversarial(weights):
    """Return the kernel and the adversaries from all weights of the layer."""
    kernel, _, *others = weights
    return kernel, [others[k : k + 4] for k in range(0, len(others), 4)]


def test_adversarial_loss_is_added_while_training():
    layer, features = adversarial_layer()
    layer(features, training=True)
    parts = parts_of_adversarial(layer.get_weights())
    expected = 0.25 * sum(naive_adversarial_loss(*parts, features, 0.7))
    assert float(layer.losses[0]) == pytest.approx(expected, rel=1e-6)
    layer(features, training=False)
    assert not layer.losses


def test_learners_hide_what_their_adversaries_look_for():
    """One step of plain SGD at a rate of 1 goes by the gradient, reversed for W."""
    layer, features = adversarial_layer(dtype="float32")
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layer(inputs))
    model.compile(keras.optimizers.SGD(1.0), loss=lambda y, z: 0 * ops.sum(z, axis=1))
    before = layer.get_weights()
    model.fit(features, np.zeros(5), batch_size=5, shuffle=False, verbose=0)
    after = layer.get_weights()
    chosen = {0: [(0, 0), (3, 4)], 2: [(0, 1)], 3: [(2,)], 4: [(1, 0)], 13: [(0,)]}
    for number, places in chosen.items():
        for place in places:
            found, penalty = (0.0, 0.0)
            for sign in (1, -1):
                moved = [w.astype("float64") for w in before]
                moved[number][place] += sign * 1e-5
                parts = parts_of_adversarial(moved)
                f, p = naive_adversarial_loss(*parts, features, 0.7)
                found, penalty = found + sign * f, penalty + sign * p
            reverse = -1 if number == 0 else 1
            slope = 0.25 * (reverse * found + penalty) / 2e-5
            received = before[number][place] - after[number][place]
            assert received == pytest.approx(slope, rel=1e-3, abs=1e-4), number


def test_adversaries_come_with_the_saved_layer_and_not_without():
    layer, _ = adversarial_layer()
    assert len(layer.get_weights()) == 2 + 3 * 4
    assert len(adversarial_layer(adversary=0)[0].get_weights()) == 2
    assert type(layer).from_config(layer.get_config()).adversary == 3


@pytest.mark.slow
def test_diversity_makes_the_activations_of_learners_exclude_each_other():
    images = np.random.default_rng(0).uniform(0, 255, (16, 8, 8, 3)).astype("float32")
    labels = np.repeat(np.arange(4), 4)
    lost = {}
    for diversity in (0.0, 5.0):
        keras.utils.set_random_seed(0)
        model = build_embedder(
            8, 6, widths=(4,), learners=LEARNERS, diversity=diversity
        )
        model.compile("adam", loss=BIERLoss(LEARNERS))
        lost[diversity] = model.fit(
            images, labels, batch_size=16, epochs=2, verbose=0
        ).history["loss"][0]
    assert lost[5.0] > lost[0.0] + 1


def test_embedder_of_an_ensemble_is_saved_and_loaded(tmp_path):
    embedder = build_embedder(8, 6, widths=(4,), learners=LEARNERS)
    embedder.save(tmp_path / "embedder.keras")
    images = np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 3)).astype("float32")
    received = load_embedder(tmp_path / "embedder.keras").predict(images, verbose=0)
    np.testing.assert_allclose(received, embedder.predict(images, verbose=0), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(received, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"learners": [2, 3]}, "`learners` must add up to `embedding_dimension`, with"),
        ({"learners": [0, 6]}, "`learners` must be a whole number of at least 1"),
        ({"learners": [2, 4], "unit_length": False}, "with unit length.*False"),
        ({"diversity": 0.5}, "`diversity` must be 0 without `learners`"),
        ({"learners": [6], "diversity": -1}, "`diversity` must be at least 0"),
        ({"learners": [6], "adversary": 9}, "`adversary` must be 0 without `diver"),
        (
            {"learners": [6], "diversity": 1.0, "adversary": -1},
            "`adversary` must be a whole number of at least 0",
        ),
        (
            {"learners": [6], "diversity": 1.0, "weight_penalty": -1.0},
            "`weight_penalty` must be at least 0",
        ),
    ],
    ids=str,
)
def test_impossible_ensembles_are_refused(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        build_embedder(8, 6, widths=(4,), **arguments)
