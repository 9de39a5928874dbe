"""Train an embedder from a recipe into a run folder."""

import gc
import shutil
from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import keras

from tfdml.batch_designs import class_means
from tfdml.files import remove_unfinished, replace_folder
from tfdml.models import lora_merged

from ..data.split import Split
from ..environment import environment, keep_compiled
from ..json_files import write_json
from ..measure.embed import embed, original_error, raw_pixels
from ..measure.measure import (
    EmbeddingMetric,
    SplitEvaluation,
    means_of,
    measure,
    monitored,
    split_results,
    task_of,
    usual_ks,
)
from ..measure.paper_row import check_table, paper_row, published_clusters
from ..measure.query_files import write_queries
from ..recipe.recipe import Recipe
from ..reports.run_page import write_report
from ..reports.text import begun
from .averages import OnAverages
from .batches import ImageBatches
from .build_batches import build_design, build_loss, loss_targets
from .build_model import build_embedder_of, build_model
from .callbacks import RunCallbacks
from .console import Console
from .curve_on_test import CurveOnTest
from .mined import mined
from .mining import Mining
from .other_model import OtherModel
from .progress import Progress, SampledTriplets
from .run_folder import (
    OTHER_ROWS,
    STATE,
    UNFINISHED,
    check_free,
    check_same_images,
    check_same_recipe,
    drop_unbegun,
    kept,
)
from .schedules import is_by_time
from .searches import write_searches
from .splits import classes_of, read_splits
from .state import locked
from .steps import fed
from .tensorboard import EventFiles
from .time_budget import RateByTime
from .without_waiting import WithoutWaiting

FLOOR_QUERIES = 20_000
"""Raw pixels are long vectors: of a larger test set so many search it."""

_ENDLESS = 10**9
"""Epochs of a run that its time ends."""

Callbacks = Sequence[keras.callbacks.Callback]


