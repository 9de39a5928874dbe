"""Blocks of backbones by depth."""

import keras
import numpy as np
import pytest
from keras import layers

from tfdml.losses import ContrastiveLoss
from tfdml.models import build_embedder
from training.recipe.recipe import Data, Embedder, Fit, Recipe
from training.run.blocks import blocks_of
from training.run.build_model import build_embedder_of, build_model


def names_of(model):
    return [[layer.name for layer in block] for block in blocks_of(model.outputs)]


def test_plain_stack_has_a_block_for_each_kernel():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, name="first"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(name="relu"),
            layers.DepthwiseConv2D(3, name="second"),
        ]
    )
    assert names_of(model) == [["first", "norm"], ["second"]]


def test_what_a_connection_passes_by_is_one_block():
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 1, name="stem")(inputs)
    y = layers.Conv2D(4, 1, name="left")(x)
    y = layers.Conv2D(4, 1, name="left_again")(y)
    x = layers.Add(name="sum")([y, layers.Conv2D(4, 1, name="right")(x)])
    x = layers.Conv2D(4, 1, name="last")(x)
    (stem, (*both, total), last) = names_of(keras.Model(inputs, x))
    assert [stem, last] == [["stem"], ["last"]]
    assert sorted(both) == ["left", "left_again", "right"]
    assert total == "sum"


class Encoder(layers.Layer):
    """A stack of attention layers, whose graph Keras does not know."""

    def __init__(self, count, **kwargs):
        super().__init__(**kwargs)
        names = map(str, range(count))
        self.parts = [layers.MultiHeadAttention(1, 4, name=name) for name in names]
        self.norm = layers.LayerNormalization(name="norm")

    def build(self, shape):
        for part in self.parts:
            part.build(shape, shape)
        self.norm.build(shape)

    def call(self, x):
        for part in self.parts:
            x = x + part(x, x)
        return self.norm(x)


def test_stack_of_alike_parts_counts_as_these():
    inputs = keras.Input((8, 8, 4))
    inner = keras.Input((64, 4))
    encoder = keras.Model(inner, Encoder(3, name="encoder")(inner), name="inner")
    x = layers.Conv2D(4, 1, name="patches")(inputs)
    x = encoder(layers.Reshape((64, 4), name="tokens")(x))
    found = names_of(keras.Model(inputs, x))
    assert found == [["patches"], ["0"], ["1"], ["2", "norm"]]


@pytest.mark.parametrize(
    ("backbone", "count"), [("residual", 5), ("MobileNet", 27), ("ResNet50", 17)]
)
def test_blocks_hold_each_weight_of_a_backbone_once(backbone, count):
    embedder = build_embedder(32, 4, backbone=backbone)
    blocks = blocks_of(embedder.get_layer("pooling").input)
    assert len(blocks) == count
    found = [w for block in blocks for layer in block for w in layer.weights]
    assert len({id(w) for w in found}) == len(found)
    head = embedder.get_layer("dense").weights
    assert len(found) == len(embedder.weights) - len(head)


@pytest.mark.backend
@pytest.mark.slow
def test_rates_fall_from_the_last_block_to_the_first():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (16, 8, 8, 3)).astype("float32")
    labels = np.repeat(np.arange(4), 4)

    def steps(decay):
        """Return the blocks, and how far the first step moves each weight."""
        recipe = Recipe(
            Data("nowhere"),
            Embedder(image_size=8, embedding_dimension=4, widths=(4, 8)),
            fit=Fit(
                optimizer="sgd",
                schedule="constant",
                weight_decay=0.0,
                layer_decay=decay,
                backbone_rate=0.5,
                jit_compile=keras.backend.backend() == "jax",
            ),
        )
        keras.utils.set_random_seed(1)
        embedder = build_embedder_of(recipe)
        model = build_model(embedder, recipe, 4, ContrastiveLoss())
        before = [keras.ops.convert_to_numpy(w).copy() for w in embedder.weights]
        model.train_on_batch(images, labels)
        moved = {
            id(w): keras.ops.convert_to_numpy(w) - value
            for w, value in zip(embedder.weights, before, strict=True)
        }
        blocks = blocks_of(embedder.get_layer("pooling").input)
        blocks.append([embedder.get_layer("dense")])
        return [
            np.concatenate(
                [
                    moved[id(w)].ravel()
                    for layer in block
                    for w in layer.trainable_weights
                ]
            )
            for block in blocks
        ]

    even, falling = steps(1.0), steps(0.25)
    assert len(even) == 4  # the stem, a block of each width, the head
    for step, other, power in zip(even, falling, (3, 2, 1, 0), strict=True):
        assert np.abs(step).max() > 0
        np.testing.assert_allclose(other, step * 0.25**power, rtol=1e-2, atol=1e-7)
