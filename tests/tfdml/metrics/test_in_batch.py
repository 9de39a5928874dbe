"""Metrics of a batch during training, against golden numbers and naive loops."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, JIT, slow_on_jax, tensors
from tests.support.loss_entry import DIMENSION, batch
from tfdml.losses import TopKPrecisionLoss
from tfdml.metrics import (
    MeanAveragePrecision,
    MeanAveragePrecisionAtR,
    MisplacedPairs,
    PrecisionAtK,
    RecallAtK,
    RPrecision,
)

pytestmark = pytest.mark.backend

GOLDENS = json.loads(
    (Path(__file__).parents[2] / "goldens" / "goldens.json").read_text(encoding="utf-8")
)
# JAX compiles each operation for each shape: one case stands for all, and other tests
# take the same few shapes.
CASES = [
    pytest.param(
        case,
        id=case["id"],
        marks=[] if case["id"] == "metrics/larger" else slow_on_jax,
    )
    for case in GOLDENS["metric_cases"]
    if "gallery" not in case["inputs"]
]
KS = (1, 2, 3, 5, 10)

METRICS = {
    "precision_at_1": PrecisionAtK,
    "precision_at_3": lambda **kwargs: PrecisionAtK(3, **kwargs),
    "precision_at_40": lambda **kwargs: PrecisionAtK(40, **kwargs),
    "recall_at_1": RecallAtK,
    "recall_at_3": lambda **kwargs: RecallAtK(k=3, **kwargs),
    "recall_at_40": lambda **kwargs: RecallAtK(k=40, **kwargs),
    "r_precision": RPrecision,
    "map_at_r": MeanAveragePrecisionAtR,
    "mean_average_precision": MeanAveragePrecision,
}
MODES = [{"run_eagerly": True, "jit_compile": False}]
MODES += [{"jit_compile": compiled} for compiled in JIT]


def naive(labels, embeddings):
    """Return the values of each query by definition, {} for an item without one."""
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = embeddings / np.where(lengths == 0, 1, lengths)
    # Products of equal rows must be equal, which a matrix product does not promise.
    scores = (unit[:, None] * unit).sum(axis=2)
    values = []
    for q in range(len(labels)):
        others = [i for i in range(len(labels)) if i != q]
        ranked = sorted(others, key=lambda i: (-scores[q, i], i))
        is_positive = [labels[i] == labels[q] for i in ranked]
        positives = sum(is_positive)
        if positives == 0:
            values.append({})
            continue
        precision = [
            sum(is_positive[:rank]) / rank if is_positive[rank - 1] else 0
            for rank in range(1, len(labels))
        ]
        found = {f"precision_at_{k}": sum(is_positive[:k]) / k for k in (1, 3, 40)}
        found |= {f"recall_at_{k}": float(any(is_positive[:k])) for k in (1, 3, 40)}
        found["r_precision"] = sum(is_positive[:positives]) / positives
        found["map_at_r"] = sum(precision[:positives]) / positives
        found["mean_average_precision"] = sum(precision) / positives
        values.append(found)
    return values


def naive_mean(values, name):
    found = [value[name] for value in values if value]
    return sum(found) / len(found) if found else 0


def measured(name, labels, embeddings, **kwargs):
    metric = METRICS[name](dtype="float64")
    metric.update_state(labels, embeddings, **kwargs)
    return float(metric.result())


@keras.saving.register_keras_serializable(package="tests")
def nothing(labels, embeddings):
    """Return a loss that takes a batch of one row too."""
    return 0 * embeddings[:, 0]


def identity_model(dimension, names=METRICS, **kwargs):
    """A compiled model whose embeddings are its inputs."""
    inputs = keras.Input((dimension,))
    model = keras.Model(inputs, keras.layers.Identity()(inputs))
    metrics = [METRICS[name]() for name in names]
    model.compile(loss=nothing, metrics=metrics, **kwargs)
    return model


@pytest.mark.parametrize("case", CASES)
def test_metrics_of_one_batch_equal_the_golden_numbers(case):
    embeddings, labels = np.array(case["inputs"]["X"]), np.array(case["inputs"]["y"])
    expected = case["expected_by_tie_rule"]["index"]
    answered = sum((labels == label).sum() > 1 for label in labels)
    metrics = {
        "map_skip": MeanAveragePrecision(dtype="float64"),
        "map_at_r": MeanAveragePrecisionAtR(dtype="float64"),
        "r_precision": RPrecision(dtype="float64"),
    }
    metrics |= {f"recall@{k}_skip": RecallAtK(k, dtype="float64") for k in KS}
    metrics |= {f"precision@{k}": PrecisionAtK(k, dtype="float64") for k in KS}
    for name, metric in metrics.items():
        metric.update_state(labels, embeddings)
        assert float(metric.count) == answered
        # The golden mean is over all queries, those without a positive too.
        scale = len(labels) / max(answered, 1) if name.startswith("precision") else 1
        received = float(metric.result())
        if BACKEND == "torch" and case["id"] == "metrics/ties_duplicate_rows":
            # Its product of matrices rounds those of equal rows differently.
            rules = case["expected_by_tie_rule"]
            low, high = (rules[r][name] * scale for r in ("pessimistic", "optimistic"))
            assert low - 1e-12 <= received <= high + 1e-12, name
            continue
        value = pytest.approx(expected[name] * scale, rel=0, abs=1e-12)
        assert received == value, name


def random_batch(generator, rows):
    """Rows of exact cosines with many ties, some of them zero."""
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
    vectors = np.concatenate([corners, np.eye(4), -np.eye(4), np.zeros((2, 4))])
    lengths = generator.choice([0.25, 1.0, 8.0], size=(rows, 1))
    return vectors[generator.integers(0, len(vectors), rows)] * lengths


@pytest.mark.parametrize(
    ("rows", "classes"),
    [
        pytest.param(*shape, marks=slow_on_jax)
        for shape in ((2, 1), (2, 9), (17, 1), (17, 4), (17, 12), (17, 2))
    ],
)
def test_metrics_equal_the_definition_with_ties(rows, classes):
    generator = np.random.default_rng(5)
    labels = generator.integers(0, classes, rows)
    for embeddings in (
        random_batch(generator, rows),
        generator.normal(size=(rows, 3)),
    ):
        values = naive(labels, embeddings)
        for name in METRICS:
            expected = naive_mean(values, name)
            received = measured(name, labels, embeddings)
            assert received == pytest.approx(expected, abs=1e-12), name


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_batches_of_any_size_count_by_their_queries(mode):
    # 25 rows in batches of 8, the last of one row.
    generator = np.random.default_rng(2)
    labels = generator.integers(0, 4, 25) + 2**24  # beyond the integers of float32
    embeddings = np.concatenate(
        [random_batch(generator, 12), generator.normal(size=(13, 4))]
    ).astype("float32")
    values = []
    for start in range(0, 25, 8):
        rows = slice(start, start + 8)
        values += naive(labels[rows], embeddings[rows].astype("float64"))
    assert 0 < sum(not value for value in values) < 25
    model = identity_model(4, **mode)
    if mode["jit_compile"]:
        labels = labels[:, None]
    shown = model.evaluate(
        embeddings, labels, batch_size=8, verbose=0, return_dict=True
    )
    for name in METRICS:
        expected = naive_mean(values, name)
        assert shown[f"batch_{name}"] == pytest.approx(expected, rel=1e-6), name


@pytest.mark.parametrize(
    "mode",
    [pytest.param(MODES[0], marks=slow_on_jax), *MODES[1:]],
    ids=str,
)
def test_ties_of_many_rows_come_in_the_order_of_the_batch(mode):
    generator = np.random.default_rng(8)
    labels = generator.integers(0, 9, 300)
    names = ("recall_at_3", "mean_average_precision")
    # XLA gives similarities of 0 and of -0, which are equal.
    embeddings = generator.integers(-1, 2, (300, 1)).astype("float32")
    values = naive(labels, embeddings)
    model = identity_model(1, names, **mode)
    shown = model.evaluate(
        embeddings, labels, batch_size=300, verbose=0, return_dict=True
    )
    for name in names:
        expected = naive_mean(values, name)
        assert shown[f"batch_{name}"] == pytest.approx(expected, rel=1e-5)


def test_model_in_half_precision_is_scored_in_float32():
    generator = np.random.default_rng(3)
    labels = np.repeat(np.arange(10), 4) + 2**24
    inputs = generator.normal(size=(40, 5)).astype("float16")
    model = keras.Sequential(
        [keras.Input((5,), dtype="float16"), keras.layers.Identity(dtype="float16")]
    )
    model.compile(loss=nothing, metrics=[METRICS[name]() for name in METRICS])
    shown = model.evaluate(inputs, labels, batch_size=40, verbose=0, return_dict=True)
    values = naive(labels, inputs.astype("float64"))
    for name in METRICS:
        expected = naive_mean(values, name)
        assert shown[f"batch_{name}"] == pytest.approx(expected, rel=1e-6), name


@pytest.mark.parametrize("name", METRICS)
def test_weight_of_a_query_counts_in_the_mean_and_leaves_it_in_the_gallery(name):
    generator = np.random.default_rng(4)
    labels, embeddings = generator.integers(0, 6, 17), generator.normal(size=(17, 3))
    weights = generator.integers(0, 3, 17).astype("float64")
    values = naive(labels, embeddings)
    pairs = [(v[name], w) for v, w in zip(values, weights, strict=True) if v]
    expected = sum(v * w for v, w in pairs) / sum(w for _, w in pairs)
    for sample_weight in (weights, weights[:, None], weights.tolist()):
        received = measured(name, labels, embeddings, sample_weight=sample_weight)
        assert received == pytest.approx(expected, rel=1e-12)
    half = measured(name, labels, embeddings, sample_weight=0.5)
    assert half == pytest.approx(naive_mean(values, name), rel=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_batch_without_a_query_adds_nothing(name):
    metric = METRICS[name](dtype="float64")
    x = np.random.default_rng(0).normal(size=(17, 3))
    for rows in (17, 1):
        metric.update_state(np.arange(rows), x[:rows])
        assert float(metric.result()) == 0
        assert float(metric.count) == 0
    metric.update_state([7, 7], x[:2])
    assert float(metric.count) == 2
    found = 1 / 3 if name == "precision_at_3" else 1 / 40 if "n_at_40" in name else 1
    assert float(metric.result()) == pytest.approx(found)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_diverged_model_gives_nan(name, bad):
    x = np.random.default_rng(0).normal(size=(17, 3))
    x[3, 0] = bad
    assert np.isnan(measured(name, [0, 0, 1, *range(2, 16)], x))


@pytest.mark.parametrize("offset", [2**24, 2**31 - 2])
def test_large_class_ids_stay_apart(offset):
    labels, x = np.array([0, 1, 1, 0]), np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]])
    for y in (labels + offset, (labels + offset)[:, None]):
        assert measured("precision_at_1", y, x) == 0
        assert measured("mean_average_precision", y, x) == (1 / 2 + 1 / 3) / 2


@pytest.mark.parametrize(
    ("labels", "embeddings", "kwargs", "message"),
    [
        ([0, 1], np.ones((2, 3, 1)), {}, r"\[batch, dimension\].*\(2, 3, 1\)"),
        (np.eye(2), np.ones((2, 3)), {}, r"one-hot.*\(2, 2\)"),
        ([0, 1, 2], np.ones((2, 3)), {}, "3 labels and 2 embeddings"),
        ([0.5, 1.0], np.ones((2, 3)), {}, r"whole numbers.*0\.5"),
        ([0, 1], np.ones((2, 3)), {"sample_weight": [1.0]}, r"`sample_weight`.*\(1,\)"),
        (
            [0, 1],
            np.ones((2, 3)),
            {"sample_weight": np.ones((2, 2))},
            r"`sample_weight`.*\(2, 2\)",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(labels, embeddings, kwargs, message):
    with pytest.raises(ValueError, match=message):
        MeanAveragePrecision().update_state(labels, embeddings, **kwargs)


def test_mask_on_the_embeddings_is_refused():
    embeddings = keras.layers.Masking()(np.ones((4, 2, 3), "float32"))[:, 0]
    embeddings._keras_mask = ops.ones((4,), "bool")
    with pytest.raises(ValueError, match="mask"):
        RPrecision().update_state([0, 0, 1, 1], embeddings)


@pytest.mark.parametrize("k", [0, 1.5, True, "1"])
@pytest.mark.parametrize("metric", [PrecisionAtK, RecallAtK])
def test_k_that_is_not_a_rank_is_refused(metric, k):
    with pytest.raises(ValueError, match=rf"`k` must be .*k={k!r}"):
        metric(k)


@pytest.mark.parametrize("name", METRICS)
def test_config_round_trip_keeps_every_argument(name):
    metric = METRICS[name](name="mine", dtype="float64")
    again = type(metric).from_config(json.loads(json.dumps(metric.get_config())))
    assert again.get_config() == metric.get_config()
    assert (again.name, again.dtype) == ("mine", "float64")
    assert METRICS[name]().name == f"batch_{name}"


def test_saved_model_has_the_same_metrics(tmp_path):
    labels, inputs = batch()
    names = (
        "precision_at_3",
        "recall_at_3",
        "r_precision",
        "map_at_r",
        "mean_average_precision",
    )
    model = identity_model(DIMENSION, names)
    shown = model.evaluate(inputs, labels, batch_size=16, verbose=0, return_dict=True)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    loaded = again.evaluate(inputs, labels, batch_size=16, verbose=0, return_dict=True)
    assert loaded == pytest.approx(shown)
    assert {f"batch_{name}" for name in names} < set(loaded)


def test_callbacks_know_which_way_is_better():
    labels, inputs = batch()
    layer = keras.Input((DIMENSION,))
    model = keras.Model(layer, keras.layers.Dense(4)(layer))
    metrics = [MeanAveragePrecision(), MisplacedPairs(k=3)]
    model.compile("sgd", loss=TopKPrecisionLoss(3), metrics=metrics)
    stops = [
        keras.callbacks.EarlyStopping(monitor)
        for monitor in ("val_batch_mean_average_precision", "val_misplaced_pairs")
    ]
    model.fit(
        inputs,
        labels,
        validation_data=(inputs, labels),
        batch_size=16,
        verbose=0,
        callbacks=stops,
    )
    assert [stop.monitor_op for stop in stops] == [ops.greater, ops.less]


def test_fit_shows_the_number_of_misplaced_pairs():
    labels, inputs = batch()
    layer = keras.Input((DIMENSION,))
    model = keras.Model(layer, keras.layers.Dense(4)(layer))
    metric = MisplacedPairs(k=3, margin=0.2)
    model.compile("sgd", loss=TopKPrecisionLoss(3, margin=0.2), metrics=[metric])
    embeddings = model.predict(inputs, verbose=0)
    history = model.fit(inputs, labels, batch_size=16, verbose=0)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    same = labels[:, None] == labels[None]
    itself = np.eye(16, dtype=bool)
    scores = (unit @ unit.T).astype("float32")
    masks = tensors(scores, same & ~itself, ~same)
    counts = TopKPrecisionLoss(3, margin=0.2).misplaced_pairs(*masks)
    expected = ops.convert_to_numpy(counts).mean()
    assert 0 < expected == pytest.approx(history.history["misplaced_pairs"][0])
    again = MisplacedPairs.from_config(metric.get_config())
    assert again.get_config() == metric.get_config()
