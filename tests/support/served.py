"""Models behind the real protocols, without folders that are watched."""

from serving.endpoint.batching.parameters import BatchingParameters
from serving.endpoint.batching.scheduler import BatchScheduler
from serving.endpoint.models.saved_model import find_model_version
from serving.endpoint.models.servable import Servable
from serving.endpoint.models.served import ServedModels
from serving.endpoint.predictor import Predictor
from serving.endpoint.rest.api import create_app


def load_servable(name, model):
    """Load the latest version below the base path of a model."""
    found = find_model_version(model)
    return Servable(name, found.version, found.folder)


def predictor(threads=2, batching=None, **options):
    """Make what runs predictions: by default each by itself, so many at one time."""
    if batching is None:
        batching = BatchingParameters(
            max_batch_size=1,
            num_batch_threads=threads,
            max_enqueued_batches=256,
            runs_alone=True,
        )
    return Predictor(BatchScheduler(batching), **options)


def rest_app(servables, *, run_by=None, **options):
    """Make the REST application that answers for loaded versions."""
    return create_app(ServedModels(servables), run_by or predictor(), **options)


def not_found(name, version=None):
    """Return TF Serving's text for a model or version that is not served."""
    asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
    return f"Servable not found for request: {asked}"
