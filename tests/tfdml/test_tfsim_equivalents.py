"""TensorFlow Similarity 0.17.1 beside what takes its place.

docs/migration/tensorflow-similarity.md has the table, and
goldens/make_golden_tfsim.py recorded the numbers.
"""

import functools
import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import value_and_gradient
from tests.support.golden_cases import assert_computes
from tfdml.layers import GeMPooling, L2Normalization
from tfdml.losses import (
    CircleLoss,
    HardTripletLoss,
    MultiSimilarityLoss,
    NCALoss,
    NTXentLoss,
    SemiHardTripletLoss,
    query_gallery_loss,
)
from tfdml.metrics import retrieval_metrics
from tfdml.models import CrossBatchMemory
from tfdml.ops import cosine_similarities, label_masks, masked_logsumexp

pytestmark = [pytest.mark.backend, pytest.mark.slow]

TESTS = Path(__file__).parents[1]
WHOLE = ["balanced", "two_a_class", "unnormalised"]
"""Batches in which every anchor has a positive."""
UNIT = ["balanced", "two_a_class", "with_singletons"]


@functools.cache
def recorded():
    text = (TESTS / "goldens" / "golden_tfsim.json").read_text(encoding="utf-8")
    return json.loads(text)


def cases(loss, batches, **arguments):
    """The recorded cases of a loss with these arguments, as parameters."""
    found = [
        pytest.param(case, id=f"{case['batch']}-{number}")
        for number, case in enumerate(recorded()["cases"])
        if case["loss"] == loss
        and case["batch"] in batches
        and all(case["arguments"].get(name) == v for name, v in arguments.items())
    ]
    assert found
    return found


def batch_of(name):
    batch = recorded()["batches"][name]
    return np.array(batch["labels"]), np.array(batch["embeddings"])


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def assert_equals(case, function, *, rough=False):
    """Compare value and gradient of `function(labels, x)` with a case."""
    labels, x = batch_of(case["batch"])
    is_double = case["dtype"] == "float64"
    if rough:
        limits = 2e-6 if is_double else 1e-4, 1e-4
    else:
        limits = (1e-7,) if is_double else (2e-5,)
    assert_computes(
        lambda x: function(labels, x), x, case["value"], case["gradient"], *limits
    )


def hard_loss(case):
    margin, distance = case["arguments"]["margin"], case["arguments"]["distance"]
    return HardTripletLoss(
        margin or 0.0,
        soft=margin is None,
        distance=distance,
        normalize=distance == "cosine" or case["batch"] != "unnormalised",
        dtype="float64",
    )


def is_cosine_of_raw_rows(case):
    """There "cosine" is 1 - a.b, whatever the length of a and b."""
    cosine = case["arguments"].get("distance", "cosine") == "cosine"
    return cosine and case["batch"] == "unnormalised"


HARD = {"positive_mining_strategy": "hard", "negative_mining_strategy": "hard"}
SEMI_HARD = {**HARD, "negative_mining_strategy": "semi-hard"}


@pytest.mark.parametrize("case", cases("TripletLoss", WHOLE, **HARD))
def test_hard_triplets_are_equal_where_every_anchor_has_a_positive(case):
    loss = hard_loss(case)
    if not is_cosine_of_raw_rows(case):
        assert_equals(case, loss)
        return
    assert float(loss(*batch_of(case["batch"]))) != pytest.approx(case["value"], 1e-3)

    def on_products(labels, x):
        products = ops.matmul(x, ops.transpose(x))
        values = loss.pair_loss(ops.relu(1 - products), *label_masks(labels))
        return ops.sum(values) / len(labels)

    assert_equals(case, on_products)


