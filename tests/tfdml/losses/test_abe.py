"""ABE against loops over pairs, images and learners, and its network by its parts."""

import itertools

import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import JIT, value_and_gradient
from tfdml.layers import AttentionMasks, JoinedHeads
from tfdml.losses import ABELoss
from tfdml.models import build_attention_ensemble, build_embedder, load_embedder

pytestmark = pytest.mark.backend

BATCHES = {
    "classes of one to four": [0, 0, 0, 0, 1, 1, 2, 3, 3],
    "one class": [5, 5, 5],
    "no positives": [0, 1, 2, 3],
}


def unit(row):
    return row / (np.linalg.norm(row) or 1.0)


def naive_loss(labels, embeddings, heads, margin, divergence, divergence_margin):
    """L by its definition, in float64."""
    parts = [np.array([unit(r) for r in p]) for p in np.split(embeddings, heads, 1)]
    total = 0.0
    for rows in parts:
        costs = {True: [], False: []}
        for a, b in itertools.permutations(range(len(labels)), 2):
            squared = np.sum((rows[a] - rows[b]) ** 2)
            same = labels[a] == labels[b]
            costs[same].append(squared if same else max(0.0, margin - squared))
        total += sum(np.mean(kind) / 2 for kind in costs.values() if kind)
    for i in range(len(labels)):
        for one, other in itertools.combinations(parts, 2):
            apart = np.sum((one[i] - other[i]) ** 2)
            total += divergence * max(0.0, divergence_margin - apart) / len(labels)
    return total


@pytest.mark.parametrize("compiled", JIT)
@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES)
def test_value_equals_the_loops(labels, compiled):
    labels = np.array(labels)
    embeddings = np.random.default_rng(6).normal(size=(len(labels), 6))
    embeddings[1, 2:4] = 0  # a learner without an opinion
    loss = ABELoss(
        3, margin=1.5, divergence=0.3, divergence_margin=2.0, dtype="float64"
    )
    value, gradient = value_and_gradient(
        lambda x: loss(labels, x), embeddings, compiled=compiled
    )
    expected = naive_loss(labels, embeddings, 3, 1.5, 0.3, 2.0)
    assert value == pytest.approx(expected, rel=1e-12)
    assert np.isfinite(gradient).all()


def test_divergence_pushes_equal_learners_apart():
    labels, random = np.array([0, 0, 1, 1]), np.random.default_rng(6)
    embeddings = np.tile(random.normal(size=(4, 3)), 2)
    embeddings += 0.3 * random.normal(size=embeddings.shape)
    with_it, without = (
        value_and_gradient(
            lambda x, d=d: ABELoss(2, divergence=d, dtype="float64")(labels, x),
            embeddings,
        )
        for d in (1.0, 0.0)
    )
    parts = np.split(embeddings, 2, axis=1)
    apart = [np.sum((unit(a) - unit(b)) ** 2) for a, b in zip(*parts, strict=True)]
    expected = np.mean(np.maximum(1 - np.array(apart), 0))
    assert with_it[0] - without[0] == pytest.approx(expected)
    moved = embeddings - 1e-4 * (with_it[1] - without[1])
    parts = np.split(moved, 2, axis=1)
    after = [np.sum((unit(a) - unit(b)) ** 2) for a, b in zip(*parts, strict=True)]
    assert min(apart) < 1
    assert all(b > a for a, b in zip(apart, after, strict=True) if a < 1)


def test_embedding_that_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match="`heads` must divide the dimension of the em"):
        ABELoss(4)([0, 0], np.ones((2, 6)))


def test_masks_multiply_the_map_at_each_position_and_channel():
    random = np.random.default_rng(1)
    maps, features = random.normal(size=(3, 2, 4, 5)), random.normal(size=(3, 2, 4, 6))
    layer = AttentionMasks(2, dtype="float64")
    received = ops.convert_to_numpy(layer([maps, features]))
    assert received.shape == layer.compute_output_shape([maps.shape, features.shape])
    kernel, bias = (ops.convert_to_numpy(v) for v in (layer.kernel, layer.bias))
    for image, head in np.ndindex(3, 2):
        own = slice(5 * head, 5 * head + 5)
        mask = 1 / (1 + np.exp(-(features[image] @ kernel[:, own] + bias[own])))
        np.testing.assert_allclose(received[2 * image + head], maps[image] * mask)


