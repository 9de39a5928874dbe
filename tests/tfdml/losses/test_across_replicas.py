"""Losses across replicas: two devices do what one does with the whole batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.support.autodiff import BACKEND
from tests.support.distributed_model import BATCH, LOSSES, data, embedder, weights_of
from tfdml.losses import AcrossReplicas, TopKPrecisionLoss
from tfdml.models import MultiWorkerModel

pytestmark = [
    pytest.mark.backend,
    pytest.mark.slow,
    pytest.mark.skipif(BACKEND == "torch", reason="replicas of TensorFlow and JAX"),
]

ROOT = Path(__file__).parents[3]
on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute")
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution")


@pytest.fixture(scope="module")
def runs():
    """Trainings on one device and on two, in a process that has two devices."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.distributed_fit"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": BACKEND},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def assert_equal(received, expected):
    np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-5)


def assert_equal_runs(runs):
    for name in ("losses", "evaluated", "weights"):
        assert_equal(runs["two"][name], runs["one"][name])


def test_two_devices_report_what_one_does(runs):
    one, two = runs["all"]["one"], runs["all"]["two"]
    assert one["losses"][0] != pytest.approx(one["losses"][-1], rel=1e-3)
    assert_equal(two["losses"], one["losses"])
    assert_equal(two["evaluated"], one["evaluated"])


@pytest.mark.parametrize("loss", LOSSES)
def test_two_devices_learn_what_one_does(runs, loss):
    one, two = runs["all"]["one"], runs["all"]["two"]
    assert one["weights"][loss] != pytest.approx(one["before"][loss], rel=1e-3)
    assert_equal(two["weights"][loss], one["weights"][loss])


@on_tensorflow
def test_sample_weights_weight_the_anchors_of_every_replica(runs):
    assert_equal_runs(runs["weighted"])


@on_tensorflow
def test_shares_in_chunks_learn_what_one_device_does(runs):
    assert_equal(runs["divided"]["weights"], runs["undivided"]["weights"])
    assert_equal(runs["divided"]["losses"], runs["undivided"]["losses"])


@on_tensorflow
def test_shares_alone_teach_nothing(runs):
    two = runs["all"]["two"]  # no share has a positive
    assert two["weights"]["plain"] == two["before"]["plain"]


@on_tensorflow
def test_each_anchor_keeps_its_value_where_shares_are_uneven(runs):
    parts = runs["uneven"]["two"]
    assert [len(part) for part in parts] == [5, 3]
    np.testing.assert_allclose(np.concatenate(parts), runs["uneven"]["one"], rtol=1e-5)


@on_tensorflow
def test_memory_shared_by_replicas_is_refused(runs):
    assert "Received: 2 replicas" in runs["refused"]


@on_jax
def test_plain_loss_and_memory_are_right_where_arrays_are_global(runs):
    one, two = runs["all"]["one"], runs["all"]["two"]
    assert_equal(two["weights"]["plain"], one["weights"]["plain"])
    assert_equal_runs(runs["memory"])
    assert_equal_runs(runs["divided"])


def test_on_one_device_it_is_the_loss_itself():
    labels = np.repeat([0, 1, 2], 3)
    x = np.random.default_rng(0).normal(size=(9, 4))
    loss = TopKPrecisionLoss(k=2, reduction="sum", dtype="float64")
    assert float(AcrossReplicas(loss)(labels, x)) == float(loss(labels, x)) > 0


def test_batch_is_checked_as_the_loss_checks_it():
    class AnyLabels(TopKPrecisionLoss):
        def checked(self, y_true, y_pred):
            raise ValueError("checked here")

    with pytest.raises(ValueError, match="checked here"):
        AcrossReplicas(AnyLabels())([1, 1], np.eye(2))


def test_model_is_saved_and_loaded_with_the_loss(tmp_path):
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    loss = AcrossReplicas(TopKPrecisionLoss(k=2, dtype="float64"), name="mine")
    model.compile("sgd", loss=loss)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == loss.get_config()
    assert loaded.loss.loss.k == 2
    assert loaded.loss.dtype == "float64"


def test_loss_that_is_no_metric_loss_is_refused():
    with pytest.raises(TypeError, match=r"MetricLoss.*Received: 'mse'"):
        AcrossReplicas("mse")


def test_multi_worker_model_in_one_process_is_a_plain_model(tmp_path):
    x, labels, _ = data()
    results = []
    for model_class in (keras.Model, MultiWorkerModel):
        model = embedder(model_class)
        model.compile("sgd", loss=TopKPrecisionLoss(k=3))
        fitted = model.fit(x, labels, batch_size=BATCH, shuffle=False, verbose=0)
        evaluated = model.evaluate(x, labels, verbose=0)
        results.append((fitted.history, evaluated, weights_of(model)))
    assert results[0] == results[1]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is MultiWorkerModel
    assert weights_of(loaded) == results[0][2]