@pytest.mark.parametrize("case", cases("TripletLoss", ["with_singletons"], **HARD))
def test_lone_anchors_add_loss_to_hard_triplets_there(case):
    loss = hard_loss(case)

    def function(labels, x):
        """Give a lone anchor a positive at distance 0, and count it."""
        scores = loss.scores(x, x)
        losses, whole = loss.anchor_losses(scores, *label_masks(labels))
        other = labels[:, None] != labels
        nearest = ops.min(ops.where(other, scores, np.inf), axis=1)
        gap = loss.margin - nearest
        lone = ops.softplus(gap) if loss.soft else ops.relu(gap)
        return ops.sum(ops.where(whole, losses, lone)) / len(labels)

    # "Distance 0" is the distance to itself less 1e-6 there, rounded in float32.
    assert_equals(case, function, rough=True)


@pytest.mark.parametrize(
    "case",
    [
        p
        for p in cases("TripletLoss", ["two_a_class"], **SEMI_HARD)
        if p.values[0]["arguments"]["margin"] is not None
    ],
)
def test_semi_hard_triplets_are_equal_with_two_images_a_class(case):
    distance, margin = case["arguments"]["distance"], case["arguments"]["margin"]
    assert_equals(case, SemiHardTripletLoss(margin, distance=distance, dtype="float64"))


def test_semi_hard_triplets_differ_with_more_images_a_class():
    """Here every positive has its triplet, there the farthest of an anchor alone."""
    chosen = cases("TripletLoss", ["balanced"], **SEMI_HARD, margin=0.2)
    (case,) = (p.values[0] for p in chosen)
    value = SemiHardTripletLoss(0.2, distance="cosine")(*batch_of("balanced"))
    assert float(value) != pytest.approx(case["value"], rel=1e-2)


@functools.cache
def documented(name):
    """A class of that page, which holds the code that it needs."""
    path = TESTS.parent / "docs" / "migration" / "tensorflow-similarity.md"
    page = path.read_text(encoding="utf-8")
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(block, path.name, "exec"), names)  # noqa: S102
    return names[name]


@pytest.mark.parametrize(
    "case", cases("TripletLoss", ["balanced", "two_a_class"], **SEMI_HARD, margin=None)
)
def test_documented_loss_is_the_default_triplet_loss_there(case):
    assert_equals(case, documented("OneTripletLoss")(dtype="float64"))


def mined(distances, positives, negatives, arguments):
    """The positive and the negative of one anchor, by position, as they are there."""
    pick = {"hard": max, "easy": min}[arguments["positive_mining_strategy"]]
    positive = pick(positives, key=distances.__getitem__)
    strategy = arguments["negative_mining_strategy"]
    beyond = distances[positives].max()
    semi = [n for n in negatives if distances[n] > beyond]
    if strategy == "hard" or (strategy == "semi-hard" and semi):
        among = semi if strategy == "semi-hard" else negatives
        return positive, min(among, key=distances.__getitem__)
    return positive, max(negatives, key=distances.__getitem__)


