"""The exported SavedModel: its signatures, and one picture, one embedding."""

import io
import json
import socket
import subprocess
import sys
import urllib.request

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from serving.__main__ import main
from serving.client import EndpointClient
from serving.gallery import load_gallery
from serving.indexing import index_images
from tests.search_fixtures import serve_model
from tests.small_images import write_shapes
from tfdml.embedder import build_embedder
from tfdml.export import _training_form, export_embedder
from tfdml.images import encode_png, read_image
from tfdml.saved_embedder import SavedEmbedder
from tfdml.views import View
from training.data.data_set import DataSet
from training.pictures import Pictures

SIZE = 24


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    keras.utils.set_random_seed(3)
    folder = tmp_path_factory.mktemp("export")
    embedder = build_embedder(SIZE, 8, widths=(8, 16), pooling="flatten")
    embedder.save(folder / "embedder.keras")
    export_embedder(embedder, folder / "model" / "1")
    return folder, embedder, tf.saved_model.load(folder / "model" / "1")


def photograph(height=150, width=210):
    """Return a picture with smooth areas, edges and noise, as photographs have."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width]
    smooth = np.stack([x * 255 / width, y * 255 / height, (x + y) % 256], axis=2)
    smooth[40:90, 60:150] = [200, 30, 60]
    noisy = smooth + generator.normal(0, 8, smooth.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype("uint8"))


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def cut_out():
    image = photograph().convert("RGBA")
    alpha = Image.linear_gradient("L").resize(image.size)
    image.putalpha(alpha)
    return image


PICTURES = {
    "JPEG": encoded(photograph(), "JPEG", quality=90),
    "progressive JPEG": encoded(photograph(), "JPEG", progressive=True),
    "JPEG without chroma subsampling": encoded(photograph(), "JPEG", subsampling=0),
    "grey JPEG": encoded(photograph().convert("L"), "JPEG"),
    "PNG": encoded(photograph(), "PNG"),
    "grey PNG": encoded(photograph().convert("L"), "PNG"),
    "palette PNG": encoded(photograph().quantize(64), "PNG"),
    "cut-out PNG": encoded(cut_out(), "PNG"),
    "grey cut-out PNG": encoded(cut_out().convert("LA"), "PNG"),
    "PNG smaller than the model": encoded(photograph(11, 17), "PNG"),
    "PNG of the model's size": encoded(photograph(SIZE, SIZE), "PNG"),
    "cut-out WebP": encoded(cut_out(), "WEBP", lossless=True, exact=True),
    "GIF": encoded(photograph().quantize(64), "GIF"),
    "BMP": encoded(photograph(), "BMP"),
    # Of four bytes a pixel the last says nothing: often it is 0.
    "BMP of 32 bits": encoded(cut_out(), "BMP"),
}

ANIMATED = encoded(
    photograph(), "WEBP", save_all=True, append_images=[photograph().rotate(180)]
)
BIT_FIELDS = bytearray(PICTURES["BMP of 32 bits"])
BIT_FIELDS[30] = 3  # compression: the order of the channels is that of masks


VIEWS = {
    "squash": View(SIZE),
    "resize and cut": View(SIZE, resize=32),
    "pad, resize and cut": View(SIZE, resize=29, pad=True),
}
ODD_SHAPES = {
    **{f"{h} x {w}": encoded(photograph(h, w), "PNG") for h, w in [(301, 37), (5, 9)]},
    "a line": encoded(photograph(1, 3000), "PNG"),
    "a column": encoded(photograph(3000, 1), "PNG"),
}


def assert_graph_reads_as_training_does(data, view):
    """docs/images.md states these bounds."""
    in_graph = _training_form(tf.constant(data), view).numpy()
    levels = np.abs(in_graph - view.central(read_image(data)))
    assert levels.max() <= 1
    assert levels.mean() <= 0.25


@pytest.mark.parametrize("name", PICTURES)
def test_graph_reads_a_picture_as_the_training_reader_does(exported, name):
    _, embedder, model = exported
    data = PICTURES[name]
    assert_graph_reads_as_training_does(data, View(SIZE))
    picture = View(SIZE).central(read_image(data))
    expected = embedder.predict(picture[np.newaxis], verbose=0)
    served = model.signatures["serving_default"](image_bytes=tf.constant([data]))
    received = served["embedding"].numpy()
    assert received.shape == (1, 8)
    np.testing.assert_allclose(np.linalg.norm(received), 1, atol=1e-6)
    assert float(np.sum(received * expected)) >= 0.9999  # cosine similarity


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", [*PICTURES, *ODD_SHAPES])
def test_graph_shows_the_view_of_the_training_reader(name, view):
    assert_graph_reads_as_training_does({**PICTURES, **ODD_SHAPES}[name], VIEWS[view])


def test_what_is_reduced_to_the_view_stays_as_it_is_in_the_graph():
    """So the client's pictures get exactly the training embedding."""
    for view in VIEWS.values():
        picture = read_image(PICTURES["JPEG"])
        data = encode_png(view.reduced(picture))
        in_graph = _training_form(tf.constant(data), view).numpy()
        np.testing.assert_array_equal(in_graph, view.central(picture))


