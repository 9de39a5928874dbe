"""The training run: from a recipe to a run folder."""

import dataclasses
import json
import shutil
import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfdml.losses
from tfdml.batch_designs import GroupBatches
from tfdml.callbacks import RetrievalEvaluation
from tfdml.embedder import build_embedder
from tfdml.metrics import MisplacedPairs, retrieval_metrics
from training.batches import ImageBatches, build_augmentation
from training.data.folder import (
    ImageFolder,
    find_images,
    read_images,
    split_classes,
)
from training.recipe import Recipe, RecipeError

__all__ = ["fit"]

KS = (1, 5)


def fit(
    recipe: Recipe, run: str | PathLike[str], *, overwrite: bool = False
) -> dict[str, Any]:
    """Train an embedder by a recipe and write everything to a run folder.

    The run folder holds `embedder.keras` (the weights of the epoch that was best on
    validation classes by Precision@1; of the last epoch without validation),
    `recipe.json`, `splits.json` (the classes of each part), `test_images.txt` (of the
    test classes, or of all that trained where there are none),
    `history.json` and `metrics.json`. It appears when all is done: an interrupted run
    leaves `RUN.unfinished`.

    Args:
        recipe: What to do.
        run: The run folder.
        overwrite: Whether a finished run may be replaced.

    Returns:
        What `metrics.json` holds: retrieval on test classes before and after training
        and of raw pixels, the number of classes and images, and seconds.

    Raises:
        FileExistsError: The run exists and `overwrite` is False, or the folder holds
            something else than a run.
        ValueError: The images cannot be used; the message says why.
        RecipeError: The network cannot be built as the recipe says.
    """
    run = Path(run)
    if run.exists() and not overwrite:
        raise FileExistsError(
            f"{run} holds a run already. Choose another folder with --run, or replace "
            "it with --overwrite."
        )
    if run.exists() and not (run / "metrics.json").is_file():
        raise FileExistsError(
            f"{run} holds no run (no metrics.json) and is not replaced. Choose another "
            "folder with --run."
        )
    unfinished = run.with_name(f"{run.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    results = _fit_into(unfinished, recipe)
    if run.exists():
        shutil.rmtree(run)
    unfinished.rename(run)
    return results


def _fit_into(folder: Path, recipe: Recipe) -> dict[str, Any]:
    _write_json(folder / "recipe.json", dataclasses.asdict(recipe))
    settings = recipe.fit
    keras.utils.set_random_seed(settings.seed)
    # Before the images are read, which takes longer: it may not be possible.
    embedder = _build(recipe)
    parts, splits, skipped = _read_parts(recipe)
    _write_json(folder / "splits.json", splits)
    # What `serving index --only` takes: all images where none are held out.
    listed = parts["test" if splits["test"] else "train"][1].paths
    (folder / "test_images.txt").write_text("".join(f"{p}\n" for p in listed), "utf-8")

    floor = _evaluate(_raw_pixels, parts["test"])
    before = _evaluate(embedder.predict, parts["test"])
    started = time.monotonic()
    history = _train(embedder, recipe, parts, folder)
    seconds = time.monotonic() - started
    embedder.save(folder / "embedder.keras")
    _write_json(folder / "history.json", history)
    after = _evaluate(embedder.predict, parts["test"])
    results = {
        "images": {name: len(pixels) for name, (pixels, _) in parts.items()},
        "classes": {name: len(i.class_names) for name, (_, i) in parts.items()},
        "skipped_files": skipped,
        "seconds_of_training": round(seconds, 1),
        "backend": keras.backend.backend(),
        "test_before_training": before,
        "test_after_training": after,
        "test_of_raw_32x32_pixels": floor,
    }
    _write_json(folder / "metrics.json", results)
    return results


Part = tuple[np.ndarray, ImageFolder]


def _read_parts(
    recipe: Recipe,
) -> tuple[dict[str, Part], dict[str, list[str]], list[str]]:
    found = find_images(recipe.data.images)
    splits = split_classes(
        found.class_names,
        test_fraction=recipe.data.test_fraction,
        validation_fraction=recipe.data.validation_fraction,
        seed=recipe.data.split_seed,
    )
    parts, skipped = {}, []
    for name, classes in splits.items():
        pixels, images, failures = read_images(
            found.of_classes(classes),
            recipe.embedder.image_size,
            skip_unreadable=recipe.data.skip_unreadable,
            description=f"read {name}",
        )
        parts[name] = (pixels, images)
        skipped += failures
    if skipped:
        print(f"Skipped {len(skipped)} unreadable files:", *skipped, sep="\n  ")
    left = parts["train"][1].class_names
    if len(left) < 2:
        raise ValueError(
            "At least 2 training classes must have an image that can be read. "
            f"Received: {len(left)}, after {len(skipped)} files were skipped."
        )
    return parts, splits, skipped


def _build(recipe: Recipe) -> keras.Model:
    keras.config.set_dtype_policy(recipe.fit.precision)
    about = recipe.embedder
    try:
        return build_embedder(
            about.image_size,
            about.embedding_dimension,
            backbone=about.backbone,
            weights=about.weights or None,
            pooling=about.pooling,
            widths=about.widths,
            blocks=about.blocks,
            stem_stride=about.stem_stride,
            dropout=about.dropout,
        )
    except ValueError as error:
        raise RecipeError(f"[embedder]: {error}") from error
    finally:
        keras.config.set_dtype_policy("float32")


def _train(
    embedder: keras.Model, recipe: Recipe, parts: dict[str, Part], folder: Path
) -> dict[str, list[float]]:
    settings = recipe.fit
    pixels, images = parts["train"]
    wanted = recipe.batches.classes_per_batch
    classes = min(wanted, len(images.class_names))
    if classes < wanted:
        print(f"A batch holds all {classes} training classes, not {wanted}.")
    batches = ImageBatches(
        pixels,
        images.labels,
        GroupBatches(
            images.labels,
            recipe.batches.images_per_class,
            classes,
            seed=settings.seed,
        ),
        settings.epoch_steps,
        build_augmentation(recipe.augmentation, settings.seed),
    )
    loss = getattr(tfdml.losses, recipe.loss.name)(**recipe.loss.arguments)
    embedder.compile(
        optimizer=keras.optimizers.AdamW(
            _schedule(settings.learning_rate, settings.steps, settings.warmup_steps),
            weight_decay=settings.weight_decay,
        ),
        loss=loss,
        metrics=_metrics(loss),
        jit_compile=settings.jit_compile,
    )
    best = folder / "best.weights.h5"
    callbacks = _callbacks(parts["validation"], settings.patience, best)
    history = embedder.fit(
        batches,
        epochs=settings.epochs,
        callbacks=callbacks,
        shuffle=False,  # the design has shuffled already
    )
    if best.exists():
        embedder.load_weights(best)
        best.unlink()
    return {
        name: [float(v) for v in values] for name, values in history.history.items()
    }


def _metrics(loss: tfdml.losses.MetricLoss) -> list[keras.metrics.Metric]:
    if isinstance(loss, tfdml.losses.TopKPrecisionLoss):
        return [MisplacedPairs(loss.k, loss.margin)]
    return []


def _schedule(
    learning_rate: float, steps: int, warmup_steps: int
) -> keras.optimizers.schedules.LearningRateSchedule:
    if not warmup_steps:
        return keras.optimizers.schedules.CosineDecay(learning_rate, steps)
    return keras.optimizers.schedules.CosineDecay(
        0.0,
        steps - warmup_steps,
        warmup_target=learning_rate,
        warmup_steps=warmup_steps,
    )


def _callbacks(
    validation: Part, patience: int, best: Path
) -> list[keras.callbacks.Callback]:
    pixels, images = validation
    if not _can_be_measured(images.labels):
        print("Nothing to validate on: the weights of the last epoch are kept.")
        return []
    monitored = {"monitor": "val_precision_at_1", "mode": "max"}
    callbacks: list[keras.callbacks.Callback] = [
        RetrievalEvaluation(pixels, images.labels, ks=_ks(len(pixels))),
        keras.callbacks.ModelCheckpoint(
            best, save_best_only=True, save_weights_only=True, **monitored
        ),
    ]
    if patience:
        callbacks.append(keras.callbacks.EarlyStopping(patience=patience, **monitored))
    return callbacks


def _evaluate(
    embed: Callable[[np.ndarray], np.ndarray], part: Part
) -> dict[str, float] | None:
    """Measure retrieval on a part; None where no query has a positive."""
    pixels, images = part
    if not _can_be_measured(images.labels):
        return None
    return retrieval_metrics(embed(pixels), images.labels, _ks(len(pixels)))


def _can_be_measured(labels: np.ndarray) -> bool:
    return len(labels) > 1 and np.bincount(labels).max() > 1


def _ks(count: int) -> tuple[int, ...]:
    return tuple(k for k in KS if k < count)


def _raw_pixels(pixels: np.ndarray) -> np.ndarray:
    """Embed pictures as their own 32 x 32 pixels, each centred: the floor to beat."""
    small = np.empty((len(pixels), 32, 32, 3), dtype="float32")
    for start in range(0, len(pixels), 256):  # in float32 all of them may be too many
        block = pixels[start : start + 256].astype("float32")
        small[start : start + 256] = keras.ops.convert_to_numpy(
            keras.ops.image.resize(block, (32, 32), antialias=True)
        )
    rows = small.reshape(len(pixels), -1)
    # Without this, most of the cosine is the white that all drawings share.
    return rows - rows.mean(axis=1, keepdims=True)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
