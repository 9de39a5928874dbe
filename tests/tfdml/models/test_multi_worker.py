"""Training in several processes: two workers do what one does with the whole batch."""

import json

import numpy as np
import pytest

from tests.support.autodiff import BACKEND
from tests.support.worker_processes import free_addresses, run_together

pytestmark = [
    pytest.mark.backend,
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


def trained(environments):
    """What `tests.support.multi_worker_fit` reports, from each process."""
    backend = {"KERAS_BACKEND": BACKEND, "JAX_ENABLE_X64": "0"}
    texts = run_together(
        ["-m", "tests.support.multi_worker_fit"],
        [{**backend, **e} for e in environments],
    )
    return [json.loads(text.splitlines()[-1]) for text in texts]


@pytest.fixture(scope="module")
def runs():
    """Trained alone, and by each of two workers."""
    alone = trained([{}])[0]
    return alone, trained(cluster(2))


on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute")
batches = pytest.param("batches", marks=on_tensorflow)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["top_k", "spread_of_batch", batches])
@pytest.mark.parametrize("reported", ["steps", "epochs", "evaluated", "weights"])
def test_two_workers_report_and_learn_what_one_process_does(runs, case, reported):
    alone, workers = runs
    assert alone["replicas"] == 1
    assert alone[case]["steps"][0] != pytest.approx(alone[case]["steps"][-1], rel=1e-3)
    for worker in workers:
        assert worker["replicas"] == 2
        np.testing.assert_allclose(
            worker[case][reported], alone[case][reported], **TOLERANCE
        )


@pytest.mark.slow
@on_tensorflow
def test_every_worker_gets_the_embeddings_of_all_rows(runs):
    alone, workers = runs
    for worker in workers:
        np.testing.assert_allclose(worker["embedded"], alone["embedded"], **TOLERANCE)