def as_files(folder):
    """Write pictures of one class that differ in all that a reader must see."""
    turned = Image.Exif()
    turned[0x0112] = 6
    grey16 = Image.fromarray(
        np.linspace(0, 65535, 6000, dtype="uint16").reshape(60, -1)
    )
    files = {
        "plain.jpg": PICTURES["JPEG"],
        "turned.jpg": encoded(photograph(), "JPEG", exif=turned),
        "cmyk.jpg": encoded(photograph().convert("CMYK"), "JPEG"),
        "cut-out.png": PICTURES["cut-out PNG"],
        "cut-out.webp": encoded(cut_out().rotate(180), "WEBP", lossless=True),
        "grey16.png": encoded(grey16, "PNG"),
        "palette.bmp": encoded(photograph().quantize(64), "BMP"),
        "tall.tif": encoded(photograph(200, 50), "TIFF"),
        "small.png": PICTURES["PNG smaller than the model"],
    }
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return tuple(folder / name for name in sorted(files))


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_one_picture_has_one_embedding_wherever_it_is_read(exported, name, tmp_path):
    """Training, index, endpoint with a client, and the graph with bytes alone."""
    folder, embedder, _ = exported
    view = VIEWS[name]
    run = tmp_path / "run"
    run.mkdir()
    (run / "embedder.keras").write_bytes((folder / "embedder.keras").read_bytes())
    table = {"resize": view.resize, "pad": view.pad, "crop": "none"}
    (run / "recipe.json").write_text(json.dumps({"pictures": table}))
    assert main(["export", str(run), str(tmp_path / "model" / "1")]) == 0
    assert SavedEmbedder(tmp_path / "model" / "1").view == view

    files = as_files(tmp_path / "images")
    count = len(files)
    data = DataSet(files, np.zeros(count, int), np.full(count, "test"), ("all",))
    pictures = Pictures(data, view).central(range(count))
    expected = embedder.predict(pictures, verbose=0)

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


def test_view_signature_shows_what_the_model_sees(exported, tmp_path):
    view = View(SIZE, resize=32, pad=True)
    export_embedder(exported[1], tmp_path / "1", view)
    model = tf.saved_model.load(tmp_path / "1")
    shown = model.signatures["view_32_padded"](
        image_bytes=tf.constant([PICTURES["JPEG"], PICTURES["GIF"]])
    )["images"]
    assert shown.dtype == tf.uint8
    for image, name in zip(shown.numpy(), ("JPEG", "GIF"), strict=True):
        expected = view.central(read_image(PICTURES[name])).astype(int)
        assert np.abs(image - expected).max() <= 1


