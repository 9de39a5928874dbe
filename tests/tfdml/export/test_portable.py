"""An embedder as one file: ONNX and LiteRT answer as Keras does, without it."""

import hashlib
import json
import sys

import keras
import numpy as np
import pytest

from tests.support.encoded_images import IMAGES
from tests.support.refuses import refuses
from tfdml.export import export_file
from tfdml.images import View, read_image
from tfdml.models import build_embedder

pytestmark = pytest.mark.slow

SIZE = 24


def run_onnx(file, images):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `onnx`")
    session = onnxruntime.InferenceSession(
        str(file), providers=["CPUExecutionProvider"]
    )
    (taken,), (given,) = session.get_inputs(), session.get_outputs()
    assert (taken.name, taken.type) == ("images", "tensor(uint8)")
    assert taken.shape == ["batch", SIZE, SIZE, 3]
    assert (given.name, given.type, given.shape[0]) == (
        "embedding",
        "tensor(float)",
        "batch",
    )
    return session.run(None, {"images": images})[0]


def run_litert(file, images):
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="extra `litert`")
    runner = litert.Interpreter(model_path=str(file)).get_signature_runner()
    (taken,) = runner.get_input_details().values()
    assert taken["dtype"] is np.uint8
    assert taken["shape_signature"].tolist() == [-1, SIZE, SIZE, 3]
    found = runner(images=images)
    assert list(found) == ["embedding"]
    return found["embedding"]


FORMATS = {"onnx": ("model.onnx", run_onnx), "litert": ("model.tflite", run_litert)}
formats = pytest.mark.parametrize("name", FORMATS)


def embedder_of(policy="float32"):
    keras.utils.set_random_seed(1)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        return build_embedder(SIZE, 8, widths=(8, 16))
    finally:
        keras.config.set_dtype_policy(before)


@pytest.fixture(scope="module")
def embedder():
    return embedder_of()


@pytest.fixture(scope="module")
def images():
    view = View(SIZE)
    shown = [view.central(read_image(data)) for data in list(IMAGES.values())[:5]]
    return np.stack(shown)


@formats
def test_file_answers_as_keras_for_any_number_of_images(
    name, embedder, images, tmp_path
):
    ending, run = FORMATS[name]
    file = tmp_path / ending
    export_file(embedder, file, View(SIZE, 32), format=name, members={"source": "run"})
    expected = embedder.predict(images, verbose=0)
    for count in (1, len(images)):
        rows = run(file, images[:count])
        assert rows.dtype == np.float32
        np.testing.assert_allclose(rows, expected[:count], atol=1e-5)
    assert {path.name for path in tmp_path.iterdir()} == {ending, f"{ending}.json"}
    about = json.loads((tmp_path / f"{ending}.json").read_text("utf-8"))
    assert about["fingerprint"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert about["input"] == {
        "name": "images",
        "dtype": "uint8",
        "shape": [None, SIZE, SIZE, 3],
    }
    assert about["output"]["shape"] == [None, 8]
    assert about["preprocessing"]["config"] == {
        "image_size": SIZE,
        "resize": 32,
        "pad": False,
    }
    assert "formats" not in about["preprocessing"]
    assert about["source"] == "run"


@formats
def test_mixed_precision_and_rows_of_any_length_become_float32_unit_rows(
    name, images, tmp_path
):
    ending, run = FORMATS[name]
    mixed = embedder_of("mixed_float16")
    mixed = keras.Model(mixed.inputs, mixed.layers[-1].input)  # without unit length
    export_file(mixed, tmp_path / ending, format=name)
    rows = run(tmp_path / ending, images)
    expected = mixed.predict(images, verbose=0).astype("float32")
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(rows, expected, atol=5e-3)  # float16 had 3 digits


@pytest.mark.parametrize(
    ("argument", "value", "rule"),
    [
        ("format", "openvino", "must be one of 'onnx', 'litert'"),
        ("file", "model.tflite", "must end in .onnx"),
        ("file", "model", "must end in .onnx"),
        ("view", View(SIZE + 8), "must have the size of the embedder's input"),
        ("embedder", "run", "must be a Keras model"),
    ],
)
def test_bad_arguments_are_refused(argument, value, rule, embedder, tmp_path):
    valid = {"embedder": embedder, "file": tmp_path / "model.onnx", "format": "onnx"}
    refuses(export_file, argument=argument, value=value, rule=rule, valid=valid)
    assert not list(tmp_path.iterdir())


def test_a_file_is_never_overwritten(embedder, tmp_path):
    file = tmp_path / "model.onnx"
    file.write_text("mine")
    with pytest.raises(FileExistsError, match="exists already"):
        export_file(embedder, file, format="onnx")
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "package"), [("onnx", "onnxruntime"), ("litert", "ai_edge_litert")]
)
def test_a_missing_package_is_named_with_its_extra(
    name, package, embedder, tmp_path, monkeypatch
):
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install \"tfdml\[{name}\]\""):
        export_file(embedder, tmp_path / FORMATS[name][0], format=name)


