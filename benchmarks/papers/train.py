"""One training run by a recipe, on pictures that lie in memory, and what it reaches."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from tfdml.clustering import clustering_metrics
from tfdml.kmeans import cluster
from tfdml.query_results import QueryResults
from training.batches import ImageBatches, build_augmentation
from training.data.data_set import DataSet
from training.designs import build_design, build_loss, label_distance_of
from training.evaluation import Part, PartEvaluation, embed, means_of, part_results
from training.model import build_embedder_of, build_model
from training.pictures import Pictures
from training.recipe import Recipe
from training.sampled_triplets import triplets_of

__all__ = ["frozen", "train"]

_KS = (1, 3, 5, 10)
_FIRST = {True: "label_distance_at_1_other_sequences", False: "precision_at_1"}
"""What is kept of each query, of continuous labels (True) and of classes."""


def train(
    recipe: Recipe, data: DataSet, split: str, *, with_curve: bool = False
) -> dict[str, Any]:
    """Train an embedder on the training images and measure it on others.

    Args:
        recipe: What to do; its images are those of `data`.
        data: The pictures.
        split: What is measured, `"validation"` or `"test"`, after the last step.
        with_curve: Whether it is also measured after each epoch.

    Returns:
        `metrics`, `queries` (Precision@1 of each query, or the label distance of its
        first hit among other sequences) and, where they are asked for, `curve`: for
        each epoch the metrics, `step` and `triplets`, of which both count from the
        beginning. Where the loss became NaN, `diverged_at` alone: the step.
    """
    settings = recipe.fit
    keras.utils.set_random_seed(settings.seed)
    trained, measured = _parts(recipe, data, ("train", split))
    embedder = build_embedder_of(recipe)
    design = build_design(recipe, trained.data)
    loss = build_loss(recipe, trained.data, design)
    model = build_model(embedder, recipe, len(trained.data.class_names), loss)
    augment = build_augmentation(recipe.augmentation, settings.seed)
    batches = ImageBatches(trained, design, settings.epoch_steps, augment)
    end = _EndOnNaN()
    # Keras 3.15 reads batches before the first epoch: it is counted from there.
    begin = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: batches.begin_at(epoch)
    )
    history = model.fit(
        batches,
        epochs=settings.epochs,
        callbacks=[begin, end]
        + ([PartEvaluation(measured, embedder)] if with_curve else []),
        shuffle=False,
        verbose=0,
    ).history
    if end.epoch is not None:
        return {"diverged_at": (end.epoch + 1) * settings.epoch_steps}
    results = _measured(measured, embed(embedder, measured), settings.seed)
    if with_curve:
        results["curve"] = _curve(history, batches, trained.data, settings.epoch_steps)
    return results


def frozen(recipe: Recipe, data: DataSet, split: str) -> dict[str, Any]:
    """Measure what the pretrained backbone sees, its pooled features.

    Args:
        recipe: As for `train`.
        data: The pictures.
        split: What is measured.

    Returns:
        As `train`, and `classes`: the class of each query, or its sequence.
    """
    (measured,) = _parts(recipe, data, (split,))
    embedder = build_embedder_of(recipe)
    pooled = keras.Model(embedder.inputs, embedder.get_layer("pooling").output)
    embeddings = embed(pooled, measured)
    classes = _results(measured, embeddings).classes.tolist()
    return _measured(measured, embeddings, recipe.fit.seed) | {"classes": classes}


def _parts(recipe: Recipe, data: DataSet, splits: Sequence[str]) -> list[Part]:
    pictures = Pictures(data, recipe.view, seed=recipe.fit.seed, threads=1)
    distance = label_distance_of(recipe)
    places = [np.flatnonzero(data.splits == split) for split in splits]
    return [Part(data.select(place), pictures, place, distance) for place in places]


class _EndOnNaN(keras.callbacks.Callback):
    """Ends the training after the first epoch whose loss is not finite."""

    epoch: int | None = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not math.isfinite((logs or {})["loss"]):
            self.epoch = epoch
            self.model.stop_training = True


def _measured(part: Part, embeddings: np.ndarray, seed: int) -> dict[str, Any]:
    data = part.data
    results = _results(part, embeddings)
    metrics = means_of(results)
    if not data.is_continuous:
        clusters = cluster(embeddings, len(data.class_names), seed=seed)
        metrics |= clustering_metrics(clusters, data.labels)
    queries = results.values[_FIRST[data.is_continuous]]
    return {
        "metrics": {name: round(value, 6) for name, value in metrics.items()},
        "queries": [round(value, 4) for value in queries.tolist()],
    }


def _results(part: Part, embeddings: np.ndarray) -> QueryResults:
    return part_results(part, embeddings, None if part.data.is_continuous else _KS)


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
