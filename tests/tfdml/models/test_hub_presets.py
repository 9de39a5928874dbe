"""Embedders on presets of KerasHub: the same features, at any size, saved and tuned."""

import re

import keras
import numpy as np
import pytest

from tests.support.closed_port import closed_port
from tests.support.hub_presets import OFFSET, SCALE, write_preset
from tfdml.layers import GeMPooling
from tfdml.models import build_embedder, load_embedder

keras_hub = pytest.importorskip("keras_hub")
LocalEntryNotFoundError = pytest.importorskip(
    "huggingface_hub.errors"
).LocalEntryNotFoundError

pytestmark = pytest.mark.backend

KINDS = {"dinov2": 3, "dinov3": 2, "vit": 1, "clip": 1}
"""How many tokens stand before those of the patches."""


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """Return a function from the kind of a preset to its folder."""
    root, made = tmp_path_factory.mktemp("presets"), {}

    def of(kind):
        if kind not in made:
            made[kind] = str(write_preset(kind, root / kind))
        return made[kind]

    return of


def images(size=16, count=3):
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (count, size, size, 3)).astype("float32")


def features_of_keras_hub(folder, size=16):
    """Compute with KerasHub alone what its network makes of images."""
    backbone = keras_hub.models.Backbone.from_preset(folder)
    tower = getattr(backbone, "vision_encoder", backbone)
    if size != 16:
        tower = keras_hub.models.Backbone.from_preset(
            folder, image_shape=(size, size, 3)
        )
    inputs = images(size) * SCALE + OFFSET
    if isinstance(tower.input, dict):
        inputs = dict.fromkeys(tower.input, inputs)
    return keras.ops.convert_to_numpy(tower(inputs))


def pooled(embedder, size=16):
    pooling = embedder.get_layer("pooling")
    model = keras.Model(embedder.input, pooling.output)
    return keras.ops.convert_to_numpy(model(images(size)))


