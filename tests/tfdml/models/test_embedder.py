"""Embedders: build, preprocess, save, load."""

import zipfile

import keras
import numpy as np
import pytest

from tests.support.refuses import refuses
from tfdml.layers import ClassBoundaries, Proxies
from tfdml.models import build_embedder, load_embedder, search_metric

pytestmark = pytest.mark.backend

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype("float32")


@pytest.mark.parametrize(
    "pooling", ["average", "max", "average_and_max", "gem", "flatten"]
)
def test_residual_embedder_gives_unit_rows(pooling):
    embedder = build_embedder(32, 12, pooling=pooling, widths=(8, 16), blocks=2)
    embeddings = embedder.predict(IMAGES, verbose=0)
    assert embeddings.shape == (3, 12)
    assert embeddings.dtype == "float32"
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)


def test_average_and_max_pooling_is_their_sum():
    embedder = build_embedder(32, 12, pooling="average_and_max", widths=(8,))
    pool = embedder.get_layer("pooling")
    maps = pool.input[0]._keras_history.operation.input
    received = keras.Model(embedder.inputs, [maps, pool.output]).predict(
        IMAGES, verbose=0
    )
    expected = received[0].mean((1, 2)) + received[0].max((1, 2))
    np.testing.assert_allclose(received[1], expected, rtol=1e-5)


def test_saved_embedder_gives_the_same_embeddings(tmp_path):
    embedder = build_embedder(32, 12, widths=(8,), dropout=0.5)
    embedder.save(tmp_path / "embedder.keras")
    loaded = load_embedder(tmp_path / "embedder.keras")
    np.testing.assert_array_equal(
        loaded.predict(IMAGES, verbose=0), embedder.predict(IMAGES, verbose=0)
    )


@pytest.mark.parametrize("last", [Proxies(5), Proxies(5, 3), ClassBoundaries(5)])
def test_model_saved_with_proxies_is_loaded_without_them(tmp_path, last):
    embedder = build_embedder(8, 4, widths=(4,))
    keras.Sequential([embedder, last]).save(tmp_path / "trained.keras")
    loaded = load_embedder(tmp_path / "trained.keras")
    images = np.random.default_rng(0).uniform(0, 255, (3, 8, 8, 3)).astype("float32")
    expected = embedder.predict(images, verbose=0)
    np.testing.assert_allclose(loaded.predict(images, verbose=0), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "'.*none.keras', which does not exist"),
        (b"no archive", "which is damaged or of another format"),
        ({}, "which Keras cannot load .KeyError.*config.json"),
        ({"config.json": b"{"}, "which Keras cannot load .JSONDecodeError"),
    ],
)
def test_file_that_holds_no_model_is_reported_in_one_line(content, reason, tmp_path):
    file = tmp_path / "none.keras"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        with zipfile.ZipFile(file, "w") as archive:
            for name, inside in content.items():
                archive.writestr(name, inside)
    with pytest.raises(
        ValueError, match=f"`path` must be.*Received: .*{reason}"
    ) as got:
        load_embedder(file)
    assert "\n" not in str(got.value)


def test_half_of_a_file_is_reported_as_damaged(tmp_path):
    file = tmp_path / "embedder.keras"
    build_embedder(8, 2, widths=(2,)).save(file)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match="which is damaged or of another format"):
        load_embedder(str(file))


def test_class_that_nobody_knows_is_named_in_one_line(tmp_path):
    class Unknown(keras.layers.Layer):
        def call(self, x):
            return x

    images = keras.Input((8, 8, 3))
    outputs = keras.layers.Flatten()(Unknown()(images))
    keras.Model(images, outputs).save(tmp_path / "own.keras")
    with pytest.raises(
        ValueError, match=r"Could not locate class 'Unknown'\)\.$"
    ) as got:
        load_embedder(tmp_path / "own.keras")
    assert "\n" not in str(got.value)


@pytest.mark.parametrize(
    ("shape", "flat"),
    [
        ((8,), False),
        ((8, 8, 1), True),
        ((8, 6, 3), True),
        ((8, 8, 3), False),
        ((None, None, 3), None),
    ],
    ids=str,
)
def test_model_that_is_no_embedder_is_reported_by_its_shapes(shape, flat, tmp_path):
    layers = [keras.Input(shape), keras.layers.Dense(2)]
    if flat is not False:
        layers.append(
            keras.layers.Flatten() if flat else keras.layers.GlobalMaxPool2D()
        )
    model = keras.Sequential(layers)
    model.save(tmp_path / "other.keras")
    sides = ", ".join(map(str, shape))
    with pytest.raises(
        ValueError, match=rf"hold an embedder.*from \(None, {sides},?\) "
    ):
        load_embedder(tmp_path / "other.keras")


