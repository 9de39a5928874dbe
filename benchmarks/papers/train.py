"""One training run by a recipe, on pictures that lie in memory, and what it reaches."""

import math
import statistics
import time
from typing import Any

import keras
import numpy as np

from benchmarks.papers.parts import parts_of
from benchmarks.papers.runs import Run
from tfdml.clustering import clustering_metrics
from tfdml.exact_scores import Metric
from tfdml.kmeans import cluster
from tfdml.query_results import QueryResults
from training.batches import ImageBatches, build_augmentation
from training.data.data_set import DataSet
from training.designs import build_design, build_loss
from training.evaluation import Part, PartEvaluation, embed, means_of, part_results
from training.model import build_embedder_of, build_model
from training.recipe import Recipe
from training.sampled_triplets import triplets_of

__all__ = ["QUERY_METRICS", "frozen", "train"]

_KS = (1, 3, 5, 10)
QUERY_METRICS = {True: "label_distance_at_1_other_sequences", False: "precision_at_1"}
"""What is kept of each query, of continuous labels (True) and of classes."""


def train(run: Run, recipe: Recipe, data: DataSet) -> dict[str, Any]:
    """Train an embedder on the training images and measure it on others.

    Args:
        run: What to do.
        recipe: Its recipe, whose images are those of `data`.
        data: The pictures.

    Returns:
        `metrics` after the last step, `queries` (`QUERY_METRICS` of each; of classes
        a text of 0 and 1), `step_ms` (the median over epochs, without the first) and,
        where it is asked for, `curve`: for each epoch the metrics, `step` and
        `triplets`, which both count from the beginning. Where the loss became NaN,
        `diverged_at` alone: the step.
    """
    settings = recipe.fit
    keras.utils.set_random_seed(settings.seed)
    trained, measured = parts_of(recipe, data, ("train", run.split), run.thinned)
    embedder = build_embedder_of(recipe)
    if not run.unit_length:
        embedder = keras.Model(embedder.inputs, embedder.get_layer("dense").output)
    design = build_design(recipe, trained.data)
    loss = build_loss(recipe, trained.data, design)
    model = build_model(embedder, recipe, len(trained.data.class_names), loss)
    augment = build_augmentation(recipe.augmentation, settings.seed)
    batches = ImageBatches(trained, design, settings.epoch_steps, augment)
    # Keras 3.15 reads batches before the first epoch: it is counted from there.
    begin = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: batches.begin_at(epoch)
    )
    watch, end = _Watch(), _EndOnNaN()
    callbacks = [begin, watch, end]
    if run.with_curve:
        callbacks.append(PartEvaluation(measured, embedder))
    history = model.fit(
        batches, epochs=settings.epochs, callbacks=callbacks, shuffle=False, verbose=0
    ).history
    if end.epoch is not None:
        return {"diverged_at": (end.epoch + 1) * settings.epoch_steps}
    found = _measured(measured, embed(embedder, measured), run, settings.seed)
    found["step_ms"] = round(1000 * watch.epoch_seconds() / settings.epoch_steps, 2)
    if run.with_curve:
        found["curve"] = _curve(history, batches, trained.data, settings.epoch_steps)
    return found


def frozen(run: Run, recipe: Recipe, data: DataSet) -> dict[str, Any]:
    """Measure what the pretrained backbone sees, its pooled features.

    Args:
        run: As for `train`.
        recipe: As for `train`.
        data: As for `train`.

    Returns:
        `metrics` and `queries` as `train`, and `classes`: the class of each query, or
        its sequence.
    """
    (measured,) = parts_of(recipe, data, (run.split,))
    embedder = build_embedder_of(recipe)
    pooled = keras.Model(embedder.inputs, embedder.get_layer("pooling").output)
    embeddings = embed(pooled, measured)
    classes = _results(measured, embeddings, run).classes.tolist()
    return _measured(measured, embeddings, run, recipe.fit.seed) | {"classes": classes}


class _Watch(keras.callbacks.Callback):
    """Takes the time of the epochs, what callbacks after it do left out."""

    def __init__(self) -> None:
        super().__init__()
        self._start = 0.0
        self._seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._seconds.append(time.perf_counter() - self._start)

    def epoch_seconds(self) -> float:
        """Return the median over epochs but the first, which compiles."""
        return statistics.median(self._seconds[1:] or self._seconds)


class _EndOnNaN(keras.callbacks.Callback):
    """Ends the training after the first epoch whose loss is not finite."""

    epoch: int | None = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not math.isfinite((logs or {})["loss"]):
            self.epoch = epoch
            self.model.stop_training = True


def _measured(
    part: Part, embeddings: np.ndarray, run: Run, seed: int
) -> dict[str, Any]:
    data = part.data
    results = _results(part, embeddings, run)
    metrics = means_of(results)
    if not data.is_continuous:
        clusters = cluster(embeddings, len(data.class_names), seed=seed)
        metrics |= clustering_metrics(clusters, data.labels)
    queries: Any = results.values[QUERY_METRICS[data.is_continuous]]
    if data.is_continuous:
        queries = [round(value, 4) for value in queries.tolist()]
    else:
        queries = "".join(map(str, queries.astype("int64").tolist()))
    return {
        "metrics": {name: round(value, 6) for name, value in metrics.items()},
        "queries": queries,
    }


def _results(part: Part, embeddings: np.ndarray, run: Run) -> QueryResults:
    ks = None if part.data.is_continuous else _KS
    metric: Metric = "cosine" if run.unit_length else "squared_euclidean"
    return part_results(part, embeddings, ks, metric=metric)


def _curve(
    history: dict[str, list[float]], batches: ImageBatches, data: DataSet, steps: int
) -> list[dict[str, float]]:
    measured = {k[4:]: v for k, v in history.items() if k.startswith("val_")}
    epochs = len(history["loss"])
    seen = np.zeros(epochs)
    if not data.is_continuous:
        each = [
            triplets_of(data.labels[batches.positions(step)])
            for step in range(epochs * steps)
        ]
        seen = np.cumsum(each)[steps - 1 :: steps]
    return [
        {name: round(values[epoch], 6) for name, values in measured.items()}
        | {"step": (epoch + 1) * steps, "triplets": int(seen[epoch])}
        for epoch in range(epochs)
    ]
