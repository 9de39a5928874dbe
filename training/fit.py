"""The training run: from a recipe to a run folder."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfdml.batch_designs import GroupBatches
from tfdml.callbacks import RetrievalEvaluation
from tfdml.metrics import retrieval_metrics
from training.batches import ImageBatches, build_augmentation
from training.data.folder import (
    ImageFolder,
    find_images,
    read_images,
    split_classes,
)
from training.model import build_embedder_of, build_model
from training.progress import Progress
from training.recipe import Recipe
from training.state import locked

__all__ = ["fit"]

KS = (1, 5)
STATE = "state.npz"
IMAGES = "images.json"

Part = tuple[np.ndarray, ImageFolder]


def fit(
    recipe: Recipe,
    run: str | PathLike[str],
    *,
    overwrite: bool = False,
    restart: bool = False,
) -> dict[str, Any]:
    """Train an embedder by a recipe and write everything to a run folder.

    The run folder holds `embedder.keras` (the weights of the epoch that was best on
    validation classes by Precision@1; of the last epoch without validation),
    `recipe.json`, `splits.json` (the classes of each part), `test_images.txt` (of the
    test classes, or of all that trained where there are none),
    `history.json` and `metrics.json`. It appears when all is done.

    Until then `RUN.unfinished` holds the state of the last whole epoch. However a run
    ends, the same call goes on from there, with the batches that would have come.

    Args:
        recipe: What to do.
        run: The run folder.
        overwrite: Whether a finished run may be replaced.
        restart: Whether an interrupted run is thrown away.

    Returns:
        What `metrics.json` holds: retrieval on test classes before and after training
        and of raw pixels, the number of classes and images, and seconds.

    Raises:
        FileExistsError: The run exists and `overwrite` is False, or the folder holds
            something else than a run.
        ValueError: The images cannot be used, or an interrupted run had another recipe
            or other images; the message says which.
        RecipeError: The network cannot be built as the recipe says.
        RunInUseError: Another process trains into this run folder.
        DivergedError: The loss became NaN; the last good state is kept.
        OSError: The state cannot be written, as on a full disk; the last one is kept.
    """
    run = Path(run)
    unfinished = run.with_name(f"{run.name}.unfinished")
    lock = run.with_name(f"{run.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    _check_free(run, overwrite)
    with locked(lock):
        _check_free(run, overwrite)
        if restart:
            shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(exist_ok=True)
        results = _fit_into(unfinished, recipe)
        replaced = run.with_name(f"{run.name}.replaced")
        shutil.rmtree(replaced, ignore_errors=True)
        if run.exists():
            run.rename(replaced)
        unfinished.rename(run)
        # Only now: until the run is in its place, it can be finished again from these.
        for name in (STATE, IMAGES, "diverged_batch.txt", "last_good.keras"):
            (run / name).unlink(missing_ok=True)
        shutil.rmtree(replaced, ignore_errors=True)
    return results


def _check_free(run: Path, overwrite: bool) -> None:
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


def _fit_into(folder: Path, recipe: Recipe) -> dict[str, Any]:
    _check_same_recipe(folder, recipe)
    settings = recipe.fit
    keras.utils.set_random_seed(settings.seed)
    # Before the images are read, which takes longer: it may not be possible.
    embedder = build_embedder_of(recipe)
    parts, splits, skipped = _read_parts(recipe)
    _check_same_images(folder, parts)
    _write_json(folder / "splits.json", splits)
    # What `serving index --only` takes: all images where none are held out.
    listed = parts["test" if splits["test"] else "train"][1].paths
    (folder / "test_images.txt").write_text("".join(f"{p}\n" for p in listed), "utf-8")

    floor = _evaluate(_raw_pixels, parts["test"])
    before = _evaluate(embedder.predict, parts["test"])
    progress = _train(embedder, recipe, parts, folder)
    embedder.save(folder / "embedder.keras")
    _write_json(folder / "history.json", progress.history)
    after = _evaluate(embedder.predict, parts["test"])
    results = {
        "images": {name: len(pixels) for name, (pixels, _) in parts.items()},
        "classes": {name: len(i.class_names) for name, (_, i) in parts.items()},
        "skipped_files": skipped,
        "seconds_of_training": round(progress.seconds, 1),
        "backend": keras.backend.backend(),
        "test_before_training": before,
        "test_after_training": after,
        "test_of_raw_32x32_pixels": floor,
    }
    _write_json(folder / "metrics.json", results)
    return results


def _check_same_recipe(folder: Path, recipe: Recipe) -> None:
    """Note the recipe of a new run; of an interrupted one, it must be the same."""
    tables = json.loads(json.dumps(dataclasses.asdict(recipe)))
    file = folder / "recipe.json"
    if not (folder / STATE).exists():
        _write_json(file, tables)
        return
    before = json.loads(file.read_text("utf-8"))
    changes = [
        f"{table}.{key} was {before[table].get(key)!r} and is {value!r}"
        for table, values in tables.items()
        for key, value in values.items()
        if before[table].get(key) != value
    ]
    if changes:
        raise ValueError(
            f"{folder} holds an interrupted run of another recipe: {changes[0]}. Give "
            "that recipe to go on with it, another folder with --run, or --restart to "
            "throw it away."
        )


def _check_same_images(folder: Path, parts: dict[str, Part]) -> None:
    """Note the images of a new run; of an interrupted one, they must be the same."""
    paths = {name: list(images.paths) for name, (_, images) in parts.items()}
    file = folder / IMAGES
    if not (folder / STATE).exists():
        _write_json(file, paths)
        return
    before = json.loads(file.read_text("utf-8"))
    for name, now in paths.items():
        for word, left in (
            ("is missing", set(before[name]) - set(now)),
            ("is new", set(now) - set(before[name])),
        ):
            if left:
                raise ValueError(
                    f"The images are not those that the run in {folder} began with: "
                    f"{min(left)} {word} ({len(left)} in all, {name}). Bring them back "
                    "to go on, or start anew with --restart."
                )


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


def _train(
    embedder: keras.Model, recipe: Recipe, parts: dict[str, Part], folder: Path
) -> Progress:
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
    model = build_model(embedder, recipe, len(images.class_names))
    progress = Progress(folder / STATE, batches, images.paths, settings.patience)
    progress.begin(model)
    if progress.epochs_done:
        print(f"Going on after epoch {progress.epochs_done} of {settings.epochs}.")
    if not progress.is_over:
        model.fit(
            batches,
            initial_epoch=progress.epochs_done,
            epochs=settings.epochs,
            callbacks=[*_validation(parts["validation"], embedder), progress],
            shuffle=False,  # the design has shuffled already
        )
    progress.load_best(model)
    return progress


def _validation(part: Part, embedder: keras.Model) -> list[keras.callbacks.Callback]:
    pixels, images = part
    if not _can_be_measured(images.labels):
        print("Nothing to validate on: the weights of the last epoch are kept.")
        return []
    return [
        RetrievalEvaluation(
            pixels, images.labels, ks=_ks(len(pixels)), embedder=embedder
        )
    ]


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
