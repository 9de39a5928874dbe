"""What code wrote before the modules moved loads, and gives what it gave then.

tests/data/before_move/README.md says what is there, and what wrote it.
"""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image

from serving.__main__ import main as serving
from serving.endpoint.models.saved_model import model_fingerprint
from serving.endpoint.warm_up import warm_up

# Also the rooms that register what the models name; a lazy one does with a first name.
from tests.support.installed import skip_without_scann_operators
from tests.support.saved_indexes import rewrite_manifest
from tests.support.served import load_servable
from tests.support.serving_commands import json_of
from tfdml import export, index, layers, losses, models, tfa  # noqa: F401
from tfdml.metrics import RecallAtK  # noqa: F401
from training.__main__ import main as training

SAVED = Path(__file__).parent / "data" / "before_move"


def read(file):
    return json.loads((SAVED / file).read_text("utf-8"))


LOSSES = read("keras/expected.json")["losses"]
INDEXES = read("indexes/expected.json")
IMAGES = sorted((SAVED / "images").glob("*/*.png"))
EXPORTED = np.load(SAVED / "export/embeddings.npy")
EXACTLY = {"batch_size": 16, "verbose": 0}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A copy of all, which is the current folder."""
    shutil.copytree(SAVED, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture(scope="module")
def pixels():
    """The images as the embedder of 8 x 8 pixels takes them."""
    return np.stack([np.asarray(Image.open(file))[1:9] for file in IMAGES])


@pytest.fixture(scope="module")
def batches():
    return dict(np.load(SAVED / "keras/batches.npz"))


@pytest.fixture(scope="module")
def outputs():
    return dict(np.load(SAVED / "keras/expected.npz"))


@pytest.fixture(scope="module")
def trained():
    """The model that every loss trains."""
    return keras.saving.load_model(SAVED / "keras/losses.keras")


def assert_close(received, expected, tolerance=1e-5):
    received = keras.ops.convert_to_numpy(received)
    np.testing.assert_allclose(received, expected, rtol=tolerance, atol=tolerance)


# Models


@pytest.mark.backend
def test_model_with_every_loss_gives_its_outputs(trained, batches, outputs):
    predicted = trained(batches["inputs"])
    assert list(predicted) == list(LOSSES) == list(trained.loss)
    for name, known in LOSSES.items():
        assert_close(predicted[name], outputs[known["head"]])
    (penalty,) = trained.losses
    assert_close(penalty, read("keras/expected.json")["center_penalty"])


@pytest.mark.backend
@pytest.mark.parametrize("name", LOSSES)
def test_loss_has_its_value(trained, batches, outputs, name):
    loss, known = trained.loss[name], LOSSES[name]
    assert keras.saving.get_registered_name(type(loss)) == known["class"]
    value = loss(batches[known["labels"]], outputs[known["head"]])
    assert float(value) == pytest.approx(known["value"], rel=1e-4, abs=1e-6)


@pytest.mark.backend
def test_model_of_layers_embeds_and_is_measured(batches, outputs):
    model = keras.saving.load_model(SAVED / "keras/layers.keras")
    images, labels = batches["images"], batches["labels"]
    assert_close(model.predict(images, **EXACTLY), outputs["layers"])
    received = model.evaluate(images, labels, return_dict=True, **EXACTLY)
    expected = read("keras/expected.json")["metrics"]
    assert received == pytest.approx(expected, rel=1e-5)


@pytest.mark.backend
@pytest.mark.parametrize("name", ["memory", "workers"])
def test_model_with_a_class_of_its_own_trains_on(batches, outputs, name):
    model = keras.saving.load_model(SAVED / f"keras/{name}.keras")
    expected = {"memory": models.CrossBatchMemory, "workers": models.MultiWorkerModel}
    assert type(model) is expected[name]
    inputs, labels = batches["inputs"], batches["labels"]
    assert_close(model.predict(inputs, **EXACTLY), outputs[name])
    history = model.fit(inputs, labels, shuffle=False, **EXACTLY).history
    known = read("keras/expected.json")[name]["next_loss"]
    assert history["loss"] == pytest.approx([known], rel=1e-4)
    assert_close(model.predict(inputs, **EXACTLY), outputs[f"{name}_next"], 1e-4)


@pytest.mark.backend
def test_embedder_of_a_run_embeds(pixels):
    embedder = models.load_embedder(SAVED / "run/embedder.keras")
    expected = np.load(SAVED / "run_embeddings.npy")
    assert_close(embedder.predict(pixels, verbose=0), expected)


# Runs


@pytest.mark.slow
def test_finished_run_is_measured_compared_and_reported(here):
    assert training(["evaluate", "run", "--out", "again"]) == 0
    received, expected = (
        json.loads((here / folder / "metrics.json").read_text())["metrics"]
        for folder in ("again", "run/evaluation")
    )
    assert received == pytest.approx(expected)
    assert training(["compare", "run", "again", "--metric", "map_at_r"]) == 0
    assert training(["compare", "run/evaluation", "again"]) == 0
    assert training(["report", "run"]) == 0
    page = (here / "run/report.html").read_text("utf-8")
    assert "data/manifest.csv" in page
    before = json.loads((here / "run/calibration.json").read_text())
    (here / "run/calibration.json").unlink()
    assert training(["calibrate", "run", "--false-positive-rate", "0.4"]) == 0
    after = json.loads((here / "run/calibration.json").read_text())
    assert after.pop("threshold") == pytest.approx(before.pop("threshold"), abs=1e-5)
    assert len(after.pop("embedder_sha256")) == 64
    assert after == before


@pytest.mark.slow
def test_interrupted_run_goes_on_with_random_changes_of_this_version(
    here, pixels, capsys
):
    """From the same weights: only the shifts of two steps are drawn in another way."""
    assert training(["fit", "interrupted.toml", "--run", "interrupted"]) == 0
    assert "Resuming after epoch 1 of 2." in capsys.readouterr().out
    history = json.loads((here / "interrupted/history.json").read_text())
    expected = read("interrupted_history.json")
    assert history.keys() == expected.keys()
    for name, values in expected.items():
        assert history[name][0] == pytest.approx(values[0], rel=1e-4), name
        assert history[name][1] == pytest.approx(values[1], rel=0.05), name
    embedder = models.load_embedder("interrupted/embedder.keras")
    expected = np.load(SAVED / "interrupted_embeddings.npy")
    cosines = (embedder.predict(pixels, verbose=0) * expected).sum(axis=1)
    assert cosines.min() > 0.9999


# Exports


@pytest.mark.slow
def test_exported_model_answers_and_has_its_fingerprint(pixels):
    import tensorflow as tf

    folder, known = SAVED / "export/model/1", read("export/expected.json")
    assert_close(export.SavedEmbedder(folder).embed(pixels), EXPORTED)
    signatures = tf.saved_model.load(folder).signatures
    assert sorted(signatures) == known["signatures"]
    data = [file.read_bytes() for file in IMAGES]
    found = signatures["serving_default"](image_bytes=tf.constant(data))
    expected = np.load(SAVED / "export/embeddings_of_files.npy")
    assert_close(found["embedding"], expected)
    assert model_fingerprint(folder) == known["fingerprint"]
    assert export.read_description(folder)["fingerprint"] == known["fingerprint"]
    servable = load_servable("model", SAVED / "export/model")
    assert warm_up(servable, folder) == known["warm_up"]


@pytest.mark.slow
def test_model_that_searches_finds_what_the_index_did():
    skip_without_scann_operators()
    import tensorflow as tf

    folder = SAVED / "export/search/1"
    assert warm_up(load_servable("search", SAVED / "export/search"), folder) > 0
    assert export.read_description(folder)["search"]["images"] == 14
    known = INDEXES["shards"]
    data = [(SAVED / "images" / name).read_bytes() for name in known["items"]]
    search = tf.saved_model.load(folder).signatures["search"]
    found = search(image_bytes=tf.constant(data))
    assert_finds(found["ids"].numpy().astype(str), found["scores"].numpy(), known)


@pytest.mark.slow
def test_run_is_exported_again(here, pixels):
    arguments = ["export", "run", "export/model/2", "--warm-up-count", "2"]
    assert serving(arguments) == 0
    embedder = export.SavedEmbedder(here / "export/model/2")
    assert_close(embedder.embed(pixels), EXPORTED)
    assert embedder.view == export.SavedEmbedder(SAVED / "export/model/1").view


# Indexes


def assert_finds(ids, scores, known):
    """Compare as many hits as there are; of near ties either may come first."""
    scores = np.asarray(scores)
    width = scores.shape[1]
    expected = np.array(known["scores"])[:, :width]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    for row, own in enumerate(known["hits"]):
        place = dict(zip(own, known["scores"][row], strict=True))
        for value, score in zip(ids[row], scores[row], strict=True):
            assert place[value] == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize(
    "name", ["exact", "exact_numbers", "scann", "scann_numbers", "scann_tree", "milvus"]
)
def test_index_opens_is_whole_finds_and_takes_changes(here, name):
    known, folder = INDEXES[name], here / "indexes" / name
    if name == "milvus":
        pytest.importorskip("milvus_lite")
        rewrite_manifest(folder, uri=str(here / "indexes/milvus.db"))
    report = index.verify_index(folder)
    assert report.ok, report
    with index.load_index(folder, model_fingerprint=known["model_fingerprint"]) as own:
        stats = own.stats()
        kind = {"ScannIndex": "LocalIndex"}.get(known["kind"], known["kind"])
        assert (stats.kind, stats.metric, stats.count) == (
            kind,
            known["metric"],
            known["count"],
        )
        found = own.search(np.array(known["queries"], "float32"), k=5)
        assert_finds(found.ids.tolist(), found.scores, known)
        items = own.get(known["items"])
        assert_close(items.embeddings, known["embeddings"])
        assert items.attributes == known["attributes"]
        own.remove(known["items"][:1])
    with index.load_index(folder) as own:
        assert known["items"][0] not in own
        assert own.count() == known["count"] - 1


@pytest.mark.slow
def test_gallery_is_searched_and_takes_an_image(here, capsys):
    known, gallery = INDEXES["gallery"], "indexes/gallery"
    assert json_of(capsys, "index", "verify", gallery)["problems"] == []
    (stored,) = (here / gallery / "pictures").iterdir()
    model = ["--model", "export/model", "--images", "images"]
    files = [here / "images" / name for name in known["items"][:2]]
    search = ["search", *files, stored, "--index", gallery, *model]
    results = json_of(capsys, *search, "-k", 5)["results"]
    hits = [result["hits"] for result in results]
    ids = [[hit["id"] for hit in own] for own in hits]
    assert_finds(
        ids[:2], [[hit["similarity"] for hit in own] for own in hits[:2]], known
    )
    assert ids[2][0] == "added/0.png"

    shutil.copytree("images/class-1", "more/class-9")
    added = json_of(capsys, "index", "add", gallery, "more", *model[:2])
    assert (added["added"], added["images"]) == (2, known["count"] + 2)
    json_of(capsys, "index", "remove", gallery, "added/0.png")
    assert not stored.exists()


def test_shards_become_one_index(here, capsys):
    shards = ["indexes/shard_1", "indexes/shard_2"]
    merged = json_of(capsys, "index", "merge", "merged", *shards)
    assert (merged["images"], merged["root"]) == (14, "/srv/images")
    known = INDEXES["shards"]
    with index.load_index(
        "merged", model_fingerprint=known["model_fingerprint"]
    ) as own:
        found = own.search(np.array(known["queries"], "float32"), k=5)
        assert_finds(found.ids.tolist(), found.scores, known)