def test_a_file_that_answers_otherwise_does_not_appear(embedder, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(
        "tfdml.export._portable._run_onnx", lambda file, images: np.ones((3, 8))
    )
    with pytest.raises(RuntimeError, match="answers otherwise than Keras, by up to"):
        export_file(embedder, tmp_path / "model.onnx", format="onnx")
    assert not list(tmp_path.iterdir())


def test_a_file_that_does_not_run_does_not_appear(embedder, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")

    def lacks_an_input(file, images):
        raise ValueError("Required inputs are missing.")

    monkeypatch.setattr("tfdml.export._portable._run_onnx", lacks_an_input)
    with pytest.raises(RuntimeError, match="written as onnx: Required inputs are mis"):
        export_file(embedder, tmp_path / "model.onnx", format="onnx")
    assert not list(tmp_path.iterdir())


@formats
def test_gelu_of_transformers_is_written(name, images, tmp_path):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((SIZE, SIZE, 3))
    x = keras.layers.Rescaling(1 / 127.5, offset=-1.0)(inputs)
    x = keras.layers.Conv2D(8, 8, 8, activation="gelu")(x)
    embedder = keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(x))
    file, run = FORMATS[name]
    pytest.importorskip({"onnx": "tf2onnx", "litert": "ai_edge_litert"}[name])
    export_file(embedder, tmp_path / file, format=name)
    expected = embedder.predict(images.astype("float32"), verbose=0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(run(tmp_path / file, images), expected, atol=1e-4)


class Shifted(keras.layers.Layer):
    """A layer that keeps a tensor, as the positions of KerasHub's ViT are."""

    def build(self, shape):
        self.shift = keras.ops.arange(shape[-1], dtype="float32") + 1

    def call(self, x):
        return x + self.shift


@formats
def test_tensors_that_layers_keep_are_written(name, images, tmp_path):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((SIZE, SIZE, 3))
    x = keras.layers.Conv2D(8, 8, 8)(keras.layers.Rescaling(1 / 127.5)(inputs))
    shifted = Shifted()
    inner = keras.Model(inputs, shifted(keras.layers.GlobalAveragePooling2D()(x)))
    embedder = keras.Model(inputs, inner(inputs))
    kept = shifted.shift
    file, run = FORMATS[name]
    pytest.importorskip({"onnx": "tf2onnx", "litert": "ai_edge_litert"}[name])
    export_file(embedder, tmp_path / file, format=name)
    assert shifted.shift is kept
    expected = embedder.predict(images.astype("float32"), verbose=0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(run(tmp_path / file, images), expected, atol=1e-4)


class Whole(keras.Model):
    """A network that is built from its own arguments, as those of KerasHub are."""

    def __init__(self, width, **kwargs):
        images = keras.Input((SIZE, SIZE, 3))
        dtype = kwargs.pop("dtype", None)
        x = keras.layers.Conv2D(width, 8, 8, dtype=dtype)(images)
        super().__init__(images, x, **kwargs)
        self.width = width

    def get_config(self):
        return {"width": self.width, "name": self.name}


@formats
def test_mixed_precision_of_a_class_of_its_own_is_written(name, images, tmp_path):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((SIZE, SIZE, 3))
    x = keras.layers.Rescaling(1 / 127.5, offset=-1.0)(inputs)
    x = Whole(8, dtype="mixed_bfloat16")(x)
    pooled = keras.layers.GlobalAveragePooling2D(dtype="mixed_bfloat16")(x)
    embedder = keras.Model(inputs, pooled)
    file, run = FORMATS[name]
    pytest.importorskip({"onnx": "tf2onnx", "litert": "ai_edge_litert"}[name])
    export_file(embedder, tmp_path / file, format=name)
    rows = run(tmp_path / file, images)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


@formats
def test_embeddings_of_any_length_are_written_as_they_are(name, tmp_path):
    keras.utils.set_random_seed(1)
    embedder = build_embedder(SIZE, 8, widths=(8,), unit_length=False)
    file, run = FORMATS[name]
    pytest.importorskip({"onnx": "tf2onnx", "litert": "ai_edge_litert"}[name])
    export_file(embedder, tmp_path / file, format=name)
    pixels = np.random.default_rng(0).integers(0, 256, (2, SIZE, SIZE, 3), "uint8")
    expected = embedder.predict(pixels.astype("float32"), verbose=0)
    np.testing.assert_allclose(run(tmp_path / file, pixels), expected, rtol=1e-3)
    described = json.loads((tmp_path / f"{file}.json").read_text("utf-8"))
    assert described["embedding"]["metric"] == "squared_euclidean"
