"""Retrieval metrics against golden numbers."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.metrics import (
    MetricLimits,
    RetrievalEvaluation,
    RetrievalTask,
    query_metrics,
    retrieval_metrics,
)

pytestmark = pytest.mark.backend

GOLDENS = json.loads(
    (Path(__file__).parents[2] / "goldens" / "goldens.json").read_text(encoding="utf-8")
)
CASES = [c for c in GOLDENS["metric_cases"] if "gallery" not in c["inputs"]]


@pytest.mark.parametrize("ties", ["index", "pessimistic", "optimistic"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_metrics_equal_the_golden_numbers(case, ties):
    embeddings, labels = np.array(case["inputs"]["X"]), np.array(case["inputs"]["y"])
    expected = case["expected_by_tie_rule"][ties]
    ks = [k for k in (1, 2, 3, 5, 10) if k < len(labels)]
    answered = sum((labels == label).sum() > 1 for label in labels)
    if not answered:
        with pytest.raises(ValueError, match="`labels` must hold some label twice"):
            retrieval_metrics(embeddings, labels, ks)
        return
    results = query_metrics(embeddings, labels, ks, ties=ties)
    means = results.means()
    zeros = results.means(without_positive="zero")
    assert len(results.queries) == answered
    close = {"rel": 0, "abs": 1e-12}
    for k in ks:
        recall, precision = expected[f"recall@{k}"], expected[f"precision@{k}"]
        assert zeros[f"recall_at_{k}"] == pytest.approx(recall, **close)
        assert zeros[f"precision_at_{k}"] == pytest.approx(precision, **close)
        recall = expected[f"recall@{k}_skip"]
        assert means[f"recall_at_{k}"] == pytest.approx(recall, **close)
    for name, golden in (
        ("map_at_r", "map_at_r"),
        ("r_precision", "r_precision"),
        ("mean_average_precision", "map_skip"),
    ):
        assert means[name] == pytest.approx(expected[golden], **close)
    average = zeros["mean_average_precision"]
    assert average == pytest.approx(expected["map_all"], **close)
    # Without a negative the golden mean is one of no numbers, written as 0.
    one_class = len(np.unique(labels)) == 1
    area = 1.0 if one_class else expected["mean_query_auc"]
    assert means["roc_auc"] == pytest.approx(area, **close)
    curve = results.curve
    np.testing.assert_allclose(curve.recall[::10], np.arange(11) / 10, atol=1e-15)
    np.testing.assert_allclose(
        curve.interpolated[::10], expected["pr11_max"], rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        curve.linear[::10], expected["pr11_linear"], rtol=0, atol=1e-12
    )


def test_separate_gallery_equals_the_golden_numbers():
    (case,) = [c for c in GOLDENS["metric_cases"] if "gallery" in c["inputs"]]
    inputs, expected = case["inputs"], case["expected_by_tie_rule"]["index"]
    queries, gallery = len(inputs["y"]), len(inputs["gallery_y"])
    results = query_metrics(
        np.array(inputs["X"] + inputs["gallery"]),
        np.array(inputs["y"] + inputs["gallery_y"]),
        [1, 2, 5],
        is_query=np.arange(queries + gallery) < queries,
        is_gallery=np.arange(queries + gallery) >= queries,
    )
    assert results.classes_without_positive.tolist() == [3]
    means, zeros = results.means(), results.means(without_positive="zero")
    for k in (1, 2, 5):
        assert means[f"recall_at_{k}"] == expected[f"recall@{k}_skip"]
        assert zeros[f"recall_at_{k}"] == pytest.approx(expected[f"recall@{k}"])
    assert zeros["precision_at_5"] == pytest.approx(expected["precision@5"])
    for name in ("map_at_r", "r_precision"):
        assert means[name] == pytest.approx(expected[name])
    assert means["mean_average_precision"] == pytest.approx(expected["map_skip"])


def naive_metrics(ranked, k):
    """Read metrics off a ranking, True where a positive stands."""
    positives = sum(ranked)
    precisions = [sum(ranked[:r]) / r for r in range(1, len(ranked) + 1)]
    found = [(r, precisions[r]) for r, hit in enumerate(ranked) if hit]
    negatives = len(ranked) - positives
    wrong = sum(
        not other and place < at
        for at, hit in enumerate(ranked)
        for place, other in enumerate(ranked)
        if hit
    )
    return {
        f"precision_at_{k}": precisions[k - 1],
        f"recall_at_{k}": float(any(ranked[:k])),
        "r_precision": precisions[positives - 1],
        "map_at_r": sum(p for r, p in found if r < positives) / positives,
        "mean_average_precision": sum(p for _, p in found) / positives,
        "mean_reciprocal_rank": 1 / (ranked.index(True) + 1),
        "roc_auc": 1 - wrong / (positives * negatives) if negatives else 1.0,
    }


def naive_rankings(embeddings, labels, is_query, is_gallery, groups):
    rows = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    rankings = {}
    for q in np.flatnonzero(is_query):
        others = np.flatnonzero(is_gallery & (groups != groups[q]))
        order = others[np.argsort(-(rows[others] @ rows[q]), kind="stable")]
        ranked = (labels[order] == labels[q]).tolist()
        if any(ranked):
            rankings[int(q)] = ranked
    return rankings


@pytest.mark.parametrize("seed", range(6))
def test_roles_and_groups_equal_a_loop_over_rankings(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(12, 60))
    embeddings, labels = rng.normal(size=(count, 4)), rng.integers(0, 6, count)
    labels = np.array(list("abcdef"))[labels]
    is_query, is_gallery = rng.random(count) < 0.7, rng.random(count) < 0.8
    groups = rng.integers(0, count // 2, count)
    roles = {"is_query": is_query, "is_gallery": is_gallery, "groups": groups}
    results = query_metrics(embeddings, labels, [3], **roles)
    rankings = naive_rankings(embeddings, labels, is_query, is_gallery, groups)
    assert results.queries.tolist() == list(rankings)
    assert results.classes.tolist() == [labels[q] for q in rankings]
    unanswered = set(np.flatnonzero(is_query).tolist()) - set(rankings)
    assert set(results.without_positive.tolist()) == unanswered
    firsts = [ranked.index(True) + 1 for ranked in rankings.values()]
    assert results.first_ranks.tolist() == firsts
    expected = [naive_metrics(ranked, 3) for ranked in rankings.values()]
    for name, values in results.values.items():
        wanted = [metrics[name] for metrics in expected]
        np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-12, err_msg=name)
    macro = retrieval_metrics(embeddings, labels, [3], average="macro", **roles)
    of_class = results.by(labels)
    for name in expected[0]:
        means = [m[name] for m in of_class.values() if m["queries"]]
        assert macro[name] == pytest.approx(np.mean(means))
        assert of_class["b"][name] == pytest.approx(
            np.mean(results.values[name][results.classes == "b"])
        )


def test_large_ids_and_superclasses_are_labels():
    embeddings = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 1.0]])
    for large in (2**24, 2**53):  # float32 and float64 would make all one
        labels = large + np.array([0, 1, 0, 1])
        assert retrieval_metrics(embeddings, labels, [1])["precision_at_1"] == 0.0
    assert retrieval_metrics(embeddings, labels, [1])["precision_at_1"] == 0.0
    coarse = np.array(["animal", "animal", "thing", "thing"])
    assert retrieval_metrics(embeddings, coarse, [1])["precision_at_1"] == 1.0


def test_zero_rows_are_ranked_and_named_nowhere():
    embeddings = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    received = retrieval_metrics(embeddings, np.array([0, 1, 1]), [1])
    # Cosine 0 with the zero row comes before -1 with the other of its class.
    assert received["precision_at_1"] == 0.0
    assert received["mean_average_precision"] == 0.5


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


def test_blocks_of_queries_change_nothing():
    generator = np.random.default_rng(0)
    embeddings, labels = generator.normal(size=(50, 3)), generator.integers(0, 9, 50)
    expected = retrieval_metrics(embeddings, labels)
    task = RetrievalTask(embeddings, labels, limits=MetricLimits(ranks=30))
    assert retrieval_metrics(task) == expected


def test_query_itself_is_left_out_but_its_duplicate_is_found():
    embeddings = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.1, 1.0]])
    received = retrieval_metrics(embeddings, np.array([0, 0, 1, 2]), [1])
    assert received["precision_at_1"] == 1.0
    assert received["queries"] == 2
    assert received["queries_without_positive"] == 2


SOME = {"embeddings": np.eye(3) + 1, "labels": [0, 0, 1], "ks": [1]}


@refusals(
    ("labels", [0, 1, 2], "must hold some label twice: each class has one item"),
    ("labels", [0, 0], "must have the shape [3]. Received: shape=(2,)"),
    ("labels", [0.0, 0.5, 1.0], "must hold whole numbers or strings"),
    ("labels", None, "must be given"),
    ("ks", [3], "must be from 1 to 2"),
    ("ks", [0], "must be a whole number of at least 1. Received: ks=0"),
    ("ks", [1.5], "must be a whole number of at least 1. Received: ks=1.5"),
    ("ks", 1, "must be a sequence of whole numbers"),
    ("ks", [], "must hold at least one number"),
    ("average", "weighted", "must be one of micro, macro"),
    ("without_positive", "drop", "must be one of skip, zero"),
    ("ties", "random", "must be one of index, pessimistic, optimistic"),
    ("metric", "l2", "must be one of cosine, dot_product, squared_euclidean"),
    ("groups", np.zeros(2, int), "must have the shape [3]"),
    ("groups", np.zeros(3, int), "must leave a query some item of its class: 2"),
    ("is_query", np.zeros(3, bool), "must name a query"),
    ("is_query", np.arange(3), "must be a bool array of shape [3]"),
    ("is_gallery", np.zeros(3, bool), "must name an item to search"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    refuses(retrieval_metrics, argument=argument, value=value, rule=rule, valid=SOME)


def test_model_that_diverged_is_reported():
    rule = r"finite.*row 1\. Training .*diverged.*learning rate"
    with pytest.raises(ValueError, match=rule):
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


def test_checkpoint_keeps_the_model_that_searches_best(tmp_path):
    images = np.random.default_rng(0).normal(size=(20, 5)).astype("float32")
    labels, clips = np.repeat(np.arange(5), 4), np.arange(20) // 2
    is_query = np.arange(20) % 4 > 0
    inputs = keras.Input((5,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    model.compile(keras.optimizers.SGD(2.0), "mse")
    roles = {"is_query": is_query, "groups": clips}
    evaluation = RetrievalEvaluation(images, labels, ks=(1,), **roles)
    checkpoint = keras.callbacks.ModelCheckpoint(
        tmp_path / "best.keras", "val_map_at_r", mode="max", save_best_only=True
    )
    history = model.fit(
        images, images[:, :3], epochs=4, verbose=0, callbacks=[evaluation, checkpoint]
    ).history
    best = keras.models.load_model(tmp_path / "best.keras")
    embeddings = best.predict(images, verbose=0)
    received = retrieval_metrics(embeddings, labels, (1,), **roles)["map_at_r"]
    assert received == pytest.approx(max(history["val_map_at_r"]))


@refusals(
    ("ks", (1, 4), "must be from 1 to 3"),
    ("labels", [0, 1, 2, 3], "must hold some label twice"),
    ("labels", [0, 0, 1], "must have one entry for each of the 4 images. Received: 3"),
    ("groups", [0, 0, 1], "must have the shape [4]"),
    ("metric", "l2", "must be one of"),
    ("average", "all", "must be one of"),
    ("without_positive", "drop", "must be one of"),
)
def test_callback_refuses_bad_arguments_before_training(argument, value, rule):
    valid = {"images": np.ones((4, 5)), "labels": [0, 0, 1, 1], "ks": (1, 2)}
    refuses(RetrievalEvaluation, argument=argument, value=value, rule=rule, valid=valid)


def test_callback_refuses_more_than_the_gallery_holds():
    with pytest.raises(ValueError, match="from 1 to 1"):
        RetrievalEvaluation(
            np.ones((4, 5)), [0, 0, 1, 1], ks=(1, 2), is_gallery=np.arange(4) < 2
        )


def test_callback_counts_the_queries():
    evaluation = RetrievalEvaluation(np.ones((4, 5)), [0, 0, 0, 1], ks=(1,))
    assert (evaluation.queries, evaluation.queries_without_positive) == (3, 1)


def test_rows_of_a_float64_that_float32_cannot_hold_are_refused():
    embeddings, labels = np.eye(4), np.array([0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"`embeddings` must be finite.*row 0"):
        retrieval_metrics(1e200 * embeddings, labels, [1])
    with pytest.raises(ValueError, match="`embeddings` must not be too small"):
        retrieval_metrics(1e-200 * embeddings, labels, [1])


def test_category_of_singletons_is_counted():
    embeddings = np.random.default_rng(0).normal(size=(4, 3))
    results = query_metrics(embeddings, np.array([0, 0, 1, 2]), [1])
    found = results.by(np.array(["pairs", "pairs", "alone", "alone"], dtype=object))
    assert found["alone"] == {"queries": 0, "queries_without_positive": 2}
    assert found["pairs"]["queries"] == 2
    with pytest.raises(ValueError, match="`groups` must have one entry per item, 4"):
        results.by(["pairs", "pairs"])


def test_collapsed_model_is_measured_and_does_not_end_the_run():
    inputs = keras.Input((5,))
    model = keras.Model(inputs, keras.layers.Dense(3, "relu")(inputs))
    model.layers[-1].set_weights([np.zeros((5, 3)), np.full(3, -1.0)])
    callback = RetrievalEvaluation(np.ones((4, 5), "float32"), [0, 0, 1, 1], ks=(1,))
    callback.set_model(model)
    logs = {}
    callback.on_epoch_end(0, logs)
    # All tie: the first of the others comes first, which two of four belong to.
    assert logs["val_precision_at_1"] == 0.5
