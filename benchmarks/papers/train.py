"""Train and measure one run by its recipe, on images in memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from benchmarks.papers.depthwise import with_shifted_products
from benchmarks.papers.full_loss import contrastive_of_all
from benchmarks.papers.rates import share_step
from benchmarks.papers.runs import AT_RANDOM, RAW_PIXELS, Run
from benchmarks.papers.sampled_classes import fit_on_samples
from benchmarks.papers.sets import SETS
from benchmarks.papers.splits import splits_of
from benchmarks.papers.triplets import running_totals, sampled_triplets
from benchmarks.papers.watching import (
    UNINFORMATIVE,
    EndOnNaN,
    EpochTimes,
    FiniteEvaluation,
    UninformativeBatches,
)
from tfdml.losses import MultiSimilarityLoss, WeightedContrastiveLoss
from tfdml.metrics import QueryResults, cluster, clustering_metrics
from tfdml.neighbors import Metric, first_dimensions
from training.data.data_set import DataSet
from training.data.split import Split
from training.measure.embed import embed, raw_pixels
from training.measure.measure import means_of, split_results, task_of
from training.recipe.recipe import Recipe
from training.run.batches import Batch, ImageBatches
from training.run.build_batches import build_design, build_loss
from training.run.build_model import build_embedder_of, build_model
from training.run.progress import MISPLACED

_KS = (1, 3, 5, 10)
_TIMED_EPOCHS, _TIMED_STEPS = 6, 50

Found = dict[str, Any]


@dataclass(frozen=True)
class _Prepared:
    """All that training needs."""

    splits: Sequence[Split]
    embedder: keras.Model
    model: keras.Model
    batches: ImageBatches


def train(run: Run, recipe: Recipe, data: DataSet) -> Found:
    """Train an embedder on the training images and measure it on others.

    Args:
        run: What to do.
        recipe: Its recipe, whose images are those of `data`.
        data: The images.

    Returns:
        `metrics` after the last step, `queries` (the metric that is kept of each; of
        classes a text of 0 and 1), where test images are measured also `validation`,
        the metrics of the validation images, and, where it is asked for, `curve`: the
        metrics after each epoch, `step`, the `triplets` sampled until then, and of
        weighted contrastive losses `training_loss`. Where loss, weights or embeddings
        became NaN or infinite, `diverged_at` alone: the step.
    """
    settings = recipe.fit
    names = ["train", run.split] + ["validation"] * (run.split == "test")
    prepared = _prepared(run, recipe, data, names)
    embedder, batches = prepared.embedder, prepared.batches
    trained, measured, *validation = prepared.splits

    def metrics() -> dict[str, float] | None:
        embeddings = _embedded(embedder, measured)
        if embeddings is None:
            return None
        return means_of(_results(measured, embeddings, run)) | training_loss()

    def training_loss() -> dict[str, float]:
        if not isinstance(prepared.model.loss, WeightedContrastiveLoss):
            return {}
        of_all = contrastive_of_all(
            embed(embedder, trained), trained.data.labels, prepared.model.loss.margin
        )
        return {"training_loss": of_all}

    # Keras 3.15 reads batches before the first epoch: it is counted from there.
    begin = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: batches.begin_at(epoch)
    )
    end = EndOnNaN()
    callbacks: list[keras.callbacks.Callback] = [begin, end]
    if run.with_curve:
        callbacks.append(FiniteEvaluation(metrics, end))
    if run.classes:
        history = fit_on_samples(prepared.model, recipe, trained, run.classes, [end])
    else:
        history = prepared.model.fit(
            batches,
            epochs=settings.epochs,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        ).history
    embedded = [_embedded(embedder, split) for split in (measured, *validation)]
    finite = [embeddings for embeddings in embedded if embeddings is not None]
    if end.epoch is not None or len(finite) < len(embedded):
        return {"diverged_at": len(history["loss"]) * settings.epoch_steps}
    if run.prefixes:
        cut = [[first_dimensions(x, count) for x in finite] for count in run.prefixes]
        return {"of_prefixes": [_measured(measured, validation, x, run) for x in cut]}
    found = _measured(measured, validation, finite, run)
    if shares := history.get(UNINFORMATIVE):
        found["metrics"][UNINFORMATIVE] = round(float(np.mean(shares)), 6)
    if run.with_curve:
        found["curve"] = _curve(history, settings.epoch_steps, batches, trained)
    return found


def timed(run: Run, recipe: Recipe, data: DataSet) -> Found:
    """Time the training step on one batch, over and over.

    Args:
        run: As for `train`.
        recipe: As for `train`.
        data: As for `train`.

    Returns:
        `step_ms`: the median over five epochs of 50 steps, after a first.
    """
    prepared = _prepared(run, recipe, data, ["train"])
    model = prepared.model
    # Without metrics, which some losses have and others have not.
    model.compile(model.optimizer, model.loss, jit_compile=recipe.fit.jit_compile)
    times = EpochTimes()
    batches = _SameBatch(prepared.batches[0])
    model.fit(
        batches, epochs=_TIMED_EPOCHS, callbacks=[times], shuffle=False, verbose=0
    )
    return {"step_ms": round(1000 * times.median() / _TIMED_STEPS, 3)}


def frozen(run: Run, recipe: Recipe, data: DataSet) -> Found:
    """Measure what is found without training.

    Args:
        run: As for `train`; its series says by what: the pooled features of the
            pretrained backbone, the pixels, or random numbers.
        recipe: As for `train`.
        data: As for `train`.

    Returns:
        `metrics`, `queries` and `validation` as `train`, and `classes`: the class of
        each query, or its sequence.
    """
    measured, validation = splits_of(recipe, data, (run.split, "validation"))
    embedded = _without_training(run.series, recipe)
    embeddings = embedded(measured)
    results = _results(measured, embeddings, run)
    return _found(measured, embeddings, results, run) | {
        "validation": _metrics_of(validation, embedded(validation), run),
        "classes": results.classes.tolist(),
    }


def _without_training(series: str, recipe: Recipe) -> Callable[[Split], np.ndarray]:
    if series == RAW_PIXELS:
        return raw_pixels
    if series == AT_RANDOM:
        dimension = recipe.embedder.embedding_dimension
        random = np.random.default_rng(recipe.fit.seed)
        return lambda split: random.normal(size=(len(split.positions), dimension))
    embedder = build_embedder_of(recipe)
    pooled = keras.Model(embedder.input, embedder.get_layer("pooling").output)
    return lambda split: embed(pooled, split)


class _SameBatch(keras.utils.PyDataset):
    """One batch, for as many steps as an epoch has."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(workers=1, use_multiprocessing=False)
        self._batch = batch

    def __len__(self) -> int:
        return _TIMED_STEPS

    def __getitem__(self, index: int) -> Batch:
        return self._batch


