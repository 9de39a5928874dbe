"""The command `export`: what it takes from a run, and what goes with the model."""

import json
import socket
import sys
import urllib.request
from pathlib import Path
from urllib.parse import quote

import httpx2
import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import serving
import training.__main__
from serving.__main__ import main
from serving.endpoint.batching.parameters import read_batching_parameters
from serving.endpoint.models.saved_model import model_fingerprint
from serving.endpoint.warm_up import read_warm_up_requests
from serving.export.exporting import check_destination, export_run
from tests.support.encoded_images import IMAGES, SIZE
from tests.support.running_process import running_process
from tests.support.search_fixtures import calibration_at, serve_model
from tests.support.small_images import write_shapes
from tfdml.export import SavedEmbedder, read_description
from tfdml.images import UnreadableImageError, View, read_image
from tfdml.run_calibration import write_calibration
from tfdml.run_view import view_of_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    """A `.keras` file."""
    keras.utils.set_random_seed(3)
    file = tmp_path_factory.mktemp("embedder") / "embedder.keras"
    inputs = keras.Input((SIZE, SIZE, 3))
    rows = keras.layers.Dense(8)(keras.layers.Flatten()(inputs))
    keras.Model(inputs, keras.layers.UnitNormalization()(rows)).save(file)
    return file


@pytest.fixture
def run(embedder, tmp_path):
    """A run folder with the embedder alone."""
    return write_run(tmp_path / "run", embedder)


def write_run(folder, embedder, **recipe):
    folder.mkdir(exist_ok=True)
    (folder / "embedder.keras").write_bytes(embedder.read_bytes())
    if recipe:
        (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


def write_trained_run(folder, embedder):
    """A calibrated run that trained on two of three classes, its images beside it."""
    write_shapes(folder / "images", classes=3, images_per_class=2)
    run = write_run(
        folder / "fitted",
        embedder,
        data={"images": str(folder / "images")},
        images={"resize": 32, "pad": True},
    )
    (run / "splits.json").write_text(json.dumps({"train": ["class-0", "class-2"]}))
    calibration = json.dumps(calibration_at(0.75).to_json())
    (run / "calibration.json").write_text(calibration)
    return run


@pytest.fixture(scope="module")
def exported(embedder, tmp_path_factory):
    """Folder with `images`, the run `fitted` and its export `models/shapes/2`."""
    folder = tmp_path_factory.mktemp("exported")
    run = write_trained_run(folder, embedder)
    export_run(run, folder / "models/shapes/2", output_dtype="int8", warm_up_count=3)
    return folder


def images_in(folder):
    """Return the images of the requests of one image for `serving_default`."""
    return [
        request.inputs["image_bytes"].string_val[0]
        for request in read_warm_up_requests(folder)
        if request.model_spec.signature_name == "serving_default"
        and len(request.inputs["image_bytes"].string_val) == 1
    ]


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "AttributeError"),
        ('{"images": {"resize": 32}}', "KeyError: 'pad'"),
        ('{"pictures": {"resize": 8, "pad": false}}', "at least `image_size`"),
    ],
)
def test_recipe_that_tells_no_view_is_refused(run, recipe, reason, tmp_path, capsys):
    (run / "recipe.json").write_text(recipe)
    assert main(["export", str(run), str(tmp_path / "m" / "1")]) == 1
    error = capsys.readouterr().err
    assert "recipe.json does not say" in error
    assert reason in error


def test_older_runs_call_the_table_pictures(run):
    (run / "recipe.json").write_text('{"pictures": {"resize": 32, "pad": true}}')
    assert view_of_run(run, SIZE) == View(SIZE, 32, pad=True)


def test_run_of_a_recipe_without_images_squashed(run, tmp_path):
    (run / "recipe.json").write_text('{"embedder": {"image_size": 24}}')
    assert main(["export", str(run), str(tmp_path / "m" / "1")]) == 0
    assert SavedEmbedder(tmp_path / "m" / "1").view == View(SIZE)


def test_command_exports_an_embedder_file_and_never_overwrites(
    embedder, tmp_path, capsys
):
    source = str(embedder)
    assert main(["export", source, str(tmp_path / "m" / "1")]) == 0
    assert (tmp_path / "m" / "1" / "saved_model.pb").exists()
    said = capsys.readouterr()
    assert "with 4 warm-up requests" in said.out
    assert "no recipe.json beside the embedder" in said.err
    assert "the warm-up requests hold noise" in said.err
    assert main(["export", source, str(tmp_path / "m" / "1")]) == 1
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    "destination",
    ["model", "0", "latest", str(2**63), "1" * 20, "1" * 5000, "\u0663"],
)
def test_destination_without_a_version_is_refused(
    embedder, destination, capsys, tmp_path
):
    assert main(["export", str(embedder), str(tmp_path / destination)]) == 1
    assert "must end with a version number" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_version_that_is_the_largest_of_64_bits_or_has_zeros_before_it_is_taken():
    for name in (str(2**63 - 1), "007"):
        check_destination(Path("models/shapes") / name)


