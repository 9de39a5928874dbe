"""The exported SavedModel: its signatures, and one image, one embedding."""

import json
import logging
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow.core.protobuf import saved_model_pb2

from serving.__main__ import main
from serving.client import EndpointClient
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.indexing import index_images
from tests.support.encoded_images import (
    IMAGES,
    SIZE,
    VIEWS,
    cut_out,
    encoded,
    photograph,
)
from tests.support.refuses import refuses
from tests.support.search_fixtures import serve_model
from tfdml.export import SavedEmbedder, export_embedder, read_description
from tfdml.images import View, read_image
from tfdml.layers import ClassBoundaries, Proxies, as_similarities
from tfdml.model_version import update_description, write_whole
from tfdml.models import build_embedder
from training.data.data_set import DataSet
from training.data.images import Images


@pytest.fixture(scope="module")
def flat():
    """An embedder that is exported fast."""
    inputs = keras.Input((SIZE, SIZE, 3))
    rows = keras.layers.Dense(8)(keras.layers.Flatten()(inputs))
    return keras.Model(inputs, keras.layers.UnitNormalization()(rows))


def as_files(folder):
    """Write images of one class that differ in all that a reader must see."""
    turned = Image.Exif()
    turned[0x0112] = 6
    gray16 = Image.fromarray(
        np.linspace(0, 65535, 6000, dtype="uint16").reshape(60, -1)
    )
    files = {
        "plain.jpg": IMAGES["JPEG"],
        "turned.jpg": encoded(photograph(), "JPEG", exif=turned),
        "cmyk.jpg": encoded(photograph().convert("CMYK"), "JPEG"),
        "cut-out.png": IMAGES["cut-out PNG"],
        "cut-out.webp": encoded(cut_out().rotate(180), "WEBP", lossless=True),
        "gray16.png": encoded(gray16, "PNG"),
        "palette.bmp": encoded(photograph().quantize(64), "BMP"),
        "tall.tif": encoded(photograph(200, 50), "TIFF"),
        "small.png": IMAGES["PNG smaller than the model"],
    }
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return tuple(folder / name for name in sorted(files))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "squash",
        pytest.param("resize and cut", marks=pytest.mark.full),
        "pad, resize and cut",
    ],
)
def test_one_image_has_one_embedding_wherever_it_is_read(exported, name, tmp_path):
    """Training, index, endpoint with a client, and the graph with bytes alone."""
    folder, embedder, _ = exported
    view = VIEWS[name]
    run = tmp_path / "run"
    run.mkdir()
    (run / "embedder.keras").write_bytes((folder / "embedder.keras").read_bytes())
    table = {"resize": view.resize, "pad": view.pad, "crop": "none"}
    (run / "recipe.json").write_text(json.dumps({"images": table}))
    assert main(["export", str(run), str(tmp_path / "model" / "1")]) == 0
    assert SavedEmbedder(tmp_path / "model" / "1").view == view

    files = as_files(tmp_path / "images")
    count = len(files)
    data = DataSet(files, np.zeros(count, int), np.full(count, "test"), ("all",))
    images = Images(data, view).central(range(count))
    expected = embedder.predict(images, verbose=0)

    index_images(tmp_path / "images", tmp_path / "index", tmp_path / "model")
    found = load_gallery(tmp_path / "index")[0].search(expected, 1)
    assert list(found.ids[:, 0]) == [file.name for file in files]
    np.testing.assert_allclose(found.scores[:, 0], 1, atol=1e-5)

    with serve_model(tmp_path / "model") as url, EndpointClient(url) as client:
        assert client.metadata().view == view
        received = client.embed(files)
    np.testing.assert_allclose(np.sum(received * expected, axis=1), 1, atol=1e-4)
    shrunk = [file.name != "small.png" for file in files]
    np.testing.assert_allclose(received[shrunk], expected[shrunk], atol=1e-5)

    graph = tf.saved_model.load(tmp_path / "model" / "1").signatures["serving_default"]
    for file, row in zip(files, expected, strict=True):
        if file.name in ("plain.jpg", "cmyk.jpg", "cut-out.png", "small.png"):
            served = graph(image_bytes=tf.constant([file.read_bytes()]))["embedding"]
            assert float(np.sum(served.numpy() * row)) >= 0.9999


def test_view_signature_shows_what_the_model_sees(flat, tmp_path):
    view = View(SIZE, resize=32, pad=True)
    export_embedder(flat, tmp_path / "1", view)
    model = tf.saved_model.load(tmp_path / "1")
    shown = model.signatures["view_32_padded"](
        image_bytes=tf.constant([IMAGES["JPEG"], IMAGES["GIF"]])
    )["images"]
    assert shown.dtype == tf.uint8
    for image, name in zip(shown.numpy(), ("JPEG", "GIF"), strict=True):
        expected = view.central(read_image(IMAGES[name])).astype(int)
        assert np.abs(image - expected).max() <= 1


