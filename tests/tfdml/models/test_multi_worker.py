"""Training in several processes: two workers do what one does with the whole batch."""

import json

import numpy as np
import pytest

from tests.support import multi_worker_fit
from tests.support.autodiff import BACKEND
from tests.support.worker_processes import free_addresses, run_together

pytestmark = [
    pytest.mark.backend,
    pytest.mark.slow,
    pytest.mark.skipif(BACKEND == "torch", reason="workers of TensorFlow and JAX"),
]
# Float32 sums of two shares and of the whole batch, over six steps.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def cluster(count):
    """Environments in which each process knows of the others."""
    addresses = free_addresses(count)
    if BACKEND == "jax":
        return [
            {"COORDINATOR": addresses[0], "WORKERS": str(count), "WORKER": str(i)}
            for i in range(count)
        ]
    tasks = [{"type": "worker", "index": i} for i in range(count)]
    workers = {"worker": addresses}
    return [{"TF_CONFIG": json.dumps({"cluster": workers, "task": t})} for t in tasks]


@pytest.fixture(scope="module")
def alone():
    """What this process reports that trains alone."""
    return multi_worker_fit.runs()


@pytest.fixture(scope="module")
def workers():
    """What each of two workers reports."""
    backend = {"KERAS_BACKEND": BACKEND, "JAX_ENABLE_X64": "0"}
    texts = run_together(
        ["-m", "tests.support.multi_worker_fit"], [{**backend, **e} for e in cluster(2)]
    )
    return [json.loads(text.splitlines()[-1]) for text in texts]


on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute")
batches = pytest.param("batches", marks=on_tensorflow)


@pytest.mark.parametrize("source", ["array", batches])
@pytest.mark.parametrize("reported", ["steps", "epochs", "evaluated"])
def test_two_workers_report_what_one_process_does(alone, workers, source, reported):
    assert alone["replicas"] == 1
    first, *_, last = alone[source]["steps"]
    assert first[0] != pytest.approx(last[0], rel=1e-3)
    for worker in workers:
        assert worker["replicas"] == 2
        np.testing.assert_allclose(
            worker[source][reported], alone[source][reported], **TOLERANCE
        )


@pytest.mark.parametrize("case", [*multi_worker_fit.CASES, batches])
def test_two_workers_learn_what_one_process_does(alone, workers, case):
    for worker in workers:
        np.testing.assert_allclose(
            worker["weights"][case], alone["weights"][case], **TOLERANCE
        )


@on_tensorflow
@pytest.mark.parametrize("case", multi_worker_fit.CASES)
def test_every_worker_gets_the_embeddings_of_all_rows(alone, workers, case):
    for worker in workers:
        np.testing.assert_allclose(
            worker["embedded"][case], alone["embedded"][case], **TOLERANCE
        )
