"""What trains of a backbone: all, nothing, or LoRA's additions."""

import math

import keras
import numpy as np
import pytest
from keras import layers

from tests.support.refuses import refuses
from tfdml.models import build_embedder, load_embedder, lora_merged

pytestmark = pytest.mark.backend

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (4, 8, 8, 3)).astype("float32")
TARGETS = RNG.normal(size=(4, 3)).astype("float32")
SMALL = {"image_size": 8, "embedding_dimension": 3, "widths": (4, 8)}
LORA = {"tuning": "lora", "lora_rank": 2, "lora_layers": "all"}


def embedded(embedder):
    return keras.ops.convert_to_numpy(embedder(IMAGES))


def trained(embedder):
    jit = keras.backend.backend() == "jax"
    embedder.compile(keras.optimizers.SGD(0.5), loss="mse", jit_compile=jit)
    embedder.fit(IMAGES, TARGETS, epochs=2, batch_size=4, verbose=0)
    return embedder


def values(variables):
    return {v.path: np.array(keras.ops.convert_to_numpy(v)) for v in variables}


def changed(embedder):
    """Train an embedder, and return the paths of the variables that have changed."""
    before = values(embedder.variables)
    after = values(trained(embedder).variables)
    return {path for path, value in after.items() if (value != before[path]).any()}


def test_frozen_backbone_leaves_the_head_alone_to_train():
    embedder = build_embedder(**SMALL, tuning="frozen", pooling="gem")
    assert changed(embedder) == {"pooling/p", "dense/kernel", "dense/bias"}


def test_lora_trains_its_additions_and_the_head():
    keras.utils.set_random_seed(1)
    plain = build_embedder(**SMALL)
    keras.utils.set_random_seed(1)
    embedder = build_embedder(**SMALL, **LORA)
    np.testing.assert_allclose(embedded(embedder), embedded(plain), atol=1e-6)
    paths = changed(embedder)
    assert {path.rpartition("/")[2] for path in paths if "dense" not in path} == {
        "lora_kernel_a",
        "lora_kernel_b",
    }
    ranks = {
        v.shape[0 if v.path.endswith("b") else -1]
        for v in embedder.variables
        if v.path in paths and "lora" in v.path
    }
    assert ranks == {2}


@pytest.mark.parametrize("is_merged", [True, False])
def test_lora_is_saved_as_a_plain_kernel(is_merged, tmp_path):
    embedder = trained(build_embedder(**SMALL, **LORA))
    expected = embedded(embedder)
    before = values(embedder.variables)
    file = tmp_path / "embedder.keras"
    if is_merged:
        with lora_merged(embedder):
            embedder.save(file)
    else:
        embedder.save(file)  # Keras merges, and keeps additions of 0
    for path, value in values(embedder.variables).items():
        np.testing.assert_array_equal(value, before[path])
    np.testing.assert_array_equal(embedded(embedder), expected)
    loaded = load_embedder(file)
    np.testing.assert_allclose(embedded(loaded), expected, atol=1e-5)
    assert any("lora" in w.path for w in loaded.weights) != is_merged


def test_lora_of_attention_adapts_queries_and_values(tmp_path):
    images = keras.Input((8, 8, 3))
    tokens = layers.Reshape((4, 8))(layers.Conv2D(8, 4, 4)(images))
    tokens = layers.MultiHeadAttention(2, 4, name="attention")(tokens, tokens)
    keras.Model(images, tokens).save(tmp_path / "own.keras")
    embedder = build_embedder(
        8, 3, backbone=str(tmp_path / "own.keras"), tuning="lora", lora_rank=1
    )
    adapted = {
        layer.name
        for layer in embedder._flatten_layers()
        if getattr(layer, "lora_enabled", False)
    }
    assert adapted == {"query", "value"}


