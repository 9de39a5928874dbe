"""Measure the phases of our training, on the backend of Keras.

Run in a process of its own: `python -m benchmarks.training.ours SETTINGS`.
"""

import contextlib
import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks.rounds import steps_of, tell, tell_rounds
from benchmarks.session import machine
from benchmarks.training.settings import Settings
from tfdml.batch_designs import BatchDesign, BatchSequence
from training.data.images import Images, open_images
from training.data.source import read_source
from training.data.split import Split
from training.recipe.recipe import Recipe, recipe_of
from training.run.batches import ImageBatches
from training.run.build_batches import build_design, build_loss
from training.run.build_model import build_embedder_of, build_model
from training.run.fit import fit


def main() -> None:
    settings = Settings.read(sys.argv[1])
    tell("machine", **machine())
    recipe = recipe_for(settings, cached=False)
    with contextlib.redirect_stdout(sys.stderr):
        data = read_source(recipe.data).data
    positions = np.arange(len(data))

    design = build_design(recipe, data)

    def batches_of(images: Images) -> ImageBatches:
        return ImageBatches(
            Split(data, images, positions),
            design,
            settings.steps,
            recipe.augmentation,
            recipe.fit.seed,
        )

    images = open_images(recipe, data)
    batches = batches_of(images)
    model = build_model(
        build_embedder_of(recipe),
        recipe,
        len(data.class_names),
        build_loss(recipe, data, design),
    )
    batch = batches[0]
    _tell_first_step(model, batch)
    _tell_fit(model, batch, settings)
    _tell_step(model, batch, settings)
    del model
    _tell_reading("files", images, batches, design, settings)
    cached = open_images(recipe_for(settings, cached=True), data)
    cached.check()
    _tell_reading("cache", cached, batches_of(cached), design, settings)
    images.close()
    cached.close()
    for name, is_cached in (("files", False), ("cache", True)):
        _tell_end_to_end(name, recipe_for(settings, cached=is_cached), settings)


def recipe_for(settings: Settings, *, cached: bool) -> Recipe:
    """Return the recipe of what is measured."""
    embedder: dict[str, Any] = {
        "image_size": settings.image_size,
        "embedding_dimension": settings.embedding,
    }
    if settings.backbone != "residual":
        embedder["backbone"] = settings.backbone
    return recipe_of(
        {
            "data": {
                "images": settings.folder,
                "test_fraction": 0,
                "validation_fraction": 0,
            },
            "embedder": embedder,
            "loss": {"name": "MultiSimilarityLoss"},
            "images": {
                "crop": "resized",
                "min_scale": settings.min_scale,
                "cache_megabytes": settings.cache_megabytes if cached else 0,
            },
            "batches": {
                "classes_per_batch": settings.classes_per_batch,
                "images_per_class": settings.images_per_class,
            },
            "augmentation": {"flip": True},
            "fit": {
                "steps": settings.steps * (settings.rounds + 1),
                "steps_per_epoch": settings.steps,
                "learning_rate": 1e-4,
                "precision": settings.precision,
            },
        }
    )


_AHEAD = 4  # as `tfdml.batch_designs.image_batches`


class _SameBatch(keras.utils.PyDataset):
    """One batch in host memory, for as many steps as an epoch has."""

    def __init__(self, batch: Any, steps: int) -> None:
        super().__init__(workers=1, use_multiprocessing=False)
        self._batch = batch
        self._steps = steps

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> Any:
        return self._batch


class _OverError(Exception):
    """All epochs were measured."""


class _Epochs(keras.callbacks.Callback):
    """Tell the images per second of each epoch but the first, and what ends it costs.

    The time from the call of the first step to the end of the last, at whose loss `fit`
    looks, counts for all steps but the first: at worst, a rate is that much too low.
    """

    takes_arrays = True  # numbers would have to be waited for

    def __init__(self, phase: str, settings: Settings, *, ends: bool = False) -> None:
        super().__init__()
        self._phase = phase
        self._settings = settings
        self._ends = ends
        self._begin = self._first = self._last = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._begin = time.time()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        now = time.time()
        if batch == 0:
            self._first = now
        self._last = now

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        end = time.time()
        settings = self._settings
        if epoch == 0:
            if self._ends:
                tell(f"{self._phase}, first step", seconds=self._first - self._begin)
            return
        whole = {"begin": self._begin, "end": end, "round": epoch - 1}
        if not self._ends:
            rate = settings.steps * settings.batch / (end - self._begin)
            tell(self._phase, rate=rate, **whole)
            return
        rate = (settings.steps - 1) * settings.batch / (self._last - self._first)
        tell(
            self._phase,
            rate=rate,
            epoch_end_seconds=end - self._last,
            epoch_seconds=end - self._begin,
            **whole,
        )
        if epoch == settings.rounds:
            raise _OverError


def _tell_first_step(model: keras.Model, batch: Any) -> None:
    start = time.perf_counter()
    model.fit(_SameBatch(batch, 1), verbose=0, shuffle=False)
    tell("first step", seconds=time.perf_counter() - start)


def _tell_fit(model: keras.Model, batch: Any, settings: Settings) -> None:
    model.fit(
        _SameBatch(batch, settings.steps),
        epochs=1 + settings.rounds,
        callbacks=[_Epochs("fit", settings)],
        verbose=0,
        shuffle=False,
    )


def _tell_step(model: keras.Model, batch: Any, settings: Settings) -> None:
    run = _step_on_device(model, batch)
    run(2)

    def steps() -> int:
        run(settings.steps)
        return settings.steps * settings.batch

    tell_rounds("step", steps, settings.rounds)


def _step_on_device(model: keras.Model, batch: Any) -> Callable[[int], None]:
    """Return a function that does so many training steps and waits for them."""
    if keras.backend.backend() == "jax":
        import jax

        groups = (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
        # Copies: what is given away is gone.
        state: Any = [[jax.numpy.array(v.value) for v in group] for group in groups]
        data = itertools.repeat(jax.device_put(batch))

        def run(steps: int) -> None:
            nonlocal state
            for _ in range(steps):
                logs, state = model.train_function(tuple(state), data)
            jax.block_until_ready(logs)

        return run
    if keras.backend.backend() != "tensorflow":
        raise SystemExit("The backend of Keras must be tensorflow or jax.")
    import tensorflow as tf

    tensors = tf.nest.map_structure(tf.convert_to_tensor, batch)
    compiled = tf.function(
        lambda *data: model.train_step(data), jit_compile=True, autograph=False
    )

    def run_graph(steps: int) -> None:
        for _ in range(steps):
            logs = compiled(*tensors)
        float(logs["loss"])

    return run_graph


def _tell_reading(
    source: str,
    images: Images,
    batches: ImageBatches,
    design: BatchDesign,
    settings: Settings,
) -> None:
    crops = BatchSequence(design, images.random, ahead=_AHEAD)
    run = steps_of(map(crops.batch, itertools.count()), settings.steps)
    run()
    tell_rounds(f"reading, {source}", run, settings.rounds)
    epochs = iter(range(10**9))

    def whole() -> int:
        batches.begin_at(next(epochs))
        every = (batches[index] for index in range(settings.steps))
        return steps_of(every, settings.steps)()

    whole()
    tell_rounds(f"batches, {source}", whole, settings.rounds)


def _tell_end_to_end(source: str, recipe: Recipe, settings: Settings) -> None:
    epochs = _Epochs(f"end to end, {source}", settings, ends=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(sys.stderr),
        contextlib.suppress(_OverError),
    ):
        fit(recipe, Path(folder) / "run", callbacks=[epochs])


if __name__ == "__main__":
    main()
