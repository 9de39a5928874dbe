"""Batches without a positive pair are told once, wherever it can be seen."""

import warnings

import keras
import numpy as np
import pytest

from tests.support.all_losses import CLASSES, ENTRIES
from tests.support.autodiff import JIT
from tests.support.loss_entry import rebuilt
from tfdml.layers import Proxies
from tfdml.losses import MultiSimilarityLoss, ProxyAnchorLoss
from tfdml.metrics import PrecisionAtK, RetrievalEvaluation
from tfdml.models import CrossBatchMemory

pytestmark = pytest.mark.backend

TOLD = "no positive pair.*GroupBatches.*BatchSequence"
INPUTS = np.random.default_rng(0).normal(size=(8, 6)).astype("float32")
APART = np.arange(8)
PAIRS = np.arange(8) // 2


def told(function):
    """Return how often a function warned of batches without a positive pair."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function()
    return len([w for w in found if "no positive pair" in str(w.message)])


def network(*last):
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), *last])


def test_loss_says_it_once():
    loss = MultiSimilarityLoss()
    with pytest.warns(UserWarning, match=TOLD):
        loss(APART, INPUTS)
    assert told(lambda: loss(APART, INPUTS)) == 0
    loss = MultiSimilarityLoss()
    assert told(lambda: loss(PAIRS, INPUTS)) == 0
    assert told(lambda: loss(APART, INPUTS)) == 0  # once there were some


@pytest.mark.slow
def test_each_loss_knows_whether_it_needs_them():
    for name, entry in ENTRIES.items():
        if entry.ids == "counted":
            continue  # knows 10 classes
        loss = rebuilt(entry.loss)
        outputs = entry.outputs(INPUTS)
        needs = (entry.ids == "any" and "Npairs" not in name) or "Learned" in name
        assert told(lambda: loss(APART, outputs)) == needs, name  # noqa: B023
    assert len(APART) <= CLASSES


@pytest.mark.parametrize("jit", JIT)
def test_metric_says_it_at_the_end_of_an_epoch(jit):
    def fit(labels, metric):
        model = network()
        loss = MultiSimilarityLoss()
        loss._has_looked = True  # which torch, never compiled, would say
        model.compile("sgd", loss=loss, metrics=[metric], jit_compile=jit)
        model.fit(INPUTS, labels, epochs=3, batch_size=4, shuffle=False, verbose=0)

    assert told(lambda: fit(APART, PrecisionAtK())) == 1
    assert told(lambda: fit(PAIRS, PrecisionAtK())) == 0


@pytest.mark.parametrize("jit", JIT)
def test_evaluation_says_it_of_a_loss_of_zero(jit):
    def fit(labels, loss, *last):
        model = network(*last)
        loss._has_looked = True
        model.compile("sgd", loss=loss, jit_compile=jit)
        evaluation = RetrievalEvaluation(INPUTS, PAIRS, ks=(1,))
        model.fit(INPUTS, labels, epochs=2, verbose=0, callbacks=[evaluation])

    assert told(lambda: fit(APART, MultiSimilarityLoss())) == 1
    assert told(lambda: fit(PAIRS, MultiSimilarityLoss())) == 0
    assert told(lambda: fit(APART, ProxyAnchorLoss(), Proxies(8))) == 0


def test_memory_finds_positives_among_earlier_batches():
    def fit():
        model = CrossBatchMemory(network(), 32)
        loss = MultiSimilarityLoss()
        model.compile("sgd", loss=loss, run_eagerly=True)
        model.fit(INPUTS, APART, epochs=2, verbose=0)

    assert told(fit) == 0