def fit(
    recipe: Recipe,
    run: str | PathLike[str],
    *,
    overwrite: bool = False,
    restart: bool = False,
    callbacks: Callbacks = (),
) -> dict[str, Any]:
    """Train an embedder by a recipe and write everything to a run folder.

    The run folder holds `embedder.keras` (the weights of the epoch that was best on
    validation; of the last epoch without it or with `keep = "last"`), `last.keras` (of
    the last epoch), `recipe.json`, `splits.json` (the classes of each split),
    `test_images.txt` (of the test classes, or of all that trained where there are
    none), `history.json`, `metrics.json`, `queries.npz` (the metrics of each test
    query), `neighbors.json` (some searches), `report.html` and, where the recipe says
    so, `tensorboard`. It appears when all is done.

    Until then `RUN.unfinished` holds the state of the last whole epoch. However a run
    ends, the same call goes on from there, with the batches that would have come.

    Args:
        recipe: What to do.
        run: The run folder.
        overwrite: Whether a finished run may be replaced.
        restart: Whether an interrupted run is thrown away.
        callbacks: More callbacks of Keras; but for the console they come last.

    Returns:
        What `metrics.json` holds: retrieval on test classes before and after training
        and of raw pixels, the number of classes and images, and seconds.

    Raises:
        FileExistsError: The run exists and `overwrite` is False, or the folder holds
            something else than a run.
        ValueError: The images cannot be used, or an interrupted run had another recipe
            or other images; the message says which.
        RecipeError: The network cannot be built as the recipe says, or a callback that
            it names is not there.
        RunInUseError: Another process trains into this run folder.
        DivergedError: The loss became NaN; the last good state is kept.
        OSError: The state cannot be written, as on a full disk; the last one is kept.
    """
    run = Path(run)
    unfinished = run.with_name(f"{run.name}.unfinished")
    lock = run.with_name(f"{run.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    check_free(run, overwrite)
    named = RunCallbacks(recipe)
    with locked(lock):
        check_free(run, overwrite)
        if restart:
            shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(exist_ok=True)
        remove_unfinished(unfinished)
        try:
            results = _fit_into(unfinished, recipe, run.name, callbacks, named)
        except BaseException:
            named.end(None)
            drop_unbegun(unfinished)
            raise
        named.end(results)
        replace_folder(unfinished, run, run.with_name(f"{run.name}.replaced"))
        # Only now: until the run is in its place, it can be finished again from these.
        for name in UNFINISHED:
            (run / name).unlink(missing_ok=True)
    return results


def _fit_into(
    folder: Path, recipe: Recipe, name: str, callbacks: Callbacks, named: RunCallbacks
) -> dict[str, Any]:
    check_same_recipe(folder, recipe)
    settings = recipe.fit
    keep_compiled()
    keras.utils.set_random_seed(settings.seed)
    # Before the images are read, which takes longer: it may not be possible.
    embedder = build_embedder_of(recipe)
    old, teacher = (OtherModel(t, recipe, folder) for t in OTHER_ROWS)
    source, splits, skipped = read_splits(recipe)
    names = {name: source.names(split.data) for name, split in splits.items()}
    check_same_images(
        folder,
        names,
        {name: split.data for name, split in splits.items()},
        {name: split.contents for name, split in splits.items()},
    )
    if recipe.evaluation.test_every_epochs and not splits["test"].can_be_measured:
        raise ValueError(
            "[evaluation]: `test_every_epochs` must be 0 where no test image has a "
            f"positive. Received: {recipe.evaluation.test_every_epochs}."
        )
    if recipe.evaluation.table:
        check_table(recipe.evaluation.table, splits["train"].data)
    if settings.patience and not splits["validation"].can_be_measured:
        raise ValueError(
            "[fit]: `patience` must be 0 where no validation image has a positive. "
            f"Received: {settings.patience}."
        )
    write_json(folder / "splits.json", classes_of(splits) or names)
    # What `serving index build --only` takes: all images where none are held out.
    listed = names["test" if names["test"] else "train"]
    (folder / "test_images.txt").write_text("".join(f"{p}\n" for p in listed), "utf-8")

    train = splits["train"].data
    design = build_design(recipe, train)
    loss = build_loss(recipe, train, design)
    targets = loss_targets(recipe, train)
    design, mining = mined(recipe, design, splits["train"], embedder)
    where = f"{keras.backend.backend()} ({environment()['devices']})"
    print(begun(recipe, splits, where), flush=True)

    test = splits["test"]
    metric = recipe.embedder.metric
    of_recipe = recipe.evaluation.ks(usual_ks(test.data))
    ks = tuple(sorted({*of_recipe, *recipe.published.ks}))
    before = kept(
        folder,
        lambda: {
            "test_of_raw_32x32_pixels": measure(
                test, raw_pixels, ks, most_queries=FLOOR_QUERIES
            ),
            "test_before_training": measure(
                test, partial(embed, embedder), ks, metric=metric
            ),
        },
    )
    old_rows = old.embed(splits["train"])
    old_proxies = None
    if old_rows is not None and recipe.loss.on_proxies:
        old_proxies, old_rows = class_means(old_rows, train.labels), None
    model = build_model(embedder, recipe, len(train.class_names), loss, old_proxies)
    batches = ImageBatches(
        splits["train"],
        design,
        settings.epoch_steps,
        recipe.augmentation,
        settings.seed,
        old_rows,
        targets,
        teacher.embed(splits["train"]),
    )
    progress = Progress(
        folder / STATE,
        batches,
        tuple(names["train"]),
        settings.patience,
        *(monitored(splits["validation"].data) if settings.keep == "best" else (None,)),
        minutes=settings.minutes,
        embedder=embedder,
    )
    measuring = _validation(splits["validation"], embedder, metric)
    if every := recipe.evaluation.test_every_epochs:
        curve = CurveOnTest(
            test,
            embedder,
            progress,
            every=every,
            epochs=settings.epochs,
            metric=metric,
        )
        measuring.append(OnAverages(curve))
    if is_by_time(settings):
        measuring.append(RateByTime(settings, progress))
    if not train.is_continuous:
        measuring.append(SampledTriplets(batches, train.labels, progress))
    callbacks = [*named.make(folder, name), *callbacks]
    _train(model, batches, recipe, progress, folder, (measuring, callbacks), mining)
    seconds = round(progress.seconds, 1)
    progress.load_last(model)
    with lora_merged(embedder):
        embedder.save(folder / "last.keras")
    progress.load_best(model)
    with lora_merged(embedder):
        embedder.save(folder / "embedder.keras")
    on_test = {"test": progress.test_curve} if progress.test_curve else {}
    write_json(folder / "history.json", progress.history | on_test)
    shown = next(
        (s for s in ("test", "validation") if splits[s].can_be_measured), "train"
    )
    embedded = embed(embedder, splits[shown])
    after, row = None, None
    clusters: dict[str, Any] = {}
    if shown == "test":
        task = task_of(test, embedded)
        tested = split_results(test, task, ks, metric=metric)
        after = means_of(tested)
        write_queries(folder, tested, test, names["test"])
        if table := recipe.evaluation.table:
            row = paper_row(table, test.data, task, after, metric)
        clusters = published_clusters(recipe.published, test.data, task, metric)
    results = {
        "images": {name: len(split.data) for name, split in splits.items()},
        "classes": {
            name: len(split.data.class_names) for name, split in splits.items()
        },
        "skipped_files": skipped,
        "seconds_of_training": seconds,
        "steps_of_training": progress.steps_done,
        "best_epoch": progress.best_epoch,
        "backend": keras.backend.backend(),
        "environment": environment(),
        **before,
        "test_after_training": after,
        **({"table": row} if row else {}),
        **clusters,
        "searches_of": shown,
    }
    write_searches(
        folder,
        splits[shown],
        embedded,
        names[shown],
        metric=metric,
        projector=settings.writes_event_files,
    )
    write_json(folder / "metrics.json", results)
    write_report(folder)
    return results


def _train(
    model: keras.Model,
    batches: ImageBatches,
    recipe: Recipe,
    progress: Progress,
    folder: Path,
    callbacks: tuple[Callbacks, Callbacks],
    mining: list[Mining],
) -> None:
    """Train from the state that there is; some callbacks come before `progress`."""
    settings = recipe.fit
    progress.begin(model)
    if progress.epochs_done:
        of_all = f" of {settings.epochs}" if settings.epochs else ""
        print(f"Resuming after epoch {progress.epochs_done}{of_all}.")
    before, after = callbacks
    events = _event_files(folder, recipe, progress)
    if progress.is_over:
        for callback in events:  # they may lack the last epoch
            callback.on_train_begin()
            callback.on_train_end()
        return
    epochs = settings.epochs or _ENDLESS
    console = Console(settings.epochs, settings.epoch_steps, progress)
    try:
        for callback in mining:
            callback.begin(progress.epochs_done)
        with original_error(batches):
            model.fit(
                **fed(model, batches, progress.epochs_done),
                initial_epoch=progress.epochs_done,
                epochs=epochs,
                callbacks=WithoutWaiting(
                    [
                        *before,
                        progress,
                        *mining,
                        *events,
                        *after,
                        console,
                    ],
                    model,
                    epochs=epochs,
                    steps=settings.epoch_steps,
                ),
                shuffle=False,  # the design has shuffled already
                verbose=0,
            )
    finally:
        for callback in mining:
            callback.close()
        console.close()
        progress.close()
        # An iterator of TensorFlow that outlives Python complains of it.
        gc.collect()


def _validation(
    split: Split, embedder: keras.Model, metric: EmbeddingMetric
) -> list[keras.callbacks.Callback]:
    if not split.can_be_measured:
        print("No validation images: the weights of the last epoch are kept.")
        return []
    return [OnAverages(SplitEvaluation(split, embedder, metric))]


def _event_files(folder: Path, recipe: Recipe, progress: Progress) -> Callbacks:
    if not recipe.fit.writes_event_files:
        return []
    return [EventFiles(folder / "tensorboard", recipe.fit.epoch_steps, progress)]
