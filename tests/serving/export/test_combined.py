"""The combined model: an embedder and an index that answer from one graph."""

import base64
import dataclasses
import json
import shutil
import subprocess
import sys

import httpx2
import keras
import numpy as np
import pytest
import tensorflow as tf

from serving.__main__ import main
from serving.endpoint.models import scann_operators
from serving.endpoint.models.saved_model import model_fingerprint
from serving.endpoint.models.servable import Servable
from serving.endpoint.warm_up import (
    read_warm_up_requests,
    write_warm_up_requests,
)
from serving.export.combined import combine
from serving.export.exporting import export_run
from serving.search.gallery.gallery import Gallery, load_gallery, save_gallery
from serving.search.gallery.indexing import index_images
from tests.support.installed import skip_without_scann_operators
from tests.support.running_grpc import predict_request
from tests.support.search_fixtures import (
    calibration_at,
    serve_model,
    write_gallery_images,
)
from tests.support.small_images import write_shapes
from tfdml.export import SavedEmbedder, read_description
from tfdml.images import encode_png, read_image
from tfdml.index import LocalIndex
from tfdml.index.engines._settings import EngineLimits
from tfdml.neighbors import nearest_neighbors

pytestmark = pytest.mark.slow

skip_without_scann_operators()

SIZE = 16
CALIBRATION = calibration_at(0.75)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images, `models/shapes/3`, `index` and the combined `models/search/1`."""
    folder = tmp_path_factory.mktemp("combined")
    keras.utils.set_random_seed(1)
    inputs = keras.Input((SIZE, SIZE, 3))
    rows = keras.layers.Dense(8)(keras.layers.Flatten()(inputs))
    (folder / "run").mkdir()
    embedder = keras.Model(inputs, keras.layers.UnitNormalization()(rows))
    embedder.save(folder / "run" / "embedder.keras")
    calibration = json.dumps(CALIBRATION.to_json())
    (folder / "run" / "calibration.json").write_text(calibration)
    write_shapes(folder / "images", classes=5, images_per_class=4)
    images = folder / "images"
    export_run(folder / "run", folder / "models/shapes/3", warm_up_images=images)
    index_images(images, folder / "index", folder / "models/shapes")
    combine(
        folder / "models/shapes",
        folder / "index",
        folder / "models/search/1",
        neighbors=4,
    )
    return folder


@pytest.fixture(scope="module")
def combined(folder):
    return tf.saved_model.load(folder / "models/search/1")


def encoded_images(folder):
    files = sorted((folder / "images").rglob("*.png"))
    return tf.constant([file.read_bytes() for file in files])


def embeddings_of(folder, data):
    model = tf.saved_model.load(folder / "models/shapes/3")
    found = model.signatures["serving_default"](image_bytes=data)
    return found["embedding"].numpy()


def test_answers_are_those_of_the_index_by_itself(folder, combined):
    data = encoded_images(folder)
    found = combined.signatures["search"](image_bytes=data)
    index, _ = load_gallery(folder / "index")
    expected = index.search(embeddings_of(folder, data), 4)
    ids = found["ids"].numpy().astype(str)
    np.testing.assert_array_equal(ids, expected.ids)
    np.testing.assert_allclose(found["scores"], expected.scores, atol=1e-6)
    assert ids[:, 0].tolist() == [
        path.relative_to(folder / "images").as_posix()
        for path in sorted((folder / "images").rglob("*.png"))
    ]


def test_answers_are_the_exact_ones(folder, combined):
    data = encoded_images(folder)
    queries = embeddings_of(folder, data)
    index, known = load_gallery(folder / "index")
    paths = index.ids.tolist()
    embedder = SavedEmbedder(folder / "models/shapes/3")
    pixels = [embedder.view.central(read_image(known.root / path)) for path in paths]
    rows = embedder.embed(np.stack(pixels))
    _, scores = nearest_neighbors(queries, rows, 4)
    found = combined.signatures["search"](image_bytes=data)
    np.testing.assert_allclose(found["scores"], scores, atol=1e-6)
    # Which of two images comes first whose scores nearly tie is not said.
    for query, ids, seen in zip(queries, found["ids"].numpy(), scores, strict=True):
        items = [paths.index(name.decode()) for name in ids]
        assert len(set(items)) == 4
        np.testing.assert_allclose(rows[items] @ query, seen, atol=1e-6)


@pytest.mark.parametrize("rows", [0, 1, 3, 33])
def test_any_number_of_images_is_searched(folder, combined, rows):
    data = tf.tile(encoded_images(folder), [2])[:rows]
    found = combined.signatures["search"](image_bytes=data)
    assert found["ids"].shape == (rows, 4)
    assert found["scores"].shape == (rows, 4)


def test_signatures_of_the_embedder_stay(folder, combined):
    assert set(combined.signatures) == {
        *("serving_default", "tensors", "describe", "search")
    }
    data = encoded_images(folder)
    found = combined.signatures["serving_default"](image_bytes=data)["embedding"]
    np.testing.assert_array_equal(found, embeddings_of(folder, data))


def test_description_tells_of_the_search(folder):
    own = folder / "models/search/1"
    description = read_description(own)
    assert description["fingerprint"] == model_fingerprint(own)
    assert description["calibration"] == CALIBRATION.to_json()
    assert description["search"] == {
        "images": 20,
        "neighbors": 4,
        "method": "exact",
        "embedder_fingerprint": model_fingerprint(folder / "models/shapes/3"),
    }


def test_warm_up_searches_with_the_images_of_the_embedder(folder):
    images = [
        {
            request.model_spec.signature_name: request.inputs["image_bytes"].string_val
            for request in read_warm_up_requests(folder / f"models/{version}")
            if "image_bytes" in request.inputs
        }
        for version in ("shapes/3", "search/1")
    ]
    assert set(images[1]) == {"serving_default", "search"}
    assert sorted(images[1]["search"]) == sorted(images[0]["serving_default"])


def test_of_many_warm_up_images_the_first_64_are_kept(folder, tmp_path):
    """By requests that somebody has written with more, and larger ones, than ours."""
    shutil.copytree(folder / "models/shapes/3", tmp_path / "m/3")
    generator = np.random.default_rng(0)
    images = [
        encode_png(generator.integers(0, 256, (SIZE, SIZE, 3), np.uint8))
        for _ in range(70)
    ]
    write_warm_up_requests(
        tmp_path / "m/3",
        [
            predict_request({"image_bytes": rows}, "m", "serving_default")
            for rows in (images[:40], images[40:])
        ],
    )
    combine(tmp_path / "m", folder / "index", tmp_path / "s/1", neighbors=4)
    sent = [
        list(tf.make_ndarray(request.inputs["image_bytes"]))
        for request in read_warm_up_requests(tmp_path / "s/1")
        if "image_bytes" in request.inputs
    ]
    assert {image for rows in sent for image in rows} == set(images[:64])
    assert max(len(rows) for rows in sent) == 32


def test_endpoint_answers_with_names_and_scores(folder):
    file = folder / "images" / "class-2" / "1.png"
    image = {"b64": base64.b64encode(file.read_bytes()).decode()}
    body = {"signature_name": "search", "instances": [image]}
    with serve_model(folder / "models/search") as url:
        reply = httpx2.post(f"{url}:predict", json=body, timeout=60)
    (answer,) = reply.json()["predictions"]
    assert answer["ids"][0] == "class-2/1.png"
    assert answer["scores"] == sorted(answer["scores"], reverse=True)
    assert answer["scores"][0] == pytest.approx(1, abs=1e-5)


def gallery_of(folder, vectors, monkeypatch):
    """Index vectors as if the model of `folder` had made them.

    Thresholds are lowered so that few rows are searched as many are.
    """
    limits = EngineLimits(hashing_from=400, tree_above=1000)
    monkeypatch.setattr(LocalIndex, "engine_limits", limits)
    paths = [f"a/{number}.png" for number in range(len(vectors))]
    fingerprint = model_fingerprint(folder / "models/shapes/3")
    index = LocalIndex.build(
        vectors, ids=paths, model_fingerprint=fingerprint, target_recall=None
    )
    gallery = Gallery(folder / "images", "shapes", 3)
    return index, gallery


@pytest.mark.parametrize(("rows", "method"), [(500, "hashing"), (2000, "tree")])
def test_approximate_indexes_answer_as_by_themselves(
    folder, tmp_path, monkeypatch, rows, method
):
    vectors = np.random.default_rng(rows).normal(size=(rows, 8))
    index, gallery = gallery_of(folder, vectors, monkeypatch)
    assert index.settings.method == method
    save_gallery(tmp_path / "index", index, gallery)
    combine(folder / "models/shapes", tmp_path / "index", tmp_path / "1", neighbors=10)
    model = tf.saved_model.load(tmp_path / "1")
    data = encoded_images(folder)
    found = model.signatures["search"](image_bytes=data)
    queries = embeddings_of(folder, data)
    alone = index.search(queries, 10)
    np.testing.assert_array_equal(found["ids"].numpy().astype(str), alone.ids)
    np.testing.assert_allclose(found["scores"], alone.scores, atol=1e-5)


def test_images_added_and_removed_since_the_build_count(folder, tmp_path):
    shutil.copytree(folder / "index", tmp_path / "index")
    index, _ = load_gallery(tmp_path / "index")
    ids = index.ids.tolist()
    with index:
        embedding = -index.get(ids[:1]).embeddings
        index.add(embedding, ["added.png"])
        index.remove(ids[5:7])
    before = {path.name for path in (tmp_path / "index").iterdir()}
    combine(folder / "models/shapes", tmp_path / "index", tmp_path / "1", neighbors=19)
    model = tf.saved_model.load(tmp_path / "1")
    data = encoded_images(folder)
    found = model.signatures["search"](image_bytes=data)
    alone = load_gallery(tmp_path / "index")[0].search(embeddings_of(folder, data), 19)
    for row, expected in zip(found["ids"].numpy().astype(str), alone.ids, strict=True):
        assert set(row) == set(expected) == {*ids[:5], *ids[7:], "added.png"}
    np.testing.assert_allclose(found["scores"], alone.scores, atol=1e-6)
    assert {path.name for path in (tmp_path / "index").iterdir()} == before


def test_no_answer_is_filled_up_with_the_first_image(folder, tmp_path, monkeypatch):
    """Leaves that hold too few rows make ScaNN add the id 0 with a score of NaN.

    The margins that make this rare are taken away: three leaves of 45 are searched.
    """
    vectors = np.random.default_rng(0).normal(size=(2000, 8))
    index, gallery = gallery_of(folder, vectors, monkeypatch)
    settings = dataclasses.replace(index.settings, leaves_to_search=1, reorder=1)
    index._table.snapshot.searcher.settings = settings
    save_gallery(tmp_path / "index", index, gallery)
    combine(folder / "models/shapes", tmp_path / "index", tmp_path / "1", neighbors=130)
    model = tf.saved_model.load(tmp_path / "1")
    found = model.signatures["search"](image_bytes=encoded_images(folder))
    assert np.isfinite(found["scores"]).all()
    assert all(len(set(row)) == 130 for row in found["ids"].numpy())


def test_index_of_another_model_is_refused(folder, tmp_path, capsys):
    shutil.copytree(folder / "models/shapes/3", tmp_path / "m" / "1")
    weights = tmp_path / "m/1/variables/variables.data-00000-of-00001"
    content = bytearray(weights.read_bytes())
    content[0] ^= 1
    weights.write_bytes(content)
    arguments = [tmp_path / "m", folder / "index", tmp_path / "s" / "1"]
    assert main(["combine", *map(str, arguments)]) == 1
    assert "was built with another model" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("neighbors", [0, 21])
def test_more_neighbors_than_images_are_refused(folder, tmp_path, neighbors):
    with pytest.raises(ValueError, match=rf"from 1 to 20.*neighbors={neighbors}"):
        combine(
            folder / "models/shapes",
            folder / "index",
            tmp_path / "1",
            neighbors=neighbors,
        )


def test_model_without_a_description_is_refused(tmp_path):
    from tests.support.search_fixtures import write_color_model

    write_color_model(tmp_path / "m" / "1")
    (tmp_path / "m/1/assets/tfdml.json").unlink()
    write_gallery_images(tmp_path / "images")
    index_images(tmp_path / "images", tmp_path / "index", tmp_path / "m")
    with pytest.raises(ValueError, match=r"has no assets/tfdml\.json.*Export it again"):
        combine(tmp_path / "m", tmp_path / "index", tmp_path / "s/1", neighbors=1)


def run_python(code, *arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
    )


LOAD = (
    "from serving.endpoint.models.servable import Servable\n"
    "servable = Servable('search', 1, sys.argv[1])\n"
    "data = np.array([open(sys.argv[2], 'rb').read()], object)\n"
    "found = servable.predict({'image_bytes': data}, 'search')\n"
    "print(found['ids'][0, 0].decode())\n"
)


def test_operators_are_loaded_before_a_model_that_searches(folder, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        scann_operators, "import_scann_operators", lambda: loaded.append(True)
    )
    Servable("shapes", 3, folder / "models/shapes/3")
    assert not loaded
    Servable("search", 1, folder / "models/search/1")
    assert loaded


@pytest.mark.full
def test_servable_of_a_new_process_has_the_operators(folder):
    code = (
        "import sys\n"
        "import numpy as np\n"
        "for name in ('keras', 'tf_keras', 'tfdml.losses', 'tfdml.models'):\n"
        "    sys.modules[name] = None\n" + LOAD
    )
    file = folder / "images" / "class-3" / "0.png"
    done = run_python(code, folder / "models/search/1", file)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "class-3/0.png"


def test_missing_operators_are_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "scann.scann_ops.py", None)
    with pytest.raises(ValueError, match="needs ScaNN's TensorFlow operators") as seen:
        Servable("search", 1, folder / "models/search/1")
    assert 'pip install "tfdml[combine]"' in str(seen.value)