def embedded(embedder, size=16):
    return keras.ops.convert_to_numpy(embedder(images(size)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_transformers_are_pooled(kind, preset):
    features = features_of_keras_hub(preset(kind))
    patches = features[:, KINDS[kind] :]
    assert patches.shape[1] == 16
    expected = {
        "token": features[:, 0],
        "average": patches.mean(1),
        "max": patches.max(1),
        "gem": keras.ops.convert_to_numpy(GeMPooling()(patches)),
        "flatten": patches.reshape(3, -1),
    }
    for pooling in ("token", "average") if kind != "vit" else expected:
        name = f"keras_hub:{preset(kind)}"
        embedder = build_embedder(16, 4, backbone=name, pooling=pooling)
        received = pooled(embedder)
        np.testing.assert_allclose(received, expected[pooling], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "pooling"), [("siglip", "token"), ("resnet", "max")])
def test_other_features_are_pooled(kind, pooling, preset):
    expected = features_of_keras_hub(preset(kind))
    if pooling == "max":
        expected = expected.max((1, 2))
    embedder = build_embedder(16, 4, backbone=preset(kind), pooling=pooling)
    np.testing.assert_allclose(pooled(embedder), expected, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dinov2", "dinov3", "resnet"])
def test_network_of_another_size_is_that_of_keras_hub(kind, preset):
    features = features_of_keras_hub(preset(kind), size=24)
    expected = features.mean((1, 2)) if kind == "resnet" else features[:, 0]
    pooling = "average" if kind == "resnet" else "token"
    embedder = build_embedder(24, 4, backbone=preset(kind), pooling=pooling)
    np.testing.assert_allclose(pooled(embedder, 24), expected, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vit", "clip", "siglip"])
def test_position_embeddings_are_interpolated(kind, preset):
    """A cubic keeps a slope, but for the edges."""
    own = build_embedder(16, 4, backbone=preset(kind), pooling="token")
    small = positions(own)
    leading = len(small) - 16
    slope = np.arange(4)[:, None] + 10.0 * np.arange(4)
    ramp = np.broadcast_to(slope.reshape(16, 1), (16, 8))
    folder = preset(kind) + "_ramp"
    backbone = keras_hub.models.Backbone.from_preset(preset(kind))
    variable = position_variable(getattr(backbone, "vision_encoder", backbone))
    variable.assign(np.concatenate([small[:leading], ramp]))
    backbone.save_to_preset(folder)
    converter = keras_hub.layers.ImageConverter.from_preset(preset(kind))
    converter.save_to_preset(folder)

    embedder = build_embedder(32, 4, backbone=folder, pooling="token")
    large = positions(embedder)
    np.testing.assert_allclose(large[:leading], small[:leading], atol=1e-6)
    at = (np.arange(8) + 0.5) / 2 - 0.5
    expected = at[:, None] + 10.0 * at
    received = large[leading:].reshape(8, 8, 8)[..., 0]
    inside = slice(3, 5)
    np.testing.assert_allclose(
        received[inside, inside], expected[inside, inside], atol=1e-4
    )
    assert embedded(embedder, 32).shape == (3, 4)


def position_variable(model):
    (found,) = (v for v in model.weights if re.search("position_embedding", v.path))
    return found


def positions(embedder):
    return keras.ops.convert_to_numpy(position_variable(embedder))


def trained(embedder, size=16, steps=2):
    # XLA would compile for longer than all else takes.
    jit = keras.backend.backend() == "jax"
    embedder.compile("sgd", loss="mse", jit_compile=jit)
    targets = np.random.default_rng(2).normal(size=(3, embedder.output_shape[1]))
    embedder.optimizer.learning_rate = 0.5
    embedder.fit(images(size), targets, epochs=steps, batch_size=3, verbose=0)
    return embedder


def moved_additions(embedder):
    """Return the names of the additions that are no longer 0."""
    return {
        weight.name
        for weight in embedder.weights
        if weight.name == "lora_kernel_b" and np.any(keras.ops.convert_to_numpy(weight))
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dinov2", "clip"])
@pytest.mark.parametrize("tuning", ["whole", "lora"])
def test_trained_embedder_is_saved_as_it_is(kind, tuning, preset, tmp_path):
    """KerasHub saves position embeddings of DINOv2 that are trained as others."""
    about = {"backbone": preset(kind), "pooling": "token", "tuning": tuning}
    embedder = build_embedder(24, 4, **about)
    before = embedded(embedder, 24)
    trained(embedder, 24)
    expected = embedded(embedder, 24)
    assert np.abs(expected - before).max() > 1e-3
    assert moved_additions(embedder) == {"lora_kernel_b"} or tuning == "whole"
    embedder.save(tmp_path / "embedder.keras")
    loaded = load_embedder(tmp_path / "embedder.keras")
    received = embedded(loaded, 24)
    np.testing.assert_allclose(received, expected, atol=1e-5)
    assert not any("lora" in weight.path for weight in loaded.weights)


@pytest.mark.slow
def test_mixed_precision_reaches_the_tower_of_a_preset(preset):
    clip = preset("clip")  # written in float32, as those of others
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        embedder = build_embedder(16, 4, backbone=clip, pooling="token")
    finally:
        keras.config.set_dtype_policy("float32")
    tower = next(layer for layer in embedder.layers if isinstance(layer, keras.Model))
    assert tower.layers[-1].compute_dtype == "bfloat16"
    assert embedded(embedder).dtype == "float32"


BACKBONE = {"image_size": 16, "embedding_dimension": 4, "pooling": "token"}


@pytest.mark.parametrize(
    ("argument", "value", "rule", "more"),
    [
        ("image_size", 18, "divisible by the patch size of '.*', 4", {}),
        ("pooling", "average", 'be "token" .*ends in vectors', {"kind": "siglip"}),
        ("pooling", "token", "be another .*ends in a feature map", {"kind": "resnet"}),
        ("weights", "imagenet", "must be None with a preset", {}),
        ("backbone", None, "folder with an image backbone", {"kind": "text"}),
        ("backbone", "keras_hub:dinov2_smal", "Did you mean 'keras_hub:dinov2_", {}),
        ("backbone", "keras_hub:bert_tiny_en_uncased", "of an image backbone", {}),
        ("backbone", "nowhere/preset", r"a folder\) or a .keras file", {}),
        ("backbone", "nowhere/own.keras", "which does not exist", {}),
    ],
)
def test_bad_backbones_are_refused_in_one_line(argument, value, rule, more, preset):
    arguments = {**BACKBONE, "backbone": preset(more.get("kind", "vit"))}
    if value is not None:
        arguments[argument] = value
    with pytest.raises(ValueError, match=f"`{argument}` .*{rule}") as got:
        build_embedder(**arguments)
    message = str(got.value)
    assert "\n" not in message
    assert len(message) <= 500
    assert "Received: " in message


def no_route(**_):
    """Fail as the download from Hugging Face does, after five tries of some seconds."""
    raise LocalEntryNotFoundError(
        "An error happened while trying to locate the file on the Hub and we cannot "
        "find the requested files in the local cache."
    )


@pytest.mark.parametrize("name", ["keras_hub:dinov2_small", "hf://somebody/something"])
def test_preset_that_cannot_be_downloaded_is_told_what_to_do(name, monkeypatch):
    monkeypatch.setattr("huggingface_hub.hf_hub_download", no_route)
    with closed_port() as port:
        address = f"http://127.0.0.1:{port.getsockname()[1]}"
        for variable in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(variable, address)
        with pytest.raises(ValueError, match="`backbone` cannot be downloaded") as got:
            build_embedder(**BACKBONE, backbone=name)
    message = str(got.value)
    assert "Without internet, save the preset on another machine" in message
    assert "\n" not in message
    assert len(message) <= 500


def test_preset_without_image_converter_is_refused(preset, tmp_path):
    backbone = keras_hub.models.Backbone.from_preset(preset("vit"))
    backbone.save_to_preset(tmp_path)
    with pytest.raises(ValueError, match=r"`backbone` .*image_converter\.json"):
        build_embedder(**BACKBONE, backbone=str(tmp_path))