def test_servers_that_batch_as_the_shipped_settings_say_take_the_warm_up(run, tmp_path):
    """TensorFlow Serving refuses a version with a request above its largest batch."""
    settings = (
        Path(serving.__file__).parent / "deployment/config/batching_parameters.txt"
    )
    most = read_batching_parameters(settings).max_batch_size
    write_shapes(tmp_path / "images", classes=1, images_per_class=1)
    export_run(
        run, tmp_path / "m/1", warm_up_images=tmp_path / "images", warm_up_count=64
    )
    rows = [
        tf.make_ndarray(tensor).shape[0]
        for request in read_warm_up_requests(tmp_path / "m/1")
        for tensor in request.inputs.values()
    ]
    assert most == 32
    assert max(rows) == most


@pytest.mark.parametrize("damage", ["long field", "no label"])
def test_damaged_manifest_leaves_noise_and_a_warning(embedder, tmp_path, damage):
    manifest = tmp_path / "manifest.csv"
    text = 'path,label,split\n"a.png,a,train\n'
    text += "b.png,b,train\n" * 20_000 if damage == "long field" else ""
    manifest.write_text(text if damage == "long field" else "a\n1\n")
    run = write_run(tmp_path / "run", embedder, data={"images": str(manifest)})
    report = export_run(run, tmp_path / "m" / "1")
    assert any("the warm-up requests hold noise" in said for said in report.warnings)


def test_run_without_an_embedder_is_named(tmp_path, capsys):
    assert main(["export", str(tmp_path), str(tmp_path / "1")]) == 1
    assert "no trained embedder at" in capsys.readouterr().err


def test_warm_up_holds_images_that_the_run_trained_on(exported):
    files = [exported / f"images/class-{path}.png" for path in ("0/0", "0/1", "2/0")]
    assert images_in(exported / "models/shapes/2")[-1:] == [files[0].read_bytes()]
    assert set(images_in(exported / "models/shapes/2")) == {
        file.read_bytes() for file in files
    }


def test_warm_up_asks_every_signature_that_takes_images(exported):
    requests = read_warm_up_requests(exported / "models/shapes/2")
    sizes = {}
    for request in requests:
        assert request.model_spec.name == "shapes"
        (tensor,) = request.inputs.values()
        rows = tf.make_ndarray(tensor)
        sizes.setdefault(request.model_spec.signature_name, []).append(len(rows))
    assert {name: sorted(rows) for name, rows in sizes.items()} == {
        "serving_default": [1, 1, 1, 3],
        "tensors": [1, 3],
        "embed_int8": [1, 3],
        "view_32_padded": [1, 3],
    }


def test_tensors_of_the_warm_up_are_the_images_in_the_view(exported):
    folder = exported / "models/shapes/2"
    batch = [
        tf.make_ndarray(request.inputs["images"])
        for request in read_warm_up_requests(folder)
        if request.model_spec.signature_name == "tensors"
    ][-1]
    view = View(SIZE, resize=32, pad=True)
    first = view.central(read_image(exported / "images/class-0/0.png"))
    np.testing.assert_array_equal(batch[0], first)


def test_fingerprint_depends_on_nothing_beside_the_model(exported, tmp_path):
    folder = exported / "models/shapes/2"
    description = read_description(folder)
    assert description["fingerprint"] == model_fingerprint(folder)
    for name in ("saved_model.pb", "variables"):
        (tmp_path / name).symlink_to(folder / name)
    assert model_fingerprint(tmp_path) == description["fingerprint"]


def test_description_tells_where_the_model_comes_from(exported):
    description = read_description(exported / "models/shapes/2")
    assert description["source"]["run"] == "fitted"
    assert description["source"]["file"] == "embedder.keras"
    assert len(description["source"]["sha256"]) == 64
    assert description["calibration"] == calibration_at(0.75).to_json()
    assert str(exported) not in json.dumps(description)


def test_threshold_of_another_embedder_is_not_exported(embedder, tmp_path):
    run = write_run(tmp_path / "run", embedder)
    write_calibration(run / "embedder.keras", calibration_at(0.75))
    with (run / "embedder.keras").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match=r"chosen for another embedder\.keras"):
        export_run(run, tmp_path / "models/shapes/1")
    assert not (tmp_path / "models").exists()


def test_clients_ask_the_server_for_the_description(exported):
    with serve_model(exported / "models/shapes") as url:
        question = {"signature_name": "describe", "instances": ["", "anything"]}
        reply = httpx2.post(f"{url}:predict", json=question, timeout=60)
        metadata = httpx2.get(f"{url}/metadata", timeout=60).json()["metadata"]
    described = metadata["signature_def"]
    first, second = reply.raise_for_status().json()["predictions"]
    assert first == second
    assert json.loads(first) == read_description(exported / "models/shapes/2")
    assert "describe" in described["signature_def"]


