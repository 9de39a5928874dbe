"""A model at a real endpoint whose weights can be swapped under the same number."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

from serving.endpoint.models.saved_model import find_model_version, model_fingerprint
from serving.endpoint.models.servable import Servable
from serving.endpoint.models.served import ServedModels
from serving.endpoint.rest.api import create_app
from tests.support.running_grpc import grpc_server
from tests.support.running_server import running
from tests.support.served import predictor


@contextlib.contextmanager
def swapping(model, *, tells=True):
    """Serve a model over REST and gRPC.

    Args:
        model: Base path of the model, or folder of a version.
        tells: Whether answers name the fingerprint of the model, as those of our
            endpoint do and those of TF Serving do not.

    Yields:
        `urls` by protocol; `swap(model)`, which serves another model under the same
        name and number; `add(model)`, which serves one more version, and
        `remove(number)`; and `label(NAME=number)`, which sets all labels.
    """
    found = find_model_version(model)

    def loaded(path, version):
        folder = find_model_version(path).folder
        known = model_fingerprint(Path(folder)) if tells else None
        return Servable(found.name, version, folder, fingerprint=known)

    models = ServedModels([loaded(model, found.version)])
    run_by = predictor()

    def swap(path):
        models.make_available(loaded(path, found.version))

    def add(path):
        models.make_available(loaded(path, find_model_version(path).version))

    def remove(version):
        models.unload(found.name, version)

    def label(**labels):
        models.configure({found.name: labels})

    with (
        running(create_app(models, run_by)) as address,
        grpc_server(models, run_by) as grpc,
    ):
        grpc.start()
        grpc.ready()
        urls = {
            "REST": f"{address}/v1/models/{found.name}",
            "gRPC": f"grpc://{grpc.address}/{found.name}",
        }
        yield SimpleNamespace(urls=urls, swap=swap, add=add, remove=remove, label=label)