def test_model_that_squashes_has_no_other_signature(exported):
    assert set(exported[2].signatures) == {"serving_default", "tensors", "describe"}


def test_view_of_another_size_is_refused(flat, tmp_path):
    with pytest.raises(ValueError, match=r"size of the embedder's input, 24.*=25"):
        export_embedder(flat, tmp_path / "1", View(25))


def test_tensors_signature_gives_exactly_the_training_embedding(exported):
    _, embedder, model = exported
    images = np.random.default_rng(1).integers(0, 256, (3, SIZE, SIZE, 3))
    images = images.astype("uint8")
    served = model.signatures["tensors"](images=tf.constant(images))["embedding"]
    expected = embedder.predict(images, verbose=0)
    np.testing.assert_allclose(served.numpy(), expected, atol=1e-6)


def test_signatures_have_the_names_and_types_of_the_contract(exported):
    signatures = exported[2].signatures
    bytes_in = signatures["serving_default"].structured_input_signature[1]
    assert bytes_in["image_bytes"].dtype == tf.string
    assert bytes_in["image_bytes"].shape.as_list() == [None]
    tensors_in = signatures["tensors"].structured_input_signature[1]
    assert tensors_in["images"].dtype == tf.uint8
    assert tensors_in["images"].shape.as_list() == [None, SIZE, SIZE, 3]
    for name in ("serving_default", "tensors"):
        assert list(signatures[name].structured_outputs) == ["embedding"]


def test_batch_of_images_of_different_sizes_is_embedded(exported):
    signature = exported[2].signatures["serving_default"]
    data = [IMAGES["JPEG"], IMAGES["PNG smaller than the model"], IMAGES["GIF"]]
    together = signature(image_bytes=tf.constant(data))["embedding"].numpy()
    alone = [signature(image_bytes=tf.constant([d]))["embedding"].numpy() for d in data]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-5)


def test_embedder_of_another_input_is_refused(tmp_path):
    inputs = keras.Input((8, 6, 3))
    model = keras.Model(inputs, keras.layers.Flatten()(inputs))
    with pytest.raises(ValueError, match=r"size, size, 3\].*\(None, 8, 6, 3\)"):
        export_embedder(model, tmp_path / "1")


def test_embedder_without_one_embedding_a_image_is_refused(tmp_path):
    inputs = keras.Input((8, 8, 3))
    model = keras.Model(inputs, keras.layers.Conv2D(4, 3)(inputs))
    with pytest.raises(ValueError, match=r"dimension\].*\(None, 6, 6, 4\)"):
        export_embedder(model, tmp_path / "1")


def exported_rows(model, folder):
    """Return the embeddings of three images by a model, and by its export."""
    export_embedder(model, folder)
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3)).astype("uint8")
    call = tf.saved_model.load(folder).signatures["tensors"]
    rows = call(images=tf.constant(images))["embedding"].numpy()
    return images.astype("float32"), rows


@pytest.mark.parametrize("last", [None, Proxies(5), Proxies(5, 3), ClassBoundaries(5)])
def test_exported_rows_are_unit_vectors_whatever_the_model_ends_in(last, tmp_path):
    layers = [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(4)]
    embedder = keras.Sequential(layers)
    model = keras.Sequential([*layers, last]) if last else embedder
    images, rows = exported_rows(model, tmp_path / "1")
    embeddings = embedder.predict(images, verbose=0)
    expected = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    np.testing.assert_allclose(rows, expected, atol=1e-6)


def test_row_of_zeros_stays_one(tmp_path):
    inputs = keras.Input((8, 8, 3))
    model = keras.Model(inputs, 0.0 * keras.layers.Flatten()(inputs))
    assert not exported_rows(model, tmp_path / "1")[1].any()


class _Own(keras.layers.Dense):
    def call(self, inputs):
        return as_similarities(super().call(inputs))


def _without_one_embedding():
    images = keras.Input((8, 8, 3))
    rows = keras.layers.Flatten()(images)
    return {
        "2 outputs": keras.Model(images, [rows, rows + 1]),
        "similarities with proxies": keras.Model(images, _Own(4)(rows)),
        "'embedder.keras'": "embedder.keras",
        "Received: None": keras.Sequential([keras.layers.Flatten()]),
    }


@pytest.mark.parametrize("received", _without_one_embedding())
def test_model_that_is_no_embedder_is_refused(received, tmp_path):
    model = _without_one_embedding()[received]
    with pytest.raises(ValueError, match=f"must .*{received}"):
        export_embedder(model, tmp_path / "1")
    assert not (tmp_path / "1").exists()