def test_model_of_two_inputs_is_no_embedder(tmp_path):
    first, second = keras.Input((8, 8, 3)), keras.Input((8, 8, 3))
    both = keras.layers.Flatten()(keras.layers.Add()([first, second]))
    keras.Model([first, second], both).save(tmp_path / "two.keras")
    with pytest.raises(ValueError, match="must hold an embedder"):
        load_embedder(tmp_path / "two.keras")


@pytest.mark.parametrize(
    ("backbone", "module"),
    [
        ("MobileNet", keras.applications.mobilenet),
        ("VGG16", keras.applications.vgg16),
        pytest.param(
            "DenseNet121", keras.applications.densenet, marks=pytest.mark.slow
        ),
    ],
)
def test_preprocessing_is_that_of_the_application(backbone, module):
    embedder = build_embedder(32, 8, backbone=backbone)
    layer = embedder.get_layer("preprocessing")
    received = keras.ops.convert_to_numpy(layer(IMAGES))
    expected = np.asarray(module.preprocess_input(IMAGES.copy()))
    np.testing.assert_allclose(received, expected, atol=1e-4)


@pytest.mark.slow
def test_application_is_built_and_trained_weights_are_loaded(tmp_path):
    first = build_embedder(32, 8, backbone="MobileNetV3Small")
    network = next(x for x in first.layers if isinstance(x, keras.Model))
    network.save_weights(tmp_path / "backbone.weights.h5")
    second = build_embedder(
        32,
        8,
        backbone="MobileNetV3Small",
        weights=str(tmp_path / "backbone.weights.h5"),
    )
    again = next(x for x in second.layers if isinstance(x, keras.Model))
    for a, b in zip(network.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_failed_download_is_reported_with_the_remedy(monkeypatch):
    def fail(**arguments):
        raise Exception("URL fetch failure")

    monkeypatch.setattr(keras.applications, "MobileNet", fail)
    with pytest.raises(
        ValueError, match=r"MobileNet cannot be downloaded: URL fetch.*path of"
    ):
        build_embedder(32, 8, backbone="MobileNet", weights="imagenet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"image_size": 4},
            "`image_size` must be a whole number of at least 8.*image_size=4",
        ),
        (
            {"embedding_dimension": 0},
            "`embedding_dimension` must be a whole number of at least 1",
        ),
        ({"pooling": "mean"}, "`pooling` must be one of .* Received: pooling='mean'"),
        (
            {"backbone": "MobileNot"},
            "such as MobileNet, .*'MobileNot'",
        ),
        ({"weights": "imagenet"}, "`weights` must be None with backbone='residual'"),
        ({"widths": ()}, "`widths` must have at least one stage"),
        ({"blocks": 0}, "`blocks` must be a whole number of at least 1"),
        ({"stem_stride": 0}, "`stem_stride` must be a whole number of at least 1"),
        (
            {"dropout": 1.0},
            "`dropout` must be at least 0 and below 1. Received: dropout=1.0",
        ),
    ],
)
def test_impossible_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_embedder(**{"image_size": 32, **arguments})


def test_embeddings_of_any_length_are_those_of_the_last_dense_layer(tmp_path):
    embedder = build_embedder(32, 12, widths=(8,), unit_length=False)
    dense = keras.Model(embedder.inputs, embedder.get_layer("dense").output)
    expected = dense.predict(IMAGES, verbose=0)
    lengths = np.linalg.norm(expected, axis=1)
    assert (np.abs(lengths - 1) > 1e-3).all()
    np.testing.assert_array_equal(embedder.predict(IMAGES, verbose=0), expected)
    embedder.save(tmp_path / "embedder.keras")
    loaded = load_embedder(tmp_path / "embedder.keras")
    np.testing.assert_array_equal(loaded.predict(IMAGES, verbose=0), expected)
    assert search_metric(embedder) == search_metric(loaded) == "squared_euclidean"


def test_embedder_says_how_its_embeddings_are_compared(tmp_path):
    unit = build_embedder(8, 4, widths=(4,))
    free = build_embedder(8, 4, widths=(4,), unit_length=False)
    assert search_metric(unit) == "cosine"
    for embedder, metric in ((unit, "cosine"), (free, "squared_euclidean")):
        around = keras.Sequential([keras.Input((8, 8, 3)), embedder])
        assert search_metric(around) == metric
        keras.Sequential([embedder, Proxies(5)]).save(tmp_path / "trained.keras")
        assert search_metric(load_embedder(tmp_path / "trained.keras")) == metric
    # A network of one's own is compared as it ever was.
    own = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten()])
    assert search_metric(own) == "cosine"


def test_embeddings_of_any_length_are_float32_in_mixed_precision():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        embedder = build_embedder(8, 4, widths=(4,), unit_length=False)
    finally:
        keras.config.set_dtype_policy(before)
    assert embedder.output.dtype == "float32"


def test_unit_length_is_true_or_false():
    refuses(
        build_embedder,
        argument="unit_length",
        value="no",
        rule="must be True or False",
        valid={"image_size": 8},
    )
