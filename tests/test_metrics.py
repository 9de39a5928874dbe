"""Retrieval metrics against golden numbers."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from tests.all_losses import DIMENSION, batch
from tests.autodiff import tensors
from tfdml.callbacks import RetrievalEvaluation
from tfdml.losses import TopKPrecisionLoss
from tfdml.metrics import MisplacedPairs, retrieval_metrics

pytestmark = pytest.mark.backend

GOLDENS = json.loads(
    (Path(__file__).parent / "goldens" / "goldens.json").read_text(encoding="utf-8")
)
CASES = [c for c in GOLDENS["metric_cases"] if "gallery" not in c["inputs"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_metrics_equal_the_golden_numbers(case):
    embeddings, labels = np.array(case["inputs"]["X"]), np.array(case["inputs"]["y"])
    expected = case["expected_by_tie_rule"]["index"]
    ks = [k for k in (1, 2, 3, 5, 10) if k < len(labels)]
    answered = sum((labels == label).sum() > 1 for label in labels)
    if not answered:
        with pytest.raises(ValueError, match="no query has a positive"):
            retrieval_metrics(embeddings, labels, ks)
        return
    received = retrieval_metrics(embeddings, labels, ks)
    assert received["queries"] == answered
    close = {"rel": 0, "abs": 1e-12}
    for k in ks:
        recall = expected[f"recall@{k}_skip"]
        # The golden mean is over all queries, those without a positive too.
        precision = expected[f"precision@{k}"] * len(labels) / answered
        assert received[f"recall_at_{k}"] == pytest.approx(recall, **close)
        assert received[f"precision_at_{k}"] == pytest.approx(precision, **close)
    assert received["map_at_r"] == pytest.approx(expected["map_at_r"], **close)


def test_separate_gallery_equals_the_golden_numbers():
    (case,) = [c for c in GOLDENS["metric_cases"] if "gallery" in c["inputs"]]
    inputs, expected = case["inputs"], case["expected_by_tie_rule"]["index"]
    queries, gallery = len(inputs["y"]), len(inputs["gallery_y"])
    received = retrieval_metrics(
        np.array(inputs["X"] + inputs["gallery"]),
        np.array(inputs["y"] + inputs["gallery_y"]),
        [1, 2, 5],
        is_query=np.arange(queries + gallery) < queries,
        is_gallery=np.arange(queries + gallery) >= queries,
    )
    assert received["queries"] == 5
    assert received["queries_without_positive"] == 1
    for k in (1, 2, 5):
        assert received[f"recall_at_{k}"] == expected[f"recall@{k}_skip"]
    assert received["precision_at_5"] == pytest.approx(
        expected["precision@5"] * queries / 5
    )
    assert received["map_at_r"] == pytest.approx(expected["map_at_r"])


def test_item_of_both_roles_is_searched_but_does_not_find_itself():
    embeddings = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.2]])
    labels = np.array([0, 0, 1, 0])
    is_query = np.array([True, False, False, False])
    is_gallery = np.array([True, False, True, True])
    received = retrieval_metrics(
        embeddings, labels, [1, 2], is_query=is_query, is_gallery=is_gallery
    )
    assert received["queries"] == 1
    assert received["precision_at_1"] == 1.0  # the last one; the second is in neither
    assert received["precision_at_2"] == 0.5
    with pytest.raises(ValueError, match="from 1 to 2, the number of items in the gal"):
        retrieval_metrics(
            embeddings, labels, [3], is_query=is_query, is_gallery=is_gallery
        )
    with pytest.raises(ValueError, match=r"`is_query` must be a bool array .*int64"):
        retrieval_metrics(embeddings, labels, [1], is_query=np.arange(4))


def test_query_of_the_gallery_beside_one_outside_of_it():
    # The first two leave themselves out, so their ranking is shorter than the third's.
    embeddings = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    received = retrieval_metrics(
        embeddings,
        np.array([0, 0, 0]),
        [1],
        is_gallery=np.array([True, True, False]),
    )
    assert received["queries"] == 3
    assert received["map_at_r"] == 1.0


def test_blocks_of_queries_change_nothing(monkeypatch):
    generator = np.random.default_rng(0)
    embeddings, labels = generator.normal(size=(50, 3)), generator.integers(0, 9, 50)
    expected = retrieval_metrics(embeddings, labels)
    monkeypatch.setattr("tfdml.metrics._RANKS_AT_ONCE", 30)
    assert retrieval_metrics(embeddings, labels) == expected


def test_query_itself_is_left_out_but_its_duplicate_is_found():
    embeddings = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.1, 1.0]])
    received = retrieval_metrics(embeddings, np.array([0, 0, 1, 2]), [1])
    assert received["precision_at_1"] == 1.0
    assert received["queries"] == 2
    assert received["queries_without_positive"] == 2


@pytest.mark.parametrize(
    ("labels", "ks", "message"),
    [
        ([0, 1, 2], [1], "no query has a positive"),
        ([0, 0, 1], [3], r"from 1 to 2.*\[3\]"),
        ([0, 0, 1], [0], r"from 1 to 2.*\[0\]"),
        ([0, 0], [1], r"\(3, 2\) and \(2,\)"),
    ],
)
def test_impossible_questions_are_refused(labels, ks, message):
    with pytest.raises(ValueError, match=message):
        retrieval_metrics(np.eye(3)[:, :2] + 1, np.array(labels), ks)


def test_model_that_diverged_is_told():
    with pytest.raises(ValueError, match=r"finite.*diverged.*learning rate.*row 1"):
        retrieval_metrics(np.array([[1.0], [np.nan]]), np.array([0, 0]), [1])


def test_callback_writes_what_early_stopping_and_the_history_read():
    images = np.random.default_rng(0).normal(size=(20, 5)).astype("float32")
    labels = np.repeat(np.arange(5), 4)
    inputs = keras.Input((5,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    model.compile("sgd", "mse")
    evaluation = RetrievalEvaluation(images, labels, ks=(1, 2))
    stopping = keras.callbacks.EarlyStopping(
        "val_precision_at_1", mode="max", min_delta=2, patience=1
    )
    history = model.fit(
        images,
        images[:, :3],
        epochs=5,
        verbose=0,
        callbacks=[evaluation, stopping],
    ).history
    assert len(history["val_precision_at_1"]) == 2  # stopped after one more epoch
    expected = retrieval_metrics(model.predict(images, verbose=0), labels, (1, 2))
    assert history["val_precision_at_1"][-1] == expected["precision_at_1"]
    assert history["val_map_at_r"][-1] == expected["map_at_r"]


def test_callback_refuses_impossible_ks_before_training():
    with pytest.raises(ValueError, match=r"from 1 to 3.*\[1, 4\]"):
        RetrievalEvaluation(np.ones((4, 5)), [0, 0, 1, 1], ks=(1, 4))


def test_collapsed_model_is_measured_and_does_not_end_the_run():
    inputs = keras.Input((5,))
    model = keras.Model(inputs, keras.layers.Dense(3, "relu")(inputs))
    model.layers[-1].set_weights([np.zeros((5, 3)), np.full(3, -1.0)])
    callback = RetrievalEvaluation(np.ones((4, 5), "float32"), [0, 0, 1, 1], ks=(1,))
    callback.set_model(model)
    logs = {}
    callback.on_epoch_end(0, logs)
    assert 0 <= logs["val_precision_at_1"] <= 1


def test_fit_shows_the_number_of_misplaced_pairs():
    labels, inputs = batch()
    layer = keras.Input((DIMENSION,))
    model = keras.Model(layer, keras.layers.Dense(4)(layer))
    metric = MisplacedPairs(k=3, margin=0.2)
    model.compile("sgd", loss=TopKPrecisionLoss(3, 0.2), metrics=[metric])
    embeddings = model.predict(inputs, verbose=0)
    history = model.fit(inputs, labels, batch_size=16, verbose=0)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    same = labels[:, None] == labels[None]
    itself = np.eye(16, dtype=bool)
    scores = (unit @ unit.T).astype("float32")
    masks = tensors(scores, same & ~itself, ~same)
    counts = TopKPrecisionLoss(3, 0.2).misplaced_pairs(*masks)
    expected = ops.convert_to_numpy(counts).mean()
    assert 0 < expected == pytest.approx(history.history["misplaced_pairs"][0])
    again = MisplacedPairs.from_config(metric.get_config())
    assert again.get_config() == metric.get_config()