@pytest.mark.parametrize("rows", [0, 1, 3, 33])
def test_any_number_of_rows_is_embedded(exported, rows):
    _, embedder, model = exported
    data = [IMAGES["JPEG"], IMAGES["GIF"], IMAGES["cut-out PNG"]] * 11
    data = data[:rows]
    served = model.signatures["serving_default"](
        image_bytes=tf.constant(data, tf.string)
    )
    assert served["embedding"].shape == (rows, 8)
    pixels = np.zeros((rows, SIZE, SIZE, 3), "uint8")
    for row, image in enumerate(data):
        pixels[row] = View(SIZE).central(read_image(image))
    received = model.signatures["tensors"](images=tf.constant(pixels))["embedding"]
    assert received.shape == (rows, 8)
    if rows:
        expected = embedder.predict(pixels, verbose=0)
        np.testing.assert_allclose(received, expected, atol=1e-6)
        assert np.sum(served["embedding"].numpy() * expected, axis=1).min() >= 0.9999
    told = model.signatures["describe"](request=tf.fill([rows], "x"))["description"]
    assert told.shape == (rows,)


def test_embedding_of_mixed_precision_is_float32(tmp_path):
    policy = keras.dtype_policies.DTypePolicy("mixed_float16")
    inputs = keras.Input((8, 8, 3))
    rows = keras.layers.Flatten(dtype=policy)(inputs)
    rows = keras.layers.Dense(4, dtype=policy)(rows)
    export_embedder(keras.Model(inputs, rows), tmp_path / "1")
    model = tf.saved_model.load(tmp_path / "1")
    for count in (0, 2):
        images = tf.zeros([count, 8, 8, 3], tf.uint8)
        received = model.signatures["tensors"](images=images)["embedding"]
        assert received.dtype == tf.float32
        assert received.shape == (count, 4)


def test_description_is_read_when_it_is_asked_for(flat, tmp_path):
    export_embedder(flat, tmp_path / "before")
    folder = (tmp_path / "before").rename(tmp_path / "1")
    describe = tf.saved_model.load(folder).signatures["describe"]
    for fingerprint in ("a", "b"):
        update_description(folder, fingerprint=fingerprint)
        told = json.loads(describe(request=tf.constant([""]))["description"].numpy()[0])
        assert told == read_description(folder)
        assert told["fingerprint"] == fingerprint


def test_sessions_tell_the_description_too(exported):
    """TF Serving runs a SavedModel in a session."""
    folder = exported[0] / "model" / "1"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loader = tf.compat.v1.saved_model.loader
        definition = loader.load(session, ["serve"], str(folder))
        signature = definition.signature_def["describe"]
        (told,) = session.run(
            signature.outputs["description"].name,
            {signature.inputs["request"].name: [""]},
        )
    assert json.loads(told) == read_description(folder)


def test_description_tells_what_the_model_does(flat, tmp_path):
    view = View(SIZE, resize=32, pad=True)
    export_embedder(flat, tmp_path / "1", view, output_dtype="float16")
    description = read_description(tmp_path / "1")
    assert description["format"] == 1
    assert View(**description["preprocessing"]["config"]) == view
    assert description["embedding"] == {
        "dimension": 8,
        "metric": "cosine",
        "signatures": {
            "serving_default": "float32",
            "tensors": "float32",
            "embed_float16": "float16",
        },
    }
    assert description["versions"]["tensorflow"] == tf.__version__


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "must be JSON"), ("[]", "format 1"), ('{"format": 2}', "format 1.*2")],
)
def test_damaged_description_is_named(tmp_path, text, reason):
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "tfdml.json").write_text(text)
    with pytest.raises(ValueError, match=rf"tfdml.json is damaged: .*{reason}"):
        read_description(tmp_path)


def test_export_holds_no_path_of_the_machine(exported, tmp_path):
    graph = (exported[0] / "model" / "1" / "saved_model.pb").read_bytes()
    assert str(tmp_path.parent).encode() not in graph
    assert str(exported[0]).encode() not in graph
    assert b"/tmp" not in graph


def test_few_images_are_decoded_at_one_time(exported):
    # A batch of the largest images must fit into memory.
    content = (exported[0] / "model" / "1" / "saved_model.pb").read_bytes()
    model = saved_model_pb2.SavedModel.FromString(content)
    loops = [
        node.attr["parallel_iterations"].i
        for graph in model.meta_graphs
        for function in graph.graph_def.library.function
        for node in function.node_def
        if node.op in ("While", "StatelessWhile")
    ]
    assert loops
    assert set(loops) == {2}


