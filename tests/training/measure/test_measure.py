"""How a split of a data set is measured."""

import keras
import numpy as np
import pytest
from PIL import Image

from tfdml.images import View
from tfdml.metrics import label_distance_metrics, retrieval_metrics
from tfdml.progress import Progress
from training.data.data_set import DataSet
from training.data.images import Images
from training.data.split import Split
from training.measure.embed import embed, raw_pixels
from training.measure.measure import (
    SplitEvaluation,
    measure,
    nearest_images,
    task_of,
)

pytestmark = pytest.mark.backend

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.integers(0, 256, (70, 8, 8, 3), "uint8")
LABELS = np.repeat(np.arange(14), 5)
EMBEDDINGS = GENERATOR.normal(size=(70, 4))


def split(labels=LABELS, **more):
    names = () if labels.ndim > 1 else tuple(f"class {i}" for i in range(14))
    splits = np.full(70, "test")
    data = DataSet(IMAGES, labels, splits, names, **more)
    return Split(data, Images(data, View(8)), np.arange(70))


def test_classes_are_measured_by_retrieval():
    received = measure(split(), lambda _: EMBEDDINGS)
    assert received == retrieval_metrics(EMBEDDINGS, LABELS, (1, 5))


def test_queries_search_the_gallery_alone():
    roles = np.where(np.arange(70) % 5 == 0, "query", "gallery")
    received = measure(split(roles=roles), lambda _: EMBEDDINGS)
    assert received["queries"] == 14
    found = 0
    gallery = np.flatnonzero(roles == "gallery")
    unit = EMBEDDINGS / np.linalg.norm(EMBEDDINGS, axis=1, keepdims=True)
    for query in np.flatnonzero(roles == "query"):
        best = gallery[np.argmax(unit[gallery] @ unit[query])]
        found += LABELS[best] == LABELS[query]
    assert received["precision_at_1"] == pytest.approx(found / 14)


@pytest.mark.parametrize(
    ("roles", "labels", "ks"),
    [
        (["gallery", "query", "query", "query"], [0, 0, 0, 0], (1,)),
        (["", "", "query", "gallery"], [0, 0, 0, 1], (1,)),
        (["gallery"] * 5 + ["query"], [0, 0, 1, 1, 1, 0], (1, 5)),
        (["", "query"], [0, 0], (1,)),
    ],
    ids=["gallery of one", "both roles", "gallery of five", "alone in its gallery"],
)
def test_k_is_what_the_smallest_gallery_allows(roles, labels, ks):
    count = len(roles)
    data = DataSet(
        IMAGES[:count],
        np.array(labels),
        np.full(count, "test"),
        ("a", "b"),
        roles=np.array(roles),
    )
    shown = Split(data, None, np.arange(count))
    received = measure(shown, lambda _: EMBEDDINGS[:count])
    found = {name for name in received or {} if name.startswith("precision")}
    assert found == {f"precision_at_{k}" for k in ks}


def test_of_many_queries_some_are_drawn():
    received = measure(split(), lambda _: EMBEDDINGS, most_queries=20)
    assert received["queries"] == 20
    again = measure(split(), lambda _: EMBEDDINGS, most_queries=20)
    assert received == again
    whole = measure(split(), lambda _: EMBEDDINGS, most_queries=70)
    assert whole == measure(split(), lambda _: EMBEDDINGS)


def test_row_of_zeros_is_measured_with_continuous_labels():
    embeddings = EMBEDDINGS.copy()
    embeddings[3] = 0
    labels = GENERATOR.normal(size=(70, 3))
    received = measure(split(labels), lambda _: embeddings)
    assert np.isfinite(list(received.values())).all()


def test_vanished_file_is_named_whatever_reads_it(tmp_path):
    paths = tuple(tmp_path / f"{i}.png" for i in range(70))
    for path in paths[:-1]:
        Image.fromarray(IMAGES[0]).save(path)
    names = tuple(f"class {i}" for i in range(14))
    data = DataSet(paths, LABELS, np.full(70, "test"), names)
    shown = Split(data, Images(data, View(8)), np.arange(70))
    embedder = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten()])
    with pytest.raises(FileNotFoundError, match=r"69\.png"):
        embed(embedder, shown)


def test_continuous_labels_are_measured_by_their_distance():
    labels = GENERATOR.normal(size=(70, 3))
    clips = np.array([f"clip {i % 3}" for i in range(70)])
    received = measure(split(labels, sequences=clips), lambda _: EMBEDDINGS)
    everyone = label_distance_metrics(EMBEDDINGS, labels, (1, 10))
    others = label_distance_metrics(EMBEDDINGS, labels, (1, 10), groups=clips)
    expected = everyone | {f"{k}_other_sequences": v for k, v in others.items()}
    assert received == expected