def test_warm_up_takes_the_images_of_a_manifest(embedder, tmp_path):
    write_shapes(tmp_path / "images", classes=2, images_per_class=1)
    lines = "class-0/0.png,a,test", "class-1/0.png,b,train", "class-1/0.png,b,train"
    manifest = tmp_path / "images" / "manifest.csv"
    manifest.write_text("\n".join(("path,label,split", *lines)))
    run = write_run(tmp_path / "run", embedder, data={"images": str(manifest)})
    export_run(run, tmp_path / "m" / "1")
    image = (tmp_path / "images" / "class-1" / "0.png").read_bytes()
    assert images_in(tmp_path / "m" / "1") == [image]


def test_warm_up_images_that_the_graph_refuses_are_sent_as_png(run, tmp_path):
    Image.new("RGB", (40, 30), (200, 10, 10)).save(tmp_path / "red.tif")
    report = export_run(run, tmp_path / "m" / "1", warm_up_images=tmp_path / "red.tif")
    assert not any("noise" in warning for warning in report.warnings)
    (image,) = images_in(tmp_path / "m" / "1")
    assert image.startswith(b"\x89PNG")
    assert (read_image(image) == (200, 10, 10)).all()


def test_warm_up_images_that_are_broken_end_the_export(run, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes(IMAGES["JPEG"][:100])
    with pytest.raises(UnreadableImageError, match=r"a\.jpg"):
        export_run(run, tmp_path / "m" / "1", warm_up_images=tmp_path / "images")
    assert not list((tmp_path / "m").iterdir())


def test_broken_training_images_are_left_out_of_the_warm_up(embedder, tmp_path):
    run = write_trained_run(tmp_path, embedder)
    (tmp_path / "images" / "class-0" / "0.png").write_bytes(b"no image")
    export_run(run, tmp_path / "m" / "1")
    kept = ["class-0/1", "class-2/0", "class-2/1"]
    files = [(tmp_path / f"images/{path}.png").read_bytes() for path in kept]
    assert set(images_in(tmp_path / "m" / "1")) == set(files)


def test_warm_up_can_be_left_out(run, tmp_path):
    assert main(["export", str(run), str(tmp_path / "1"), "--warm-up-count", "0"]) == 0
    assert not (tmp_path / "1" / "assets.extra").exists()


@pytest.mark.parametrize("count", [-1, 65])
def test_count_of_warm_up_images_is_checked(run, tmp_path, count):
    with pytest.raises(ValueError, match=f"from 0 to 64.*{count}"):
        export_run(run, tmp_path / "1", warm_up_count=count)
    with pytest.raises(ValueError, match="at least 1 with `warm_up_images`"):
        export_run(run, tmp_path / "1", warm_up_images=tmp_path, warm_up_count=0)


@pytest.mark.parametrize(
    "images",
    [
        pytest.param("", marks=pytest.mark.full),
        'resize = 20\npad = true\ncrop = "position"',
    ],
)
def test_whole_chain_from_a_folder_to_hits(images, tmp_path, capsys):
    """Fit, export, index, serve and search by commands, as `make demo` does."""
    write_shapes(tmp_path / "images", classes=10, images_per_class=4)
    (tmp_path / "recipe.toml").write_text(
        f'[data]\nimages = "{tmp_path / "images"}"\nvalidation_fraction = 0.2\n'
        f"[images]\n{images}\n[embedder]\nimage_size = 16\nwidths = [8]\n"
        "[batches]\nclasses_per_batch = 3\n[fit]\nsteps = 4\nsteps_per_epoch = 2\n"
    )

    def command(of, *arguments):
        # In this process, which has TensorFlow already.
        assert of([*map(str, arguments)]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    run, model, index = (tmp_path / name for name in ("run", "model", "index"))
    said = command(
        training.__main__.main, "fit", tmp_path / "recipe.toml", "--run", run
    )
    assert "before training" in said
    command(main, "export", run, model / "1")
    assert SavedEmbedder(model / "1").view.pad == bool(images)
    only = ["--only", run / "test_images.txt"]
    building = ["index", "build", tmp_path / "images", index, "--model", model]
    command(main, *building, *only)
    demo = [sys.executable, "-m", "serving", "demo", run, index, "--model", model]
    ports = ["--port", "0", "--endpoint-port", str(free_port())]
    with running_process([*demo, *ports]) as process:
        lines = []
        while not lines or "Image search: " not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], "the demo ended"
        assert any("Precision@1 on 5 unseen classes" in line for line in lines)
        url = lines[-1].split("Image search: ")[1].strip()
        with urllib.request.urlopen(f"{url}/api/images?limit=1", timeout=60) as reply:
            (first,) = json.load(reply)["images"]
        similar = f"{url}/api/similar?k=3&id={quote(first['id'], safe='')}"
        with urllib.request.urlopen(similar, timeout=60) as reply:
            hits = json.load(reply)["hits"]
        assert len(hits) == 3
    assert process.returncode == 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