def test_model_that_squashes_has_no_other_signature(exported):
    assert set(exported[2].signatures) == {"serving_default", "tensors"}


def test_view_of_another_size_is_refused(exported, tmp_path):
    with pytest.raises(ValueError, match=r"size of the embedder's input, 24.*=25"):
        export_embedder(exported[1], tmp_path / "1", View(25))


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "AttributeError"),
        ('{"pictures": {"resize": 32}}', "KeyError: 'pad'"),
        ('{"pictures": {"resize": 8, "pad": false}}', "at least `image_size`"),
    ],
)
def test_recipe_that_tells_no_view_is_refused(
    exported, recipe, reason, tmp_path, capsys
):
    (tmp_path / "embedder.keras").write_bytes(
        (exported[0] / "embedder.keras").read_bytes()
    )
    (tmp_path / "recipe.json").write_text(recipe)
    assert main(["export", str(tmp_path), str(tmp_path / "m" / "1")]) == 1
    error = capsys.readouterr().err
    assert "recipe.json does not tell" in error
    assert reason in error


def test_run_of_a_recipe_without_pictures_squashed(exported, tmp_path):
    (tmp_path / "embedder.keras").write_bytes(
        (exported[0] / "embedder.keras").read_bytes()
    )
    (tmp_path / "recipe.json").write_text('{"embedder": {"image_size": 24}}')
    assert main(["export", str(tmp_path), str(tmp_path / "m" / "1")]) == 0
    assert SavedEmbedder(tmp_path / "m" / "1").view == View(SIZE)


def test_tensors_signature_gives_exactly_the_training_embedding(exported):
    _, embedder, model = exported
    pictures = np.random.default_rng(1).integers(0, 256, (3, SIZE, SIZE, 3))
    pictures = pictures.astype("uint8")
    served = model.signatures["tensors"](images=tf.constant(pictures))["embedding"]
    expected = embedder.predict(pictures, verbose=0)
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


