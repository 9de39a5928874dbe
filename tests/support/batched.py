"""Requests for a `BatchScheduler`, and a model whose answers a test decides.

The model can hold the only thread while requests queue up, so that the batches after
it are certain.
"""

import threading

import numpy as np

from serving.endpoint.batching.pace import WaitLimits
from serving.endpoint.batching.parameters import BatchingParameters
from serving.endpoint.batching.scheduler import BatchScheduler
from serving.endpoint.models.servable import Signature, TensorSpec

SECONDS = 60  # after which a test fails that waits for what must come


class Client:
    """A client that waits, until the test says otherwise."""

    def __init__(self, active=True, remaining=None):
        self.active = active
        self.remaining = remaining

    def is_active(self):
        return self.active

    def time_remaining(self):
        return self.remaining


class Stub:
    """A model whose answers the test decides; knows the batches that it was given."""

    def __init__(self, predict=None, *, shape=(None,), out=(None,), dtype="int64"):
        self._predict = predict or (lambda inputs: {"y": inputs["x"] * 2})
        self.signatures = {
            "serving_default": Signature(
                "", {"x": TensorSpec(dtype, shape)}, {"y": TensorSpec("int64", out)}
            )
        }
        self.batches = []
        self.gate = threading.Event()
        self.entered = threading.Event()

    def predict(self, inputs, signature_name):
        if inputs["x"].dtype == np.float16:  # the request that holds the thread
            self.entered.set()
            assert self.gate.wait(SECONDS)
            return {"y": inputs["x"]}
        self.batches.append(inputs["x"])
        return self._predict(inputs)

    @property
    def sizes(self):
        return [len(batch) for batch in self.batches]


def batching(size=8, on_batch=None, *, waits=None, clock=None, **parameters):
    """Make a scheduler of one thread, by default without a timeout."""
    parameters = {"batch_timeout_micros": 0, "num_batch_threads": 1, **parameters}
    parameters = BatchingParameters(max_batch_size=size, **parameters)
    options = {"waits": waits or WaitLimits()} | ({"clock": clock} if clock else {})
    return BatchScheduler(parameters, on_batch, **options)


def submit(scheduler, model, x, client=None, name="x", signature="serving_default"):
    array = np.asarray(x)
    return scheduler.submit(model, signature, {name: array}, client or Client())


def held(scheduler, stub):
    """Hold a thread of the scheduler until the gate of the stub opens."""
    future = submit(scheduler, stub, np.ones(1, np.float16))
    assert stub.entered.wait(SECONDS)
    return future


def queued(scheduler, stub, *requests):
    """Let requests queue up while the only thread is held; returns their futures."""
    held(scheduler, stub)
    futures = [submit(scheduler, stub, x) for x in requests]
    stub.gate.set()
    return futures


def answers(futures):
    return [future.result(SECONDS)["y"].tolist() for future in futures]


def strings(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array