def _prepared(
    run: Run, recipe: Recipe, data: DataSet, names: Sequence[str]
) -> _Prepared:
    settings = recipe.fit
    keras.utils.set_random_seed(settings.seed)
    splits = splits_of(recipe, data, names, run.thinned, run.noise)
    trained = splits[0]
    embedder = build_embedder_of(recipe)
    if keras.backend.backend() == "jax":
        embedder = with_shifted_products(embedder)
    if not run.unit_length:
        embedder = keras.Model(embedder.input, embedder.get_layer("dense").output)
    design = build_design(recipe, trained.data)
    loss = build_loss(recipe, trained.data, design)
    model = build_model(embedder, recipe, len(trained.data.class_names), loss)
    if isinstance(loss, MultiSimilarityLoss):
        counted = [UninformativeBatches(loss)]
        model.compile(
            model.optimizer, loss, metrics=counted, jit_compile=model.jit_compile
        )
    share_step(model.optimizer, settings)
    changes = recipe.augmentation, settings.seed
    batches = ImageBatches(trained, design, settings.epoch_steps, *changes)
    return _Prepared(splits, embedder, model, batches)


def _embedded(embedder: keras.Model, split: Split) -> np.ndarray | None:
    """Embed a split; None where an embedding is not finite."""
    embeddings = embed(embedder, split)
    return embeddings if np.isfinite(embeddings).all() else None


def _measured(
    measured: Split,
    validation: Sequence[Split],
    embeddings: Sequence[np.ndarray],
    run: Run,
) -> Found:
    """Return what is kept of the embeddings of both splits."""
    results = _results(measured, embeddings[0], run)
    found = _found(measured, embeddings[0], results, run)
    for split, rows in zip(validation, embeddings[1:], strict=True):
        found["validation"] = _metrics_of(split, rows, run)
    return found


def _found(
    split: Split, embeddings: np.ndarray, results: QueryResults, run: Run
) -> Found:
    queries: Any = results.values[SETS[run.set].metrics.query]
    if split.data.is_continuous:
        queries = [round(value, 4) for value in queries.tolist()]
    else:
        queries = "".join(map(str, queries.astype("int64").tolist()))
    return {"metrics": _metrics(split, embeddings, results, run), "queries": queries}


def _metrics_of(split: Split, embeddings: np.ndarray, run: Run) -> dict[str, float]:
    return _metrics(split, embeddings, _results(split, embeddings, run), run)


def _metrics(
    split: Split, embeddings: np.ndarray, results: QueryResults, run: Run
) -> dict[str, float]:
    metrics = means_of(results)
    if not split.data.is_continuous:
        classes = len(split.data.class_names)
        clusters = cluster(embeddings, classes, seed=run.tables["fit"].get("seed", 0))
        metrics |= clustering_metrics(clusters, split.data.labels)
    return {name: round(value, 6) for name, value in metrics.items()}


def _results(split: Split, embeddings: np.ndarray, run: Run) -> QueryResults:
    if not split.data.is_continuous:
        return split_results(split, task_of(split, embeddings), _KS)
    metric: Metric = "cosine" if run.unit_length else "squared_euclidean"
    return split_results(split, task_of(split, embeddings), metric=metric)


def _curve(
    history: dict[str, list[float]], steps: int, batches: ImageBatches, trained: Split
) -> list[dict[str, Any]]:
    measured = {k[4:]: v for k, v in history.items() if k.startswith("val_")}
    points: list[dict[str, Any]] = [
        {name: round(values[epoch], 6) for name, values in measured.items()}
        | {"step": (epoch + 1) * steps}
        for epoch in range(len(history["loss"]))
    ]
    if trained.data.is_continuous:
        return points
    misplaced = history.get(MISPLACED, [None] * len(points))
    counts = []
    for epoch, mean in enumerate(misplaced):
        places = map(batches.positions, range(epoch * steps, (epoch + 1) * steps))
        counts.append(sampled_triplets((trained.data.labels[p] for p in places), mean))
    for point, triplets in zip(points, running_totals(counts), strict=True):
        point["triplets"] = triplets
    return points