def test_batch_of_pictures_of_different_sizes_is_embedded(exported):
    signature = exported[2].signatures["serving_default"]
    data = [PICTURES["JPEG"], PICTURES["PNG smaller than the model"], PICTURES["GIF"]]
    together = signature(image_bytes=tf.constant(data))["embedding"].numpy()
    alone = [signature(image_bytes=tf.constant([d]))["embedding"].numpy() for d in data]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-5)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"hello", "Unknown image file format"),
        (b"", "Unknown image file format|empty"),
        (PICTURES["JPEG"][:200], "jpeg|JPEG"),
        (encoded(photograph().quantize(64), "BMP"), "24 or 32 bits a pixel"),
        (bytes(BIT_FIELDS), "24 or 32 bits a pixel"),
    ],
    ids=["text", "empty", "half a JPEG", "palette BMP", "BMP with masks"],
)
def test_bytes_that_are_no_picture_are_refused(exported, data, reason):
    signature = exported[2].signatures["serving_default"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
        signature(image_bytes=tf.constant([data]))


@pytest.mark.slow
def test_animated_webp_is_refused_and_does_not_end_the_process(exported):
    """TensorFlow 2.20 writes its RGBA frames over the end of an RGB buffer."""
    code = (
        "import sys, tensorflow as tf\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        "data = tf.constant([sys.stdin.buffer.read()])\n"
        "try:\n"
        "    model.signatures['serving_default'](image_bytes=data)\n"
        "except tf.errors.InvalidArgumentError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, exported[0] / "model" / "1"],
        input=ANIMATED,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"animated WebP" in done.stdout


@pytest.mark.slow
def test_model_runs_where_there_is_neither_keras_nor_tfdml(exported, tmp_path):
    folder, _, model = exported
    (tmp_path / "picture.jpg").write_bytes(PICTURES["JPEG"])
    code = (
        "import sys\n"
        "for name in ('keras', 'tf_keras', 'tfdml'): sys.modules[name] = None\n"
        "import tensorflow as tf\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        "data = tf.constant([open(sys.argv[2], 'rb').read()])\n"
        "served = model.signatures['serving_default'](image_bytes=data)\n"
        "print(served['embedding'].numpy().tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, folder / "model" / "1", tmp_path / "picture.jpg"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    expected = model.signatures["serving_default"](
        image_bytes=tf.constant([PICTURES["JPEG"]])
    )["embedding"]
    np.testing.assert_allclose(eval(done.stdout), expected.numpy(), atol=1e-5)  # noqa: S307


def test_command_exports_an_embedder_file_and_never_overwrites(
    exported, tmp_path, capsys
):
    source = str(exported[0] / "embedder.keras")
    assert main(["export", source, str(tmp_path / "m" / "1")]) == 0
    assert (tmp_path / "m" / "1" / "saved_model.pb").exists()
    assert main(["export", source, str(tmp_path / "m" / "1")]) == 1
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("destination", ["model", "0", "latest"])
def test_destination_without_a_version_is_refused(
    exported, destination, capsys, tmp_path
):
    source = str(exported[0] / "embedder.keras")
    assert main(["export", source, str(tmp_path / destination)]) == 1
    assert "must end with a version number" in capsys.readouterr().err


def test_run_without_an_embedder_is_named(tmp_path, capsys):
    assert main(["export", str(tmp_path), str(tmp_path / "1")]) == 1
    assert "no trained embedder at" in capsys.readouterr().err


def test_embedder_of_another_input_is_refused(tmp_path):
    inputs = keras.Input((8, 6, 3))
    model = keras.Model(inputs, keras.layers.Flatten()(inputs))
    with pytest.raises(ValueError, match=r"size, size, 3\].*\(None, 8, 6, 3\)"):
        export_embedder(model, tmp_path / "1")


@pytest.mark.slow
@pytest.mark.parametrize("pictures", ["", 'resize = 20\npad = true\ncrop = "position"'])
def test_whole_chain_from_a_folder_to_hits(pictures, tmp_path):
    """Fit, export, index, serve and search by commands, as `make demo` does."""
    write_shapes(tmp_path / "images", classes=10, images_per_class=4)
    (tmp_path / "recipe.toml").write_text(
        f'[data]\nimages = "{tmp_path / "images"}"\nvalidation_fraction = 0.2\n'
        f"[pictures]\n{pictures}\n[embedder]\nimage_size = 16\nwidths = [8]\n"
        "[batches]\nclasses_per_batch = 3\n[fit]\nsteps = 4\nsteps_per_epoch = 2\n"
    )

    def command(module, *arguments):
        done = subprocess.run(
            [sys.executable, "-m", module, *map(str, arguments)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run, model, index = (tmp_path / name for name in ("run", "model", "index"))
    said = command("training", "fit", tmp_path / "recipe.toml", "--run", run)
    assert "before training" in said
    command("serving", "export", run, model / "1")
    only = ["--only", run / "test_images.txt"]
    command("serving", "index", tmp_path / "images", index, "--model", model, *only)
    demo = [sys.executable, "-m", "serving", "demo", run, index, "--model", model]
    ports = ["--port", "0", "--endpoint-port", str(free_port())]
    process = subprocess.Popen(
        [*map(str, demo), *ports], stdout=subprocess.PIPE, text=True
    )
    try:
        lines = []
        while not lines or "Image search: " not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], "the demo ended"
        assert any("Precision@1 on 5 unseen classes" in line for line in lines)
        url = lines[-1].split("Image search: ")[1].strip()
        with urllib.request.urlopen(f"{url}/api/similar/0?k=3", timeout=30) as reply:
            hits = json.load(reply)["hits"]
        assert len(hits) == 3
    finally:
        process.terminate()
        assert process.wait(30) == 0
        process.stdout.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
