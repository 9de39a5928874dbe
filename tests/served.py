"""Models behind the real protocols, without folders that are watched."""

from serving.batching.parameters import BatchingParameters
from serving.batching.scheduler import BatchScheduler
from serving.models.saved_model import find_model_version
from serving.models.servable import Servable
from serving.models.served import ServedModels
from serving.predictor import Predictor
from serving.rest.api import create_app


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