def test_folder_appears_when_it_is_complete(flat, tmp_path):
    def look(folder):
        assert (folder / "saved_model.pb").is_file()
        assert not (tmp_path / "1").exists()
        (folder / "added").touch()

    export_embedder(flat, tmp_path / "1", complete=look)
    assert (tmp_path / "1" / "added").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_what_fails_leaves_nothing(tmp_path):
    def write(folder):
        folder.mkdir()
        (folder / "saved_model.pb").touch()
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        write_whole(tmp_path / "1", write)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_model_runs_where_there_is_neither_keras_nor_tfdml_nor_scann(
    exported, tmp_path
):
    _, embedder, _ = exported
    export_embedder(embedder, tmp_path / "1", output_dtype="int8")
    model = tf.saved_model.load(tmp_path / "1")
    image = tmp_path / "image.jpg"
    image.write_bytes(IMAGES["JPEG"])
    code = (
        "import json, sys\n"
        "for name in ('keras', 'tf_keras', 'tfdml', 'scann', 'serving'):\n"
        "    sys.modules[name] = None\n"
        "import tensorflow as tf\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        "data = tf.constant([open(sys.argv[2], 'rb').read()])\n"
        "served = {}\n"
        "for name in ('serving_default', 'embed_int8'):\n"
        "    outputs = model.signatures[name](image_bytes=data)\n"
        "    served[name] = outputs['embedding'].numpy().tolist()\n"
        "images = tf.zeros([2, 24, 24, 3], tf.uint8)\n"
        "outputs = model.signatures['tensors'](images=images)\n"
        "served['tensors'] = outputs['embedding'].numpy().tolist()\n"
        "print(json.dumps(served))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "1", image],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)
    data = tf.constant([IMAGES["JPEG"]])
    for name in ("serving_default", "embed_int8"):
        expected = model.signatures[name](image_bytes=data)["embedding"].numpy()
        np.testing.assert_allclose(served[name], expected, atol=1e-6)
    black = np.zeros((2, SIZE, SIZE, 3), "uint8")
    expected = embedder.predict(black, verbose=0)
    np.testing.assert_allclose(served["tensors"], expected, atol=1e-6)


def test_notebooks_are_told_nothing_of_the_unfinished_folder(
    flat, tmp_path, monkeypatch
):
    logger, notes = tf.get_logger(), []
    before = logger.level
    logger.setLevel("INFO")  # as TensorFlow does in a notebook
    monkeypatch.setattr(logger, "handle", notes.append)
    try:
        export_embedder(flat, tmp_path / "1")
        assert logger.level == logging.INFO
    finally:
        logger.setLevel(before)
    assert notes == []


def test_embeddings_of_any_length_are_exported_as_they_are(tmp_path):
    keras.utils.set_random_seed(3)
    embedder = build_embedder(SIZE, 8, widths=(8,), unit_length=False)
    for number, version in enumerate((embedder, keras.Sequential([embedder]))):
        if number:
            version.add(Proxies(3))
        export_embedder(version, tmp_path / str(number))
        model = SavedEmbedder(tmp_path / str(number))
        pixels = np.random.default_rng(0).integers(0, 256, (3, SIZE, SIZE, 3), "uint8")
        expected = embedder.predict(pixels.astype("float32"), verbose=0)
        np.testing.assert_allclose(model.embed(pixels), expected, rtol=1e-4, atol=1e-5)
        assert (np.abs(np.linalg.norm(expected, axis=1) - 1) > 1e-3).all()
        assert model.metric == "squared_euclidean"
        described = read_description(tmp_path / str(number))
        assert described["embedding"]["metric"] == "squared_euclidean"
    for output_dtype in ("float16", "int8"):
        refuses(
            lambda output_dtype: export_embedder(
                embedder, tmp_path / "small", output_dtype=output_dtype
            ),
            argument="output_dtype",
            value=output_dtype,
            rule="must be 'float32' with embeddings of any length",
        )


def test_model_that_does_not_say_is_compared_by_cosine(exported, tmp_path):
    folder = exported[0] / "model" / "1"
    assert SavedEmbedder(folder).metric == "cosine"
    shutil.copytree(folder, tmp_path / "1")
    description = read_description(tmp_path / "1")
    del description["embedding"]["metric"]
    update_description(tmp_path / "1", **description)
    assert SavedEmbedder(tmp_path / "1").metric == "cosine"
    description["embedding"]["metric"] = "manhattan"
    update_description(tmp_path / "1", **description)
    with pytest.raises(ValueError, match="must be cosine or squared_euclidean"):
        SavedEmbedder(tmp_path / "1")
