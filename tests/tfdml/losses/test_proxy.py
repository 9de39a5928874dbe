"""Losses over proxies: golden numbers, definitions, and labels without a proxy."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, SEGMENT_ERROR, tensors, value_and_gradient
from tests.support.loss_entry import rebuilt
from tfdml.layers import Proxies, as_similarities
from tfdml.losses import (
    ArcFaceLoss,
    CosFaceLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    ProxyNCAPlusPlusLoss,
    SoftTripleLoss,
    SubCenterArcFaceLoss,
    dominant_centers,
)
from tfdml.ops import cosine_similarities

pytestmark = [pytest.mark.backend, pytest.mark.slow]


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

    loss = ArcFaceLoss(8.0, margin=margin, reduction=None, dtype="float64")
    expected = naive_softmax_loss(batch[1], batch[0], 8.0, own)
    np.testing.assert_allclose(ops.convert_to_numpy(loss(*batch)), expected, atol=1e-6)


def test_arc_face_falls_as_the_embedding_comes_nearer():
    angles = np.linspace(np.pi, 0, 500)
    similarities = np.stack([np.cos(angles), np.zeros(500)], axis=1)
    loss = ArcFaceLoss(8.0, margin=0.5, reduction=None, dtype="float64")
    values = ops.convert_to_numpy(loss(np.zeros(500, int), similarities))
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize("margin", [0.0, 0.35])
def test_cos_face_takes_the_margin_off_the_cosine(batch, margin):
    loss = CosFaceLoss(8.0, margin=margin, reduction=None, dtype="float64")
    expected = naive_softmax_loss(batch[1], batch[0], 8.0, lambda c: c - margin)
    np.testing.assert_allclose(ops.convert_to_numpy(loss(*batch)), expected, atol=1e-9)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("factor", [1.0, 1e-3, 7.0, -1.0])
def test_arc_face_is_finite_where_embedding_equals_proxy(dtype, factor, compiled):
    proxies = np.random.default_rng(0).normal(size=(6, 16)).astype(dtype)
    (fixed,) = tensors(proxies)
    loss = ArcFaceLoss(dtype=dtype)
    value, gradient = value_and_gradient(
        lambda x: loss(np.arange(6), as_similarities(cosine_similarities(x, fixed))),
        (factor * proxies).astype(dtype),
        compiled=compiled,
    )
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
    assert np.abs(gradient * factor).max() < 1e3


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_sub_center_arc_face_takes_the_nearest_center(batch, margin):
    labels, similarities = batch
    several = np.stack([similarities, similarities[:, ::-1], 0 * similarities], axis=2)
    alone = ArcFaceLoss(8.0, margin=margin, reduction=None, dtype="float64")
    loss = SubCenterArcFaceLoss(8.0, margin=margin, reduction=None, dtype="float64")
    nearest = np.array([[max(centers) for centers in row] for row in several])
    expected = naive_softmax_loss(
        nearest,
        labels,
        8.0,
        lambda c: (
            np.cos(np.arccos(c) + margin)
            if np.arccos(c) < np.pi - margin
            else c - margin * np.sin(margin)
        ),
    )
    values = ops.convert_to_numpy(loss(labels, several))
    np.testing.assert_allclose(values, expected, atol=1e-6)
    one = ops.convert_to_numpy(loss(labels, similarities))
    np.testing.assert_array_equal(
        one, ops.convert_to_numpy(alone(labels, similarities))
    )


def test_dominant_center_is_that_of_most_images():
    angles = np.radians([10, 20, 80, 30, 85, 5])
    labels = np.array([0, 0, 0, 2, 2, 2])
    nearest = np.array([1, 1, 0, 2, 2, 0])
    similarities = np.full((6, 3, 3), -0.5)
    for i, (label, center) in enumerate(zip(labels, nearest, strict=True)):
        similarities[i, label, center] = np.cos(angles[i])
    found = dominant_centers(similarities, labels)
    assert found.centers.tolist() == [1, 0, 2]
    far = 120.0  # of -0.5
    np.testing.assert_allclose(found.angles, [10, 20, far, 30, 85, far], atol=1e-6)
    empty = dominant_centers(similarities[:0], labels[:0])
    assert (empty.centers.tolist(), empty.angles.tolist()) == ([0, 0, 0], [])


@pytest.mark.parametrize(
    ("labels", "shape", "rule"),
    [
        ([0, 1], (2, 3), r"`similarities` must be numbers \[N, num_classes, centers_"),
        ([0, 1, 2], (2, 3, 2), "`labels` must be 2 whole numbers"),
        ([0.5, 1], (2, 3, 2), "`labels` must be 2 whole numbers"),
        ([0, 3], (2, 3, 2), "`labels` must be from 0 to 2.* Received: 3"),
        ([-1, 0], (2, 3, 2), "`labels` must be from 0 to 2.* Received: -1"),
    ],
)
def test_bad_arguments_of_dominant_centers_are_refused(labels, shape, rule):
    with pytest.raises(ValueError, match=rule):
        dominant_centers(np.zeros(shape), labels)


@pytest.mark.parametrize("temperature", [1 / 9, 1.0])
def test_proxy_nca_plus_plus_is_the_probability_of_the_own_proxy(batch, temperature):
    labels, similarities = batch
    loss = ProxyNCAPlusPlusLoss(temperature, reduction=None, dtype="float64")
    expected = []
    for row, label in zip(similarities.astype("float64"), labels, strict=True):
        squared = 2 - 2 * row  # distances of unit vectors
        share = np.exp(-squared / temperature)
        expected.append(-np.log(share[label] / share.sum()))
    values = ops.convert_to_numpy(loss(labels, similarities))
    np.testing.assert_allclose(values, expected, atol=1e-6)
    same = ProxyNCALoss(
        temperature**-0.5, include_positive=True, reduction=None, dtype="float64"
    )
    other = ops.convert_to_numpy(same(labels, similarities))
    np.testing.assert_allclose(values, other, atol=1e-6)


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
    loss = ProxyAnchorLoss(4.0, margin=0.1, reduction=None, dtype="float64")
    values = ops.convert_to_numpy(loss(labels, similarities))
    sizes = np.bincount(labels)
    expected = [
        16 / len(positive) * positive[y] / sizes[y] + np.mean(negative) for y in labels
    ]
    np.testing.assert_allclose(values, expected, atol=SEGMENT_ERROR)
    total = np.mean(list(positive.values())) + np.mean(negative)
    assert values.mean() == pytest.approx(total, abs=SEGMENT_ERROR)


def test_normalizers_of_proxy_anchor_differ_for_a_single_class_alone(batch):
    labels, similarities = batch
    proxies = similarities.shape[1]

    def value(normalizer, labels):
        loss = ProxyAnchorLoss(4.0, margin=0.1, normalizer=normalizer, dtype="float64")
        return float(loss(labels, similarities))

    assert value("all", labels) == value("with_negatives", labels)
    one = np.zeros(16, int)
    positive, negative = naive_proxy_anchor_terms(similarities, one, 4.0, 0.1)
    for normalizer, n in {"all": proxies, "with_negatives": proxies - 1}.items():
        expected = positive[0] + sum(negative) / n
        assert value(normalizer, one) == pytest.approx(expected, abs=SEGMENT_ERROR)


LOSSES = [
    ProxyAnchorLoss(),
    ProxyAnchorLoss(16.0, margin=0.2, normalizer="with_negatives"),
    ProxyNCALoss(),
    ProxyNCALoss(include_positive=True, smoothing=0.1),
    ProxyNCAPlusPlusLoss(),
    SoftTripleLoss(),
    ArcFaceLoss(),
    SubCenterArcFaceLoss(),
    CosFaceLoss(),
]
SEVERAL = SoftTripleLoss, SubCenterArcFaceLoss
all_losses = pytest.mark.parametrize(
    "loss", LOSSES, ids=[f"{type(loss).__name__}-{i}" for i, loss in enumerate(LOSSES)]
)


def outputs(loss, similarities):
    """Similarities as this loss takes them."""
    if isinstance(loss, SEVERAL):
        return np.stack([similarities, 0.5 * similarities[:, ::-1]], axis=2)
    return similarities


@all_losses
def test_batch_of_one_row_and_a_single_class_are_finite(loss, batch):
    similarities = outputs(loss, batch[1])
    assert np.isfinite(float(loss([3], similarities[3:4])))
    assert np.isfinite(float(loss([0], similarities[:1, :1])))


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


@pytest.mark.parametrize(
    ("loss", "wrong"),
    [*[(loss, 6) for loss in LOSSES], *[(CosFaceLoss(), w) for w in (-1, 2**32, 0.5)]],
)
@pytest.mark.skipif(BACKEND == "torch", reason="nothing is compiled: it is refused")
def test_label_without_a_proxy_makes_the_loss_of_fit_nan(loss, wrong):
    inputs = np.random.default_rng(8).normal(size=(16, 3)).astype("float32")
    labels = np.array([wrong, *[0] * 15])
    centers = 2 if isinstance(loss, SEVERAL) else 1
    model = keras.Sequential([keras.Input((3,)), Proxies(6, centers)])
    model.compile("sgd", loss=loss)
    history = model.fit(inputs, labels, batch_size=16, verbose=0)
    assert np.isnan(history.history["loss"][0])


def test_one_center_a_class_may_be_with_or_without_an_axis(batch):
    labels, similarities = batch
    loss = SoftTripleLoss()
    expected = float(loss(labels, similarities))
    assert float(loss(labels, similarities[..., np.newaxis])) == expected
    alike = np.stack([similarities] * 3, axis=2)
    assert float(loss(labels, alike)) == pytest.approx(expected, rel=1e-6)


@all_losses
def test_output_of_another_shape_is_refused(loss, batch):
    several = isinstance(loss, SEVERAL)
    wrong = batch[1][:, 0] if several else batch[1][..., np.newaxis]
    with pytest.raises(
        ValueError, match=rf"{type(loss).__name__} must be .*shape=\(16"
    ):
        loss(batch[0], wrong)