@pytest.mark.parametrize(
    "case", [*cases("TripletLoss", WHOLE), *cases("PNLoss", WHOLE)]
)
def test_every_mining_strategy_there_picks_one_triplet_an_anchor(case):
    arguments, (labels, x) = case["arguments"], batch_of(case["batch"])
    x = unit(x) if case["batch"] != "unnormalised" else x
    squared = np.square(x[:, None] - x).sum(axis=2)
    distances = {
        "cosine": np.maximum(1 - x @ x.T, 0),
        "squared_euclidean": squared,
        "euclidean": np.sqrt(squared),
    }[arguments["distance"]]
    total, items = 0.0, np.arange(len(labels))
    for i in items:
        positives = items[(labels == labels[i]) & (items != i)]
        negatives = items[labels != labels[i]]
        p, n = mined(distances[i], positives, negatives, arguments)
        apart = distances[i, n]
        if case["loss"] == "PNLoss":
            apart = min(apart, distances[p, n])
        gap = distances[i, p] - apart
        margin = arguments["margin"]
        total += np.log1p(np.exp(gap)) if margin is None else max(0, gap + margin)
    assert total / len(labels) == pytest.approx(case["value"], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("case", cases("MultiSimilarityLoss", UNIT))
def test_multi_similarity_is_equal(case):
    options = {"alpha": 2, "beta": 40, "epsilon": 0.1, "lmda": 0.5, "center": 1.0}
    options |= case["arguments"]
    loss = MultiSimilarityLoss(
        positive_scale=options["alpha"],
        negative_scale=options["beta"],
        threshold=1 + options["lmda"] - options["center"],
        epsilon=options["epsilon"],
        dtype="float64",
    )
    assert_equals(case, loss)


@pytest.mark.parametrize(
    "case", cases("MultiSimilarityLoss", ["unnormalised"], beta=None)
)
def test_multi_similarity_takes_products_of_raw_rows_there(case):
    loss = MultiSimilarityLoss(negative_scale=40, dtype="float64")
    assert float(loss(*batch_of(case["batch"]))) != pytest.approx(case["value"], 1e-3)

    def on_products(labels, x):
        distances = ops.relu(1 - ops.matmul(x, ops.transpose(x)))
        values = loss.pair_loss(1 - distances, *label_masks(labels))
        return ops.sum(values) / len(labels)

    assert_equals(case, on_products)


@pytest.mark.parametrize("case", cases("CircleLoss", UNIT))
def test_circle_loss_there_parts_positives_from_negatives(case):
    """There softplus(p) + softplus(n), with moving paces; here softplus(p + n)."""
    scale = case["arguments"].get("gamma", 80.0)
    margin = case["arguments"].get("margin", 0.4)

    def function(labels, x):
        s = cosine_similarities(x, x)
        positives, negatives = label_masks(labels)
        right = scale * ops.relu(1 + margin - s) * (1 - margin - s)
        wrong = scale * ops.relu(s + margin) * (s - margin)
        values = ops.softplus(masked_logsumexp(right, positives))
        values = values + ops.softplus(masked_logsumexp(wrong, negatives))
        values = ops.where(ops.any(positives, axis=1), values, 0)
        return ops.sum(values) / len(labels)

    assert_equals(case, function)
    ours = float(CircleLoss(scale, margin=margin)(*batch_of(case["batch"])))
    assert ours < case["value"]


SOFT = "SoftNearestNeighborLoss"
NOT_COSINE = {"distance": "squared_euclidean", "temperature": 0.5}


@pytest.mark.parametrize(
    "case", [*cases(SOFT, UNIT), *cases(SOFT, ["unnormalised"], **NOT_COSINE)]
)
def test_soft_nearest_neighbor_loss_is_nca(case):
    scale = 1 / case["arguments"].get("temperature", 1.0)
    cosine = case["arguments"].get("distance") == "cosine"
    if case["batch"] == "unnormalised":
        loss = NCALoss(scale, euclidean=True, dtype="float64")
    else:  # D = 2 - 2 S for unit rows
        loss = NCALoss(scale if cosine else 2 * scale, dtype="float64")
    assert_equals(case, loss)


@pytest.mark.parametrize("case", cases(SOFT, ["unnormalised"], temperature=0.05))
def test_soft_nearest_neighbor_loss_ends_at_a_probability_of_1e_9_there(case):
    """One anchor has the probability 1.3e-19."""
    labels, x = batch_of(case["batch"])
    values = NCALoss(20.0, euclidean=True, reduction=None, dtype="float64")(labels, x)
    probabilities = np.exp(-ops.convert_to_numpy(values))
    assert probabilities.min() < 1e-18
    ended = np.mean(-np.log(1e-9 + probabilities))
    assert case["value"] == pytest.approx(ended, rel=1e-5)
    assert -np.mean(np.log(probabilities)) > 2 * case["value"]


def test_simclr_loss_is_twice_nt_xent():
    numbers = recorded()["two_views"]
    _, x = batch_of(numbers["batch"])
    views = np.concatenate([x[0::2], x[1::2]])
    ids = np.tile(np.arange(len(views) // 2), 2)
    value = NTXentLoss(temperature=0.5, dtype="float64")(ids, views)
    there = numbers["SimCLRLoss(temperature=0.5)"]
    assert 2 * float(value) == pytest.approx(there, rel=1e-6)


def test_multiple_negatives_ranking_there_has_a_one_more_in_the_sum():
    numbers = recorded()["two_views"]
    _, x = batch_of(numbers["batch"])
    ids = np.arange(len(x) // 2)
    loss = NTXentLoss(temperature=1 / 20, dtype="float64")
    ours = ops.convert_to_numpy(query_gallery_loss(loss, ids, x[0::2], ids, x[1::2]))
    products = 20 * unit(x[0::2]) @ unit(x[1::2]).T
    # log(1 + sum e^s) - log(sum e^s)
    more = np.log1p(1 / np.exp(products).sum(axis=1))
    there = numbers["MultiNegativesRankLoss()"]
    assert np.mean(ours + more) == pytest.approx(there, rel=1e-6)


def test_cross_batch_memory_is_equal_with_its_batch_counted_out():
    numbers = recorded()["memory"]
    labels, x = batch_of(numbers["batch"])
    inputs = keras.Input((4,))
    embedder = keras.Model(
        inputs, keras.layers.Dense(4, kernel_initializer="identity")(inputs)
    )
    model = CrossBatchMemory(embedder, size=8 - 4)
    model.compile(
        keras.optimizers.SGD(0.0), loss=MultiSimilarityLoss(negative_scale=40)
    )
    for rows, expected in zip(numbers["steps"], numbers["values"], strict=True):
        history = model.fit(
            x[rows], labels[rows], batch_size=4, shuffle=False, verbose=0
        )
        assert history.history["loss"][0] == pytest.approx(expected, rel=1e-5)


def test_old_weights_load_into_the_documented_layer_and_into_dense_layers():
    numbers = recorded()["embedding"]
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(4, "tanh")(inputs)
    model = keras.Model(inputs, documented("MetricEmbedding")(2)(hidden))
    model.load_weights(TESTS / "goldens" / "golden_tfsim.weights.h5")
    rows = model.predict(np.array(numbers["inputs"]), verbose=0)
    np.testing.assert_allclose(rows, numbers["outputs"], atol=2e-6)
    outputs = L2Normalization()(keras.layers.Dense(2)(hidden))
    plain = keras.Model(inputs, outputs)
    plain.set_weights(model.get_weights())
    rows = plain.predict(np.array(numbers["inputs"]), verbose=0)
    np.testing.assert_allclose(rows, numbers["outputs"], atol=2e-6)


def test_generalized_mean_pooling_is_equal_with_a_shift():
    numbers = recorded()["pooling"]
    x = np.array(numbers["inputs"])
    layer = GeMPooling(numbers["p"], negative="shift", dtype="float64")
    pooled = ops.convert_to_numpy(layer(x))
    np.testing.assert_allclose(pooled, numbers["outputs"], atol=1e-5)
    clipped = ops.convert_to_numpy(GeMPooling(numbers["p"])(x))
    assert np.abs(clipped - pooled).max() > 0.1
    _, gradient = value_and_gradient(lambda x: ops.sum(ops.square(layer(x))), x)
    right = numbers["gradient_of_squares"]
    np.testing.assert_allclose(gradient, right, atol=1e-5)


def test_retrieval_metrics_are_equal_where_k_leaves_the_query_out():
    numbers = recorded()["retrieval"]
    labels, x = batch_of(numbers["batch"])
    ours, there = retrieval_metrics(x, labels, ks=(1, 2, 3)), numbers["values"]
    for k in (1, 2, 3):
        assert ours[f"recall_at_{k}"] == pytest.approx(there[f"RecallAtK(k={k})"])
    # Its precision at k looks at the k - 1 items after the query.
    for k in (1, 2):
        expected = there[f"PrecisionAtK(k={k + 1})"]
        assert ours[f"precision_at_{k}"] == pytest.approx(expected)
    assert there["PrecisionAtK(k=1)"] == 0
    expected = there["MapAtK(r=sizes, clip_at_r=True)"]
    assert ours["map_at_r"] == pytest.approx(expected)
