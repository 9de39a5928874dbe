"""A loss that gets what another kind of loss needs refuses it, compiled or not."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from tests.support.autodiff import BACKEND, JIT
from tfdml.layers import ClassBoundaries, L2Normalization, Proxies, as_similarities
from tfdml.losses import (
    AcrossReplicas,
    ArcFaceLoss,
    CosFaceLoss,
    LearnedMarginLoss,
    LogRatioLoss,
    MultiSimilarityLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    SoftTripleLoss,
    query_gallery_loss,
)
from tfdml.metrics import MisplacedPairs, PrecisionAtK

pytestmark = pytest.mark.backend

CLASSES = 4
LABELS = np.arange(12) % CLASSES
INPUTS = np.random.default_rng(0).normal(size=(12, 5)).astype("float32")
ON_PROXIES = [
    ProxyAnchorLoss(),
    ProxyNCALoss(),
    SoftTripleLoss(),
    ArcFaceLoss(),
    CosFaceLoss(),
    AcrossReplicas(ProxyAnchorLoss()),
]
NOT_MADE = "`y_pred`.*must be similarities with proxies.*`Proxies.num_classes.`"


class OwnProxies(layers.Dense):
    """A layer of proxies that a user wrote, which declares its output or not."""

    def __init__(self, units, *, declares):
        super().__init__(units)
        self.declares = declares

    def call(self, inputs):
        similarities = super().call(inputs)
        return as_similarities(similarities) if self.declares else similarities


def fitted(last, loss, *, jit=JIT[-1], nested=True):
    """Train a model that ends in a layer; return its loss."""
    network = [keras.Input((5,)), layers.Dense(6), L2Normalization()]
    inner = [keras.Sequential(network)] if nested else network
    model = keras.Sequential([*inner, *last])
    model.compile("sgd", loss=loss, jit_compile=jit)
    return model.fit(INPUTS, LABELS, batch_size=8, verbose=0).history["loss"][0]


@pytest.mark.parametrize("loss", ON_PROXIES, ids=lambda loss: loss.name)
def test_embedding_in_place_of_similarities_is_refused(loss):
    embeddings = ops.convert_to_tensor(INPUTS)
    with pytest.raises(ValueError, match=NOT_MADE):
        loss(LABELS, embeddings)
    similarities = Proxies(CLASSES)(embeddings)
    expected = float(loss(LABELS, similarities))
    # What `predict` gives has no marks.
    again = float(loss(LABELS, ops.convert_to_numpy(similarities)))
    assert again == pytest.approx(expected)


@pytest.mark.parametrize("jit", JIT)
def test_fit_refuses_a_model_without_proxies(jit):
    for last in ([], [OwnProxies(CLASSES, declares=False)]):
        with pytest.raises(ValueError, match=NOT_MADE):
            fitted(last, ProxyAnchorLoss(), jit=jit)


@pytest.mark.parametrize("jit", JIT)
def test_fit_takes_proxies_however_the_model_is_built(jit):
    assert np.isfinite(fitted([Proxies(CLASSES)], ProxyAnchorLoss(), jit=jit))
    own = OwnProxies(CLASSES, declares=True)
    assert np.isfinite(fitted([own], CosFaceLoss(), jit=jit, nested=False))
    passed_on = [Proxies(CLASSES), layers.Lambda(lambda x: as_similarities(2 * x / 2))]
    assert np.isfinite(fitted(passed_on, ArcFaceLoss(), jit=jit))


def test_fit_takes_proxies_of_a_subclass_and_among_outputs():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense, self.proxies = layers.Dense(6), Proxies(CLASSES, 2)

        def call(self, inputs):
            embeddings = self.dense(inputs)
            return {"rows": embeddings, "similarities": self.proxies(embeddings)}

    model = Own()
    model.compile(
        "sgd",
        loss={"rows": MultiSimilarityLoss(), "similarities": SoftTripleLoss()},
        metrics={"rows": [PrecisionAtK()]},
    )
    labels = {"rows": LABELS, "similarities": LABELS}
    history = model.fit(INPUTS, labels, batch_size=12, verbose=0).history
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize("last", [Proxies, ClassBoundaries])
def test_similarities_in_place_of_embeddings_are_refused(last):
    rule = "must be embeddings.*RetrievalEvaluation"
    with pytest.raises(ValueError, match=rule):
        fitted([last(CLASSES)], MultiSimilarityLoss())
    own = ProxyAnchorLoss() if last is Proxies else LearnedMarginLoss(CLASSES)
    # In `fit`, JAX hands metrics a copy of the outputs, which has no mark.
    model = keras.Sequential([keras.Input((5,)), last(CLASSES)])
    model.compile("sgd", loss=own, metrics=[PrecisionAtK()])
    with pytest.raises(ValueError, match=rule):
        model.evaluate(INPUTS, LABELS, verbose=0)
    outputs = last(CLASSES)(INPUTS)
    for function in (LogRatioLoss(), MisplacedPairs().update_state):
        with pytest.raises(ValueError, match=rule):
            function(LABELS, outputs)
    with pytest.raises(ValueError, match=rule):
        query_gallery_loss(MultiSimilarityLoss(), LABELS, outputs, LABELS, outputs)


def test_embedding_without_boundaries_is_refused():
    with pytest.raises(ValueError, match=r"with boundaries.*End the .*ClassBoundaries"):
        fitted([], LearnedMarginLoss(CLASSES))
    assert np.isfinite(fitted([ClassBoundaries(CLASSES)], LearnedMarginLoss(CLASSES)))


def test_mark_ends_with_its_tensor():
    for _ in range(100):
        as_similarities(ops.convert_to_tensor(INPUTS) + 1)
        with pytest.raises(ValueError, match=NOT_MADE):
            ProxyAnchorLoss()(LABELS, ops.convert_to_tensor(INPUTS) + 2)


# Labels


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([*"abcabcabcabc"], "whole numbers.*encode_labels.*Received: dtype"),
        ([None, *range(11)], "missing values.*Received: None in row 0"),
        ([float("nan"), *range(11)], "whole numbers.*Received: nan. A missing"),
        ([float("inf"), *range(11)], "whole numbers.*Received: inf"),
        (np.ma.masked_equal(LABELS, 2), "missing values.*row 2"),
        (LABELS + 0j, "whole numbers.*complex"),
        (LABELS.astype("datetime64[s]"), "whole numbers.*datetime64"),
        ([1, "a"] * 6, "all of one type|whole numbers"),
        ({}, "an array or a sequence. Received: a value of type dict"),
    ],
    ids=str,
)
def test_labels_that_are_no_class_ids_are_refused(labels, message):
    similarities = Proxies(CLASSES)(INPUTS)
    metric = PrecisionAtK()
    for function, outputs in (
        (MultiSimilarityLoss(), INPUTS),
        (ProxyAnchorLoss(), similarities),
        (metric.update_state, INPUTS),
    ):
        with pytest.raises(ValueError, match=message):
            function(labels, outputs)


def test_labels_of_pandas_are_taken_by_position():
    pandas = pytest.importorskip("pandas")
    loss = MultiSimilarityLoss()
    expected = float(loss(LABELS, INPUTS))
    index = np.random.default_rng(1).permutation(12)
    for dtype in ("int64", "Int64", "float64", "category"):
        column = pandas.Series(LABELS, index=index, dtype=dtype)
        assert float(loss(column, INPUTS)) == pytest.approx(expected)


@pytest.mark.parametrize("wrong", [np.nan, 0.5, np.inf])
def test_compiled_loss_of_a_label_that_is_no_class_is_nan(wrong):
    labels = np.where(np.arange(12) == 3, wrong, LABELS).astype("float32")
    model = keras.Sequential([keras.Input((5,)), layers.Dense(6)])
    model.compile("sgd", loss=MultiSimilarityLoss(), metrics=[PrecisionAtK()])
    try:
        values = model.evaluate(INPUTS, labels, batch_size=12, verbose=0)
    except ValueError:
        assert BACKEND == "torch"  # which is never compiled, and refuses it
    else:
        assert np.isnan(values).all()


def test_ids_that_the_backend_would_cut_are_refused():
    labels = np.repeat([5, 5 + 2**32], 6)
    if ops.convert_to_tensor(labels).dtype in ("int64", "torch.int64"):
        assert np.isfinite(float(MultiSimilarityLoss()(labels, INPUTS)))
    else:
        with pytest.raises(ValueError, match=r"must fit int32.*encode_labels"):
            MultiSimilarityLoss()(labels, INPUTS)