def test_nothing_is_measured_where_no_query_has_a_positive():
    everyone_alone = split(np.arange(70) % 14).data
    alone = everyone_alone.select(np.arange(14))
    assert measure(Split(alone, None, np.arange(14)), raw_pixels) is None
    roles = np.full(70, "query")
    assert measure(split(roles=roles), lambda _: EMBEDDINGS) is None


def test_embeddings_come_in_the_order_of_the_split():
    layers = [keras.Input((8, 8, 3)), keras.layers.Flatten()]
    whole = split()
    some = np.arange(69, 2, -1)
    shown = Split(whole.data.select(some), whole.images, some)
    received = embed(keras.Sequential(layers), shown)
    np.testing.assert_array_equal(received, IMAGES[some].reshape(len(some), -1))


def test_model_sees_blocks_of_one_size():
    seen = []

    class Model:
        def predict(self, blocks, verbose):
            seen.extend(len(blocks[index][0]) for index in range(len(blocks)))
            return np.zeros((sum(seen), 2), "float32")

    assert embed(Model(), split()).shape == (70, 2)
    assert seen == [64, 64]


def test_each_image_is_counted_once(monkeypatch):
    """Keras looks at the first block before it reads all."""
    jobs = []

    class Kept(Progress):
        def __enter__(self):
            jobs.append(self)
            return super().__enter__()

    monkeypatch.setattr("training.measure.embed.Progress", Kept)
    embed(keras.Sequential([keras.layers.Flatten()]), split())
    raw_pixels(split())
    assert [(job.done, job.total) for job in jobs] == [(70, 70), (70, 70)]


def test_raw_pixels_are_centered():
    rows = raw_pixels(split())
    assert rows.shape == (70, 3072)
    np.testing.assert_allclose(rows.mean(axis=1), 0, atol=1e-3)


def test_callback_adds_the_metrics_of_the_epoch():
    layers = [keras.Input((8, 8, 3)), keras.layers.Flatten()]
    embedder = keras.Sequential(layers)
    logs = {}
    SplitEvaluation(split(), embedder).on_epoch_end(0, logs)
    expected = measure(split(), lambda shown: embed(embedder, shown))
    assert logs["val_map_at_r"] == expected["map_at_r"]
    assert not any("queries" in name for name in logs)


# Searches as the metrics make them

FEW = np.random.default_rng(0).normal(size=(8, 3))


def few(**more):
    """A task of eight images of two classes."""
    images, labels = np.zeros((8, 1, 1, 3), "uint8"), np.repeat([0, 1], 4)
    data = DataSet(images, labels, np.full(8, "test"), ("a", "b"), **more)
    return task_of(Split(data, None, np.arange(8)), FEW)


def nearest(query, allowed):
    unit = FEW / np.linalg.norm(FEW, axis=1, keepdims=True)
    scores = unit[allowed] @ unit[query]
    order = np.argsort(-scores)
    return np.array(allowed)[order], scores[order]


def test_gallery_is_searched_without_the_image_itself():
    roles = np.array(["", "query", "gallery", "", "", "gallery", "", "query"])
    found, scores = nearest_images(few(roles=roles), np.array([0, 1]), 4)
    for row, (query, allowed) in enumerate(
        [(0, [2, 3, 4, 5, 6]), (1, [0, 2, 3, 4, 5, 6])]
    ):
        expected, similar = nearest(query, allowed)
        assert found[row].tolist() == expected[:4].tolist()
        np.testing.assert_allclose(scores[row], similar[:4], rtol=1e-5)


def test_own_sequence_is_left_out():
    clips = np.array(["x", "y", "x", "z", "y", "x", "z", "y"])
    found, _ = nearest_images(few(sequences=clips), np.array([3, 5]), 9)
    assert found.shape == (2, 5)  # what the one with the largest clip may find
    assert found[0].tolist() == nearest(3, [0, 1, 2, 4, 5, 7])[0][:5].tolist()
    assert found[1].tolist() == nearest(5, [1, 3, 4, 6, 7])[0].tolist()


def test_nothing_is_found_where_one_may_find_nothing():
    clips = np.full(8, "x")
    found, scores = nearest_images(few(sequences=clips), np.arange(8), 3)
    assert found.shape == scores.shape == (8, 0)
