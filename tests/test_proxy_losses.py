"""Losses over proxies: golden numbers, definitions, and what all of them share."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.autodiff import BACKEND, value_and_gradient
from tests.golden_cases import cases, check
from tfdml.losses.margin_softmax import ArcFaceLoss, CosFaceLoss
from tfdml.losses.proxy import ProxyAnchorLoss
from tfdml.losses.proxy_softmax import ProxyNCALoss, SoftTripleLoss
from tfdml.pairs import cosine_similarities, squared_distances, unit_rows
from tfdml.proxies import CenterRegularizer, Proxies

pytestmark = [pytest.mark.backend, pytest.mark.slow]


def golden(name):
    """All cases in both types, and two under XLA, the one that overflows first.

    JAX compiles each operation for each shape, seconds a case: there it is XLA alone.
    """
    found = cases(name)
    chosen = [("float64", False, found), ("float32", False, found)]
    if BACKEND == "jax":
        chosen = [("float64", True, found[:4])]
    return pytest.mark.parametrize(
        ("case", "dtype", "compiled"),
        [
            pytest.param(*case.values, dtype, xla, id=f"{case.id}-{dtype}-{xla}")
            for dtype, xla, some in [*chosen, ("float32", True, found[:2])]
            for case in some
        ],
    )


@golden("proxy_anchor")
def test_proxy_anchor_equals_the_golden_numbers(case, dtype, compiled):
    params = case["params"]
    normalizer = {"all": "all", "nonempty": "with_negatives"}[params["neg_normalizer"]]
    loss = ProxyAnchorLoss(params["alpha"], params["delta"], normalizer, dtype=dtype)
    labels = np.array(case["inputs"]["y"])
    check(
        case,
        lambda X, proxies: loss(labels, cosine_similarities(X, proxies)),  # noqa: N803
        dtype,
        compiled=compiled,
    )


@golden("proxy_nca")
def test_proxy_nca_equals_the_golden_numbers(case, dtype, compiled):
    params = case["params"]
    scale = (params["scale_x"] * params["scale_p"]) ** 0.5
    loss = ProxyNCALoss(
        scale,
        params["include_positive"],
        params["smoothing"],
        dtype=dtype,
        reduction="sum" if params["reduction"] == "sum" else "sum_over_batch_size",
    )
    labels = np.array(case["inputs"]["y"])

    def function(X, proxies):  # noqa: N803
        if params["normalize"]:
            return loss(labels, cosine_similarities(X, proxies))
        return loss(labels, -squared_distances(X, proxies) / 2)

    check(case, function, dtype, compiled=compiled)


@golden("soft_triple")
def test_soft_triple_equals_the_golden_numbers(case, dtype, compiled):
    params = case["params"]
    loss = SoftTripleLoss(params["la"], params["gamma"], params["margin"], dtype=dtype)
    penalty = CenterRegularizer(params["tau"])
    labels = np.array(case["inputs"]["y"])

    def function(X, centers):  # noqa: N803
        similarities = ops.einsum("bd,ckd->bck", unit_rows(X), unit_rows(centers))
        return loss(labels, similarities) + penalty(centers)

    check(case, function, dtype, compiled=compiled)


def naive_softmax_loss(similarities, labels, scale, own):
    """Cross entropy in float64, `own` applied to the cosine of the own class."""
    values = []
    for row, label in zip(similarities.astype("float64"), labels, strict=True):
        row = row.copy()
        row[label] = own(row[label])
        exact = [scale * x for x in row]
        values.append(np.logaddexp.reduce(exact) - exact[label])
    return values


@pytest.fixture
def batch():
    """Labels and similarities, duplicates among them."""
    random = np.random.default_rng(5)
    labels = np.repeat(np.arange(4), 4)
    x, p = random.normal(size=(16, 3)), random.normal(size=(6, 3))
    x[5] = x[6]
    x[9] = p[2]  # an embedding that equals its proxy
    x[10] = -p[2]
    unit_x = x / np.linalg.norm(x, axis=1, keepdims=True)
    unit_p = p / np.linalg.norm(p, axis=1, keepdims=True)
    return labels, np.clip(unit_x @ unit_p.T, -1, 1).astype("float32")


@pytest.mark.parametrize("margin", [0.0, 0.5, 1.2])
def test_arc_face_adds_the_margin_to_the_angle(batch, margin):
    def own(cosine):
        angle = np.arccos(cosine)
        if angle < np.pi - margin:
            return np.cos(angle + margin)
        return cosine - margin * np.sin(margin)

    loss = ArcFaceLoss(8.0, margin, reduction=None, dtype="float64")
    expected = naive_softmax_loss(batch[1], batch[0], 8.0, own)
    np.testing.assert_allclose(ops.convert_to_numpy(loss(*batch)), expected, atol=1e-6)


def test_arc_face_falls_as_the_embedding_comes_nearer():
    angles = np.linspace(np.pi, 0, 500)
    similarities = np.stack([np.cos(angles), np.zeros(500)], axis=1)
    loss = ArcFaceLoss(8.0, 0.5, reduction=None, dtype="float64")
    values = ops.convert_to_numpy(loss(np.zeros(500, int), similarities))
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize("margin", [0.0, 0.35])
def test_cos_face_takes_the_margin_off_the_cosine(batch, margin):
    loss = CosFaceLoss(8.0, margin, reduction=None, dtype="float64")
    expected = naive_softmax_loss(batch[1], batch[0], 8.0, lambda c: c - margin)
    np.testing.assert_allclose(ops.convert_to_numpy(loss(*batch)), expected, atol=1e-9)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("factor", [1.0, 1e-3, 7.0, -1.0])
def test_arc_face_is_finite_where_embedding_equals_proxy(dtype, factor, compiled):
    proxies = np.random.default_rng(0).normal(size=(6, 16)).astype(dtype)
    loss = ArcFaceLoss(dtype=dtype)
    value, gradient = value_and_gradient(
        lambda x: loss(np.arange(6), cosine_similarities(x, proxies)),
        (factor * proxies).astype(dtype),
        compiled=compiled,
    )
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
    assert np.abs(gradient * factor).max() < 1e3


def naive_proxy_anchor_terms(similarities, labels, scale, margin):
    """Eq. 4, term by term: positive terms by class, negative terms by proxy."""
    positive, negative = {}, []
    for p in range(similarities.shape[1]):
        column = similarities[:, p].astype("float64")
        if (labels == p).any():
            pulls = np.exp(-scale * (column[labels == p] - margin))
            positive[p] = np.log(1 + pulls.sum())
        negative.append(
            np.log(1 + np.exp(scale * (column[labels != p] + margin)).sum())
        )
    return positive, negative


def test_proxy_anchor_shares_each_proxys_loss_among_its_anchors(batch):
    similarities = batch[1]
    labels = np.array([0] * 7 + [1] * 1 + [3] * 5 + [2] * 3)
    positive, negative = naive_proxy_anchor_terms(similarities, labels, 4.0, 0.1)
    loss = ProxyAnchorLoss(4.0, 0.1, reduction=None, dtype="float64")
    values = ops.convert_to_numpy(loss(labels, similarities))
    sizes = np.bincount(labels)
    expected = [
        16 / len(positive) * positive[y] / sizes[y] + np.mean(negative) for y in labels
    ]
    np.testing.assert_allclose(values, expected, atol=1e-12)
    total = np.mean(list(positive.values())) + np.mean(negative)
    assert values.mean() == pytest.approx(total, abs=1e-12)


def test_normalizers_of_proxy_anchor_differ_for_a_single_class_alone(batch):
    labels, similarities = batch
    proxies = similarities.shape[1]

    def value(normalizer, labels):
        loss = ProxyAnchorLoss(4.0, 0.1, normalizer, dtype="float64")
        return float(loss(labels, similarities))

    assert value("all", labels) == value("with_negatives", labels)
    one = np.zeros(16, int)
    positive, negative = naive_proxy_anchor_terms(similarities, one, 4.0, 0.1)
    for normalizer, n in {"all": proxies, "with_negatives": proxies - 1}.items():
        expected = positive[0] + sum(negative) / n
        assert value(normalizer, one) == pytest.approx(expected, abs=1e-12)


LOSSES = [
    ProxyAnchorLoss(),
    ProxyAnchorLoss(16.0, 0.2, "with_negatives"),
    ProxyNCALoss(),
    ProxyNCALoss(include_positive=True, smoothing=0.1),
    SoftTripleLoss(),
    ArcFaceLoss(),
    CosFaceLoss(),
]
all_losses = pytest.mark.parametrize(
    "loss", LOSSES, ids=[f"{type(loss).__name__}-{i}" for i, loss in enumerate(LOSSES)]
)


def rebuilt(loss, **changes):
    return type(loss).from_config({**loss.get_config(), **changes})


def outputs(loss, similarities):
    """Similarities as this loss takes them."""
    if isinstance(loss, SoftTripleLoss):
        return np.stack([similarities, 0.5 * similarities[:, ::-1]], axis=2)
    return similarities


def proxy_model(loss, classes=6):
    centers = 2 if isinstance(loss, SoftTripleLoss) else 1
    return keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(3), Proxies(classes, centers)]
    )


@pytest.fixture
def inputs():
    return np.random.default_rng(8).normal(size=(16, 5)).astype("float32")


@all_losses
def test_order_of_the_batch_changes_nothing(loss, batch):
    labels, similarities = batch
    order = np.random.default_rng(1).permutation(16)
    similarities = outputs(loss, similarities)
    assert float(loss(labels[order], similarities[order])) == pytest.approx(
        float(loss(labels, similarities)), rel=1e-5
    )


@all_losses
@pytest.mark.parametrize(
    ("case", "compiled"),
    [
        *[(c, False) for c in ("equal", "zero", "huge", "tiny", "one class", "own")],
        *[(c, True) for c in ("zero", "own")],
    ],
)
def test_hard_batches_give_finite_values_and_gradients(loss, case, compiled):
    random = np.random.default_rng(2)
    rows = random.normal(size=(8, 4)).astype("float32")
    proxies = random.normal(size=(8, 4)).astype("float32")
    labels = np.zeros(8, int) if case == "one class" else np.arange(8)
    change = {
        "equal": np.ones_like,
        "zero": np.zeros_like,
        "huge": lambda x: x * np.float32(1e30),
        "tiny": lambda x: x * np.float32(1e-30),
        "one class": lambda x: x,
        "own": lambda x: proxies,
    }[case]

    def function(x):
        similarities = cosine_similarities(x, proxies)
        if isinstance(loss, SoftTripleLoss):
            similarities = ops.stack([similarities, similarities], axis=2)
        return loss(labels, similarities)

    value, gradient = value_and_gradient(function, change(rows), compiled=compiled)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


@all_losses
def test_batch_of_one_row_and_a_single_class_are_finite(loss, batch):
    similarities = outputs(loss, batch[1])
    assert np.isfinite(float(loss([3], similarities[3:4])))
    assert np.isfinite(float(loss([0], similarities[:1, :1])))


@all_losses
def test_mean_over_the_batch_and_sample_weights(loss, batch):
    labels, similarities = batch[0], outputs(loss, batch[1])
    each = rebuilt(loss, reduction=None)
    values = ops.convert_to_numpy(each(labels, similarities))
    assert values.shape == (16,)
    assert float(loss(labels, similarities)) == pytest.approx(values.mean(), rel=1e-5)
    weights = np.linspace(0, 1, 16, dtype="float32")
    weighted = float(loss(labels, similarities, sample_weight=weights))
    assert weighted == pytest.approx((weights * values).sum() / 16, rel=1e-5)


@all_losses
@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "int64", "float32", "list"])
def test_labels_may_be_of_any_whole_type_and_a_column(loss, batch, kind):
    labels, similarities = batch[0], outputs(loss, batch[1])
    same = labels.tolist() if kind == "list" else labels.astype(kind).reshape(16, 1)
    assert float(loss(same, similarities)) == float(loss(labels, similarities))


def test_small_label_types_go_with_many_classes():
    similarities = np.eye(4, 1000, dtype="float32")
    labels = np.arange(4)
    expected = float(CosFaceLoss()(labels, similarities))
    assert float(CosFaceLoss()(labels.astype("int8"), similarities)) == expected
    assert float(CosFaceLoss()(labels.astype("uint8"), similarities)) == expected


@all_losses
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_class_ids_stay_apart_in_half_precision(loss, dtype):
    # bfloat16 cannot tell 256 from 257.
    similarities = np.zeros((2, 300), "float32")
    similarities[[0, 1], [256, 257]] = 1
    half = rebuilt(loss, dtype=dtype)
    right = float(half([256, 257], outputs(loss, similarities)))
    wrong = float(half([257, 256], outputs(loss, similarities)))
    assert np.isfinite(right)
    assert right < wrong - 0.2


@all_losses
@pytest.mark.parametrize(("labels", "shown"), [([0, 6], "6"), ([-1, 0], "-1")])
def test_label_without_a_proxy_is_refused(loss, batch, labels, shown):
    with pytest.raises(ValueError, match=rf"0 to 5\. Received: {shown}\. Number the"):
        loss(np.array(labels), outputs(loss, batch[1])[:2])


@all_losses
def test_labels_with_fractions_are_refused(loss, batch):
    with pytest.raises(ValueError, match=r"whole numbers.*Received: 0\.5"):
        loss(np.array([0.5, 1.0]), outputs(loss, batch[1])[:2])


@pytest.mark.parametrize(
    ("loss", "wrong"),
    [*[(loss, 6) for loss in LOSSES], *[(CosFaceLoss(), w) for w in (-1, 2**32, 0.5)]],
)
def test_label_without_a_proxy_makes_the_loss_of_fit_nan(loss, inputs, wrong):
    labels = np.array([wrong, *[0] * 15])
    model = proxy_model(loss)
    model.compile("sgd", loss=loss)
    history = model.fit(inputs, labels, batch_size=16, verbose=0)
    assert np.isnan(history.history["loss"][0])


@all_losses
def test_nan_in_an_embedding_makes_the_loss_nan(loss, batch):
    similarities = outputs(loss, batch[1]).copy()
    similarities[3] = np.nan
    assert np.isnan(float(loss(batch[0], similarities)))


@all_losses
def test_config_round_trip_keeps_every_argument(loss):
    changed = rebuilt(loss, dtype="float16", name="mine", reduction="sum")
    again = rebuilt(changed)
    assert again.get_config() == changed.get_config()
    assert again.dtype == "float16"


@all_losses
@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_trains_network_and_proxies(loss, inputs, jit_compile):
    labels = np.arange(16) % 4
    model = proxy_model(loss)
    model.compile("adam", loss=loss, jit_compile=jit_compile)
    before = [w.copy() for w in model.get_weights()]
    expected = float(loss(labels, ops.convert_to_numpy(model(inputs))))
    history = model.fit(inputs, labels, batch_size=16, epochs=1, verbose=0)
    assert history.history["loss"][0] == pytest.approx(expected, rel=1e-4)
    for old, new in zip(before, model.get_weights(), strict=True):
        assert np.any(old != new)
    if not jit_compile:  # a last batch of another size
        model.fit(inputs, labels, batch_size=9, epochs=1, verbose=0)


@all_losses
def test_compiled_model_is_saved_and_loaded_with_the_loss(loss, inputs, tmp_path):
    labels = np.arange(16) % 4
    model = proxy_model(loss)
    model.compile("sgd", loss=loss)
    model.fit(inputs, labels, batch_size=16, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == loss.get_config()
    expected = model.evaluate(inputs, labels, verbose=0)
    assert loaded.evaluate(inputs, labels, verbose=0) == pytest.approx(expected)


def test_one_center_a_class_may_be_with_or_without_an_axis(batch):
    labels, similarities = batch
    loss = SoftTripleLoss()
    expected = float(loss(labels, similarities))
    assert float(loss(labels, similarities[..., np.newaxis])) == expected
    alike = np.stack([similarities] * 3, axis=2)
    assert float(loss(labels, alike)) == pytest.approx(expected, rel=1e-6)


@all_losses
def test_output_of_another_shape_is_refused(loss, batch):
    several = isinstance(loss, SoftTripleLoss)
    wrong = batch[1][:, 0] if several else batch[1][..., np.newaxis]
    with pytest.raises(ValueError, match=rf"{type(loss).__name__} takes .*shape=\(16"):
        loss(batch[0], wrong)


def test_labels_of_another_length_are_refused(batch):
    with pytest.raises(ValueError, match="5 labels and 16"):
        CosFaceLoss()(np.zeros(5, int), batch[1])


@pytest.mark.parametrize(
    ("loss", "name", "wrong"),
    [
        (ProxyAnchorLoss, "scale", 0),
        (ProxyAnchorLoss, "margin", -0.1),
        (ProxyAnchorLoss, "normalizer", "none"),
        (ProxyNCALoss, "scale", -1.0),
        (ProxyNCALoss, "smoothing", 1.0),
        (ProxyNCALoss, "smoothing", 0.1),  # with the positive left out
        (SoftTripleLoss, "scale", float("nan")),
        (SoftTripleLoss, "temperature", 0),
        (SoftTripleLoss, "margin", float("inf")),
        (ArcFaceLoss, "scale", 0),
        (ArcFaceLoss, "margin", 1.6),
        (CosFaceLoss, "scale", 0),
        (CosFaceLoss, "margin", float("nan")),
    ],
)
def test_argument_out_of_range_is_refused(loss, name, wrong):
    with pytest.raises(ValueError, match=rf"`{name}` .*Received: {name}="):
        loss(**{name: wrong})
