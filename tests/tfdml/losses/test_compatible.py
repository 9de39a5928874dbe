"""The influence of an old model, by loops, and the models that train with it."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import JIT, value_and_gradient
from tests.support.refuses import refusals, refuses
from tfdml.batch_designs import class_means
from tfdml.layers import CompatibleProxies, ReferenceEmbeddings
from tfdml.losses import (
    ClusteringLoss,
    CompatibleLoss,
    ContrastiveLoss,
    CosFaceLoss,
    LogRatioLoss,
    MultiSimilarityLoss,
    SoftTripleLoss,
    SupervisedContrastiveLoss,
    TopKPrecisionLoss,
)

pytestmark = pytest.mark.backend

LABELS = np.array([0, 0, 1, 1, 2])  # the last one is alone in its class
TEMPERATURE = 0.4


def embeddings():
    random = np.random.default_rng(3)
    return random.normal(size=(5, 3)), random.normal(size=(5, 3))


def cosine(x, y):
    return x @ y / np.linalg.norm(x) / np.linalg.norm(y)


def naive_supervised(anchors, gallery, *, same_set):
    """Mean over anchors of the supervised contrastive loss in a gallery."""
    total = 0.0
    for i, anchor in enumerate(anchors):
        others = [k for k in range(len(gallery)) if not (same_set and k == i)]
        shares = {k: np.exp(cosine(anchor, gallery[k]) / TEMPERATURE) for k in others}
        positives = [k for k in others if LABELS[k] == LABELS[i]]
        terms = [-np.log(shares[k] / sum(shares.values())) for k in positives]
        total += np.mean(terms) if terms else 0.0
    return total / len(anchors)


def naive_cos_face(rows, proxies, scale, margin):
    total = 0.0
    for row, label in zip(rows, LABELS, strict=True):
        logits = [
            scale * (cosine(row, proxy) - margin * (label == c))
            for c, proxy in enumerate(proxies)
        ]
        total += np.log(np.sum(np.exp(logits))) - logits[label]
    return total / len(rows)


@pytest.mark.parametrize("compiled", JIT)
def test_pairs_are_those_of_new_queries_and_the_old_gallery_too(compiled):
    new, old = embeddings()
    loss = SupervisedContrastiveLoss(TEMPERATURE, dtype="float64")
    layer = ReferenceEmbeddings(dtype="float64")
    value, gradient = value_and_gradient(
        lambda x: CompatibleLoss(loss, weight=0.7)(LABELS, layer([x, old])),
        new,
        compiled=compiled,
    )
    influence = naive_supervised(new, old, same_set=False)
    expected = naive_supervised(new, new, same_set=True) + 0.7 * influence
    assert value == pytest.approx(expected, rel=1e-9)
    step = 1e-6 * np.ones_like(new)
    moved = [
        naive_supervised(new + sign * step, new + sign * step, same_set=True)
        + 0.7 * naive_supervised(new + sign * step, old, same_set=False)
        for sign in (1, -1)
    ]
    slope = (moved[0] - moved[1]) / 2
    assert np.sum(gradient * step) == pytest.approx(slope, rel=1e-4)


def test_old_embeddings_get_no_gradient():
    new, old = embeddings()
    loss = CompatibleLoss(MultiSimilarityLoss(dtype="float64"))
    layer = ReferenceEmbeddings(dtype="float64")
    _, gradient = value_and_gradient(lambda x: loss(LABELS, layer([new, x])), old)
    assert gradient is None or not np.any(gradient)


@pytest.mark.parametrize("centers", [1, 2])
def test_proxies_are_joined_by_the_old_class_means(centers):
    new, old = embeddings()
    layer = CompatibleProxies(3, centers, dtype="float64")
    layer.set_old_proxies(class_means(old, LABELS))
    own = np.random.default_rng(4).normal(size=(3, 3))
    if centers == 1:
        layer.set_proxies(own)
        loss = CosFaceLoss(scale=5.0, margin=0.2, dtype="float64")
        value = float(CompatibleLoss(loss, weight=0.3)(LABELS, layer(new)))
        means = [old[c == LABELS].mean(axis=0) for c in range(3)]
        expected = naive_cos_face(new, own, 5.0, 0.2)
        expected += 0.3 * naive_cos_face(new, means, 5.0, 0.2)
        assert value == pytest.approx(expected, rel=1e-9)
    else:
        loss = CompatibleLoss(SoftTripleLoss(scale=5.0, dtype="float64"))
        assert tuple(layer(new).shape) == (5, 6, 2)
        assert np.isfinite(float(loss(LABELS, layer(new))))
        old_half = ops.convert_to_numpy(layer(new))[:, 3:]
        np.testing.assert_array_equal(old_half[..., 0], old_half[..., 1])
    assert [v.name for v in layer.non_trainable_variables] == ["old_proxies"]


def test_batches_without_pairs_have_a_finite_loss():
    new, old = embeddings()
    rows = ReferenceEmbeddings()([new, old])
    for labels in (np.zeros(5, int), np.arange(5)):
        for loss in (TopKPrecisionLoss(), ContrastiveLoss(), MultiSimilarityLoss()):
            loss.needs_positives = False  # whose warning is tested elsewhere
            assert np.isfinite(float(CompatibleLoss(loss)(labels, rows)))
    zeros = ReferenceEmbeddings()([np.zeros((5, 3)), np.zeros((5, 3))])
    assert np.isfinite(float(CompatibleLoss(MultiSimilarityLoss())(LABELS, zeros)))


def test_config_round_trip_keeps_loss_and_proxies():
    for inner in (MultiSimilarityLoss(negative_scale=30.0), CosFaceLoss(9.0)):
        loss = CompatibleLoss(inner, weight=0.25)
        stored = keras.saving.serialize_keras_object(loss)
        again = keras.saving.deserialize_keras_object(stored)
        assert again.get_config() == loss.get_config()
        assert (again.weight, type(again.loss)) == (0.25, type(inner))
    for layer in (ReferenceEmbeddings(name="x"), CompatibleProxies(4, 2)):
        config = layer.get_config()
        assert type(layer).from_config(config).get_config() == config


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pairs", "proxies"])
def test_fit_brings_new_embeddings_to_the_old_ones(kind, tmp_path):
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 8)
    images = random.normal(size=(4, 6))[labels] + 0.3 * random.normal(size=(32, 6))
    old = images @ random.normal(size=(6, 5))  # another space of the same classes
    inputs = keras.Input((6,))
    embedder = keras.Model(inputs, keras.layers.Dense(5)(inputs))
    if kind == "pairs":
        reference = keras.Input((5,))
        outputs = ReferenceEmbeddings()([embedder.output, reference])
        model = keras.Model([inputs, reference], outputs)
        loss, x = SupervisedContrastiveLoss(0.2), [images, old]
    else:
        layer = CompatibleProxies(4)
        layer.set_old_proxies(class_means(old, labels))
        model = keras.Model(inputs, layer(embedder.output))
        loss, x = CosFaceLoss(8.0), images

    def found():
        """How many new queries find their class in the old gallery first."""
        new = embedder.predict(images, verbose=0)
        scores = np.array([[cosine(a, b) for b in old] for a in new])
        np.fill_diagonal(scores, -2)
        return np.mean(labels[scores.argmax(axis=1)] == labels)

    before = found()
    model.compile(keras.optimizers.Adam(0.05), loss=CompatibleLoss(loss))
    model.fit(x, labels, batch_size=32, epochs=40, verbose=0)
    assert found() > max(0.9, before)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    expected = model.evaluate(x, labels, batch_size=32, verbose=0)
    received = loaded.evaluate(x, labels, batch_size=32, verbose=0)
    assert received == pytest.approx(expected, rel=1e-5)


def test_forgotten_old_proxies_make_the_loss_nan():
    layer = CompatibleProxies(3)
    assert np.isnan(float(CompatibleLoss(CosFaceLoss())(LABELS, layer(np.eye(5)))))


@refusals(
    ("proxies", np.ones((2, 3)), "must be of the shape (3, 3): a row per class"),
    ("proxies", np.ones(3), "must be of the shape (3, dimension)"),
    ("proxies", [[1, 2], [0, 0], [3, 4]], "must be finite, and no row may be zero"),
    ("proxies", [[1, 2], [np.nan, 0], [3, 4]], "must be finite, and no row may be"),
)
def test_unusable_old_proxies_are_refused(argument, value, rule):
    layer = CompatibleProxies(3)
    refuses(
        layer.set_old_proxies, argument=argument, value=value, rule=rule, received=""
    )


def test_several_dimensions_are_refused():
    with pytest.raises(ValueError, match=r"`dimensions` must be None.*\(2, 4\)"):
        CompatibleProxies(2, dimensions=(2, 4)).build((None, 4))


def test_old_proxies_of_another_dimension_are_refused():
    layer = CompatibleProxies(2)
    layer.build((None, 4))
    with pytest.raises(ValueError, match=r"shape \(2, 4\).*the new embeddings have t"):
        layer.set_old_proxies(np.ones((2, 3)))


@pytest.mark.parametrize("loss", [ClusteringLoss(), LogRatioLoss(), "contrastive"])
def test_losses_that_are_more_than_their_pairs_are_refused(loss):
    with pytest.raises(TypeError, match=r"`loss` must be "):
        CompatibleLoss(loss)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, True, "1", 1e7])
def test_bad_weights_are_refused(value):
    with pytest.raises(ValueError, match="`weight` must be above 0 and at most 1e"):
        CompatibleLoss(ContrastiveLoss(), weight=value)


def test_outputs_of_other_layers_are_refused():
    new, old = (ops.convert_to_tensor(rows) for rows in embeddings())
    pairs, proxies = CompatibleLoss(ContrastiveLoss()), CompatibleLoss(CosFaceLoss())
    with pytest.raises(ValueError, match=r"those of another model.*End the model wi"):
        pairs(LABELS, ops.concatenate([new, old], axis=1))
    rows = ReferenceEmbeddings()([new, old])
    with pytest.raises(ValueError, match=r"similarities with new and old proxies"):
        proxies(LABELS, rows)
    with pytest.raises(ValueError, match=r"must be embeddings.*those of another model"):
        ContrastiveLoss()(LABELS, rows)
    other = ReferenceEmbeddings()([new, old[:, :2]])
    with pytest.raises(ValueError, match=r"equal dimensions.*Received: 5 columns"):
        pairs(LABELS, other)
    for shape in ((5, 3), [(5, 3)], [(5, 3), (5, 3, 1)]):
        with pytest.raises(ValueError, match="must be a list of embeddings"):
            ReferenceEmbeddings().build(shape)
