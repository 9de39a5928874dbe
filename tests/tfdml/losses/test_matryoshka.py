"""Matryoshka: the sum of a loss over prefixes, by loops, and proxies of prefixes."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, JIT, value_and_gradient
from tests.support.refuses import refuses
from tfdml.layers import HighOrderMoments, Proxies
from tfdml.losses import (
    ABELoss,
    AcrossReplicas,
    BIERLoss,
    CompatibleLoss,
    ContrastiveLoss,
    CosFaceLoss,
    HORDELoss,
    LearnedMarginLoss,
    LearnedPairwiseSigmoidLoss,
    LogRatioLoss,
    MatryoshkaLoss,
    MultiSimilarityLoss,
    ProxyAnchorLoss,
    SoftTripleLoss,
)

pytestmark = pytest.mark.backend

LABELS = np.array([0, 0, 1, 1, 2])
DIMENSIONS = (2, 3, 6)
WEIGHTS = (0.5, 0.0, 2.0)


def rows():
    return np.random.default_rng(4).normal(size=(5, 6))


def naive_contrastive(labels, embeddings, margin, normalize):
    """Average both costs over all ordered pairs, one after the other."""
    costs = []
    for i, x in enumerate(embeddings):
        for j, y in enumerate(embeddings):
            if i == j:
                continue
            if normalize:
                x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
            distance = np.sqrt(((x - y) ** 2).sum())
            same = labels[i] == labels[j]
            costs.append(distance**2 if same else max(0, margin - distance) ** 2)
    return np.mean(costs)


@pytest.mark.parametrize("compiled", JIT)
@pytest.mark.parametrize("normalize", [True, False])
def test_value_is_the_weighted_sum_over_the_prefixes(normalize, compiled):
    x = rows()
    alone = ContrastiveLoss(1.5, normalize=normalize, dtype="float64")
    loss = MatryoshkaLoss(alone, dimensions=DIMENSIONS, weights=WEIGHTS)
    value, gradient = value_and_gradient(
        lambda x: loss(LABELS, x), x, compiled=compiled
    )
    parts = [naive_contrastive(LABELS, x[:, :m], 1.5, normalize) for m in DIMENSIONS]
    assert value == pytest.approx(np.dot(WEIGHTS, parts), rel=1e-9)
    expected = np.zeros_like(x)
    for m, weight in zip(DIMENSIONS, WEIGHTS, strict=True):
        part = value_and_gradient(lambda x: alone(LABELS, x), x[:, :m].copy())[1]
        expected[:, :m] += weight * part
    np.testing.assert_allclose(gradient, expected, atol=1e-9)
    assert loss.compares_lengths == (not normalize)


def test_each_dimension_weighs_1_by_default():
    x = rows()
    alone = MultiSimilarityLoss(dtype="float64")
    loss = MatryoshkaLoss(alone, dimensions=DIMENSIONS)
    expected = sum(float(alone(LABELS, x[:, :m])) for m in DIMENSIONS)
    assert float(loss(LABELS, x)) == pytest.approx(expected, rel=1e-12)
    assert float(AcrossReplicas(loss)(LABELS, x)) == float(loss(LABELS, x))


def test_continuous_labels_are_those_of_the_loss():
    x, poses = rows(), np.random.default_rng(5).normal(size=(5, 2))
    alone = LogRatioLoss(dtype="float64")
    loss = MatryoshkaLoss(alone, dimensions=(3, 6))
    expected = float(alone(poses, x[:, :3])) + float(alone(poses, x))
    assert float(loss(poses, x)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("centers", [1, 3])
def test_prefixes_are_compared_with_prefixes_of_the_proxies(centers):
    x = rows()
    layer = Proxies(4, centers, 5.0, dimensions=DIMENSIONS, dtype="float64")
    outputs = layer(x)
    proxies = ops.convert_to_numpy(layer.proxies).reshape(4, centers, 6)
    received = ops.convert_to_numpy(outputs).reshape(5, 4, 3, centers)
    for i, c, m, k in np.ndindex(5, 4, 3, centers):
        a, b = x[i, : DIMENSIONS[m]], proxies[c, k, : DIMENSIONS[m]]
        expected = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        assert received[i, c, m, k] == pytest.approx(expected, abs=1e-12)
    shape = (5, 4, 3) if centers == 1 else (5, 4, 3, 3)
    assert tuple(outputs.shape) == layer.compute_output_shape((5, 6)) == shape
    again = Proxies.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()

    alone = SoftTripleLoss(dtype="float64")
    if centers == 1:
        alone = CosFaceLoss(8.0, dtype="float64")
    loss = MatryoshkaLoss(alone, dimensions=DIMENSIONS, weights=WEIGHTS)
    parts = np.moveaxis(ops.convert_to_numpy(outputs), 2, 0)
    expected = sum(
        weight * float(alone(LABELS, part))
        for weight, part in zip(WEIGHTS, parts, strict=True)
    )
    assert float(loss(LABELS, outputs)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("last", [None, Proxies(3, dimensions=(2, 4))])
def test_model_is_trained_and_loaded_with_it(last, tmp_path):
    keras.utils.set_random_seed(0)
    embedder = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
    model = embedder if last is None else keras.Sequential([embedder, last])
    alone = MultiSimilarityLoss() if last is None else ProxyAnchorLoss(16.0)
    loss = MatryoshkaLoss(alone, dimensions=(2, 4), weights=(1, 2))
    model.compile("adam", loss=loss)
    x, before = rows().astype("float32"), embedder.get_weights()[0]
    model.fit(x, LABELS, batch_size=5, epochs=2, verbose=0)
    assert np.all(embedder.get_weights()[0] != before)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == loss.get_config()
    assert loaded.loss.dimensions == (2, 4)
    kept, expected = loaded(x), model(x)
    assert tuple(kept.shape) == tuple(expected.shape)
    np.testing.assert_allclose(
        ops.convert_to_numpy(kept), ops.convert_to_numpy(expected), atol=1e-6
    )


def test_prefixes_must_end_with_the_whole_embedding():
    loss = MatryoshkaLoss(ContrastiveLoss(), dimensions=(2, 4))
    rule = "The last of `dimensions` must be the dimension of the embeddings, 6: no "
    with pytest.raises(ValueError, match=rule):
        loss(LABELS, rows())
    with pytest.raises(ValueError, match=rule):
        Proxies(3, dimensions=(2, 4))(rows())
    with pytest.raises(ValueError, match="must rise"):
        Proxies(3, dimensions=(4, 2))


def test_proxies_must_be_of_the_same_prefixes():
    x = ops.convert_to_tensor(rows())
    loss = MatryoshkaLoss(ProxyAnchorLoss(), dimensions=DIMENSIONS)
    remedy = r"End the model with `Proxies\(num_classes, dimensions=\(2, 3, 6\)\)`"
    for layer in (Proxies(3), Proxies(3, dimensions=(1, 2, 6))):
        with pytest.raises(ValueError, match=remedy):
            loss(LABELS, layer(x))
    with pytest.raises(ValueError, match=remedy):
        loss(LABELS, x)
    with pytest.raises(ValueError, match=r"\[batch, num_classes, 3\]"):
        loss(LABELS, np.zeros((5, 3, 2)))
    nested = Proxies(3, dimensions=DIMENSIONS)(x)
    for other in (ProxyAnchorLoss(), ContrastiveLoss()):
        with pytest.raises(ValueError, match=r"Received: similarities .* each prefix"):
            other(LABELS, nested)
    with pytest.raises(ValueError, match=r"must be indices of proxies, 0 to 2"):
        loss(LABELS + 1, nested)


@pytest.mark.skipif(BACKEND == "torch", reason="nothing is compiled: it is refused")
def test_label_without_a_proxy_makes_the_loss_of_fit_nan():
    model = keras.Sequential([keras.Input((6,)), Proxies(2, dimensions=DIMENSIONS)])
    model.compile("sgd", MatryoshkaLoss(ProxyAnchorLoss(), dimensions=DIMENSIONS))
    history = model.fit(rows(), LABELS, batch_size=5, verbose=0)
    assert np.isnan(history.history["loss"][0])


@pytest.mark.parametrize(
    "loss",
    [
        ABELoss(2),
        BIERLoss([2, 4]),
        CompatibleLoss(ContrastiveLoss()),
        LearnedMarginLoss(3),
        LearnedPairwiseSigmoidLoss(),
        HORDELoss(ContrastiveLoss(), order=2),
        MatryoshkaLoss(ContrastiveLoss()),
        "contrastive",
    ],
)
def test_losses_of_other_kinds_are_refused(loss):
    with pytest.raises(TypeError, match=r"`loss` must be a loss of tfdml\.losses over"):
        MatryoshkaLoss(loss)


@pytest.mark.parametrize(
    ("argument", "value", "rule"),
    [
        ("dimensions", (4, 2, 6), "must rise, the whole embedding last"),
        ("dimensions", (), "must be the lengths of the prefixes of an embedding"),
        ("dimensions", (0, 6), "must be a whole number of at least 1"),
        ("weights", (1.0, 2.0), "must be one number for each of the 3 dimensions"),
        ("weights", (0, 0, 0), "must not all be 0"),
        ("weights", (1, -1, 1), "must be at least 0 and at most 1e+06"),
    ],
)
def test_bad_arguments_are_refused(argument, value, rule):
    valid = {"loss": ContrastiveLoss(), "dimensions": DIMENSIONS}
    refuses(MatryoshkaLoss, argument=argument, value=value, rule=rule, valid=valid)


def test_moments_are_refused_inside_of_it_as_well():
    loss = MatryoshkaLoss(ContrastiveLoss(), dimensions=(3, 6))
    x = ops.convert_to_tensor(rows())
    moments = HighOrderMoments(order=2, width=4)([x[:, :3], ops.ones((5, 9, 4))])
    with pytest.raises(ValueError, match=r"must be embeddings.*and its moments"):
        loss(LABELS, moments)