def test_cosine_of_joined_heads_is_the_mean_of_those_of_the_heads():
    rows = np.random.default_rng(2).normal(size=(6, 4))
    layer = JoinedHeads(3, dtype="float64")
    first, second = ops.convert_to_numpy(layer(rows))
    assert layer.compute_output_shape(rows.shape) == (2, 12)
    cosines = [unit(a) @ unit(b) for a, b in zip(rows[:3], rows[3:], strict=True)]
    assert first @ second == pytest.approx(np.mean(cosines))
    assert first @ first == pytest.approx(1)


@pytest.mark.slow
def test_each_learner_sees_the_image_through_its_mask(tmp_path):
    embedder = build_attention_ensemble(32, 6, heads=2)
    images = np.random.default_rng(0).uniform(0, 255, (2, 32, 32, 3)).astype("float32")
    received = ops.convert_to_numpy(embedder(images))
    parts = {layer.name: layer for layer in embedder.layers}
    maps = parts["spatial"](parts["preprocessing"](images))
    features = ops.convert_to_numpy(parts["attention"](maps))
    kernel, bias = parts["masks"].get_weights()
    for head in range(2):
        own = slice(480 * head, 480 * (head + 1))
        mask = 1 / (1 + np.exp(-(features @ kernel[:, own] + bias[own])))
        x = parts["shared"](ops.convert_to_numpy(maps) * mask)
        rows = parts["dense"](parts["pooling"](x))
        expected = ops.convert_to_numpy(rows)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True) * 2**0.5
        columns = received[:, 3 * head : 3 * head + 3]
        np.testing.assert_allclose(columns, expected, rtol=1e-3, atol=1e-4)
    embedder.save(tmp_path / "embedder.keras")
    again = load_embedder(tmp_path / "embedder.keras")(images)
    np.testing.assert_allclose(ops.convert_to_numpy(again), received, atol=1e-6)


@pytest.mark.full
def test_ensemble_trains():
    embedder = build_attention_ensemble(32, 6, heads=2)
    images = np.random.default_rng(0).uniform(0, 255, (4, 32, 32, 3)).astype("float32")
    masks = embedder.get_layer("masks").get_weights()[0]
    embedder.compile("sgd", loss=ABELoss(2), jit_compile=False)
    assert np.isfinite(embedder.train_on_batch(images, np.array([0, 0, 1, 1])))
    assert np.any(embedder.get_layer("masks").get_weights()[0] != masks)


@pytest.mark.slow
def test_every_part_begins_with_the_weights_of_the_network(tmp_path):
    network = build_embedder(32, 4, backbone="googlenet").get_layer("googlenet")
    network.save_weights(tmp_path / "googlenet.weights.h5")
    ensemble = build_attention_ensemble(
        32, 4, heads=2, weights=str(tmp_path / "googlenet.weights.h5")
    )
    for part, names in {
        "spatial": ["conv1_conv", "inception3b_branch4_1_conv"],
        "attention": ["inception4a_branch1_conv", "inception4e_branch4_1_conv"],
        "shared": ["inception4a_branch1_conv", "inception5b_branch4_1_conv"],
    }.items():
        for name in names:
            received = ensemble.get_layer(part).get_layer(name).get_weights()
            expected = network.get_layer(name).get_weights()
            np.testing.assert_array_equal(received[0], expected[0])


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"embedding_dimension": 7, "heads": 2}, "must be a multiple of `heads`"),
        ({"image_size": 16}, "`image_size` must be a whole number of at least 32"),
        ({"heads": 0}, "`heads` must be a whole number of at least 1"),
        ({"weights": 3}, "`weights` must be None or the path of a file"),
        ({"dropout": 1.0}, "`dropout` must be"),
    ],
)
def test_impossible_ensembles_are_refused(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        build_attention_ensemble(**{"image_size": 32} | arguments)