@pytest.mark.parametrize(
    ("argument", "value", "rule", "more"),
    [
        ("tuning", "half", "must be one of whole, lora, frozen", {}),
        ("lora_rank", 0, "must be a whole number of at least 1", {}),
        ("lora_layers", "some", "must be one of attention, all", {}),
        (
            "lora_layers",
            "attention",
            "must be 'all' with a backbone without query and value projections",
            {"tuning": "lora"},
        ),
    ],
)
def test_bad_tuning_is_refused(argument, value, rule, more):
    refuses(
        build_embedder,
        argument=argument,
        value=value,
        rule=rule,
        valid={**SMALL, **more},
    )


def test_lora_without_any_kernel_is_refused(tmp_path):
    images = keras.Input((8, 8, 3))
    x = layers.DepthwiseConv2D(3)(images)
    keras.Model(images, x).save(tmp_path / "own.keras")
    refuses(
        build_embedder,
        argument="tuning",
        value="lora",
        rule="must be 'whole' or 'frozen' with a backbone without dense or conv",
        valid={
            "image_size": 8,
            "backbone": str(tmp_path / "own.keras"),
            "lora_layers": "all",
        },
    )


@pytest.mark.parametrize(
    ("shape", "pooling", "expected"),
    [
        ((2, 2, 5), "average", lambda x: x.mean((1, 2))),
        ((4, 5), "average", lambda x: x.mean(1)),
        ((3, 5), "max", lambda x: x.max(1)),
        ((4, 5), "token", lambda x: x[:, 0]),
        ((5,), "token", lambda x: x),
    ],
    ids=["map", "tokens", "largest", "first", "vector"],
)
def test_own_network_is_pooled_by_the_shape_of_its_output(
    shape, pooling, expected, tmp_path
):
    images = keras.Input((None, None, 3) if len(shape) == 3 else (8, 8, 3))
    x = layers.Conv2D(5, 4, 4)(images)
    if len(shape) < 3:
        x = layers.Dense(math.prod(shape))(layers.Flatten()(x))
        x = layers.Reshape(shape)(x)
    own = keras.Model(images, x)
    own.save(tmp_path / "own.keras")
    embedder = build_embedder(
        8, 3, backbone=str(tmp_path / "own.keras"), pooling=pooling
    )
    pooled = keras.Model(embedder.input, embedder.get_layer("pooling").output)
    received = keras.ops.convert_to_numpy(pooled(IMAGES))
    wanted = expected(keras.ops.convert_to_numpy(own(IMAGES)))
    np.testing.assert_allclose(received, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "argument", "rule"),
    [
        ((16, 16, 3), "image_size", "must be that of the backbone .*16 x 16 pixels"),
        ((8, 8, 1), "backbone", ".*from images .*to one output"),
        ((8, 8, 3), "pooling", 'must be "token" .*ends in vectors'),
    ],
    ids=str,
)
def test_own_network_that_does_not_fit_is_refused(shape, argument, rule, tmp_path):
    images = keras.Input(shape)
    keras.Model(images, layers.Flatten()(images)).save(tmp_path / "own.keras")
    with pytest.raises(ValueError, match=f"`{argument}` {rule}") as got:
        build_embedder(8, 3, backbone=str(tmp_path / "own.keras"))
    assert "Received: " in str(got.value)
    assert len(str(got.value)) <= 500


def test_network_that_images_are_too_small_for_is_refused_in_one_line(tmp_path):
    images = keras.Input((None, None, 3))
    x = layers.Conv2D(4, 16)(images)
    keras.Model(images, layers.GlobalAveragePooling2D()(x)).save(tmp_path / "own.keras")
    file = str(tmp_path / "own.keras")
    with pytest.raises(ValueError, match="`image_size` must be one that") as got:
        build_embedder(8, 3, backbone=file, pooling="token")
    message = str(got.value)
    assert "Received: image_size=8 with the backbone" in message
    assert "\n" not in message
    assert "\x1b" not in message
    assert "rguments" not in message
    assert len(message) <= 500
