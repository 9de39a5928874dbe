"""Read and augment the training batches of a design, for `fit`."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfdml.batch_designs import BatchDesign, BatchSequence
from training.data.split import Split
from training.measure.embed import noted
from training.recipe.recipe import Augmentation

_AHEAD = 1
_NUMBERS_A_BATCH = 1000


class ImageBatches(keras.utils.PyDataset):
    """Batches of images and labels, without TensorFlow's input pipeline.

    Batch s of the run is batch s % len(design) of pass s // len(design) of the design,
    and its random changes depend on the seed and s alone: a run can be taken up at any
    epoch, and does not depend on where epochs are cut.

    Attributes:
        error: What the last batch that could not be read met.

    Args:
        split: The training images.
        design: Which images share a batch.
        steps_per_epoch: Number of batches in an epoch.
        augment: Maps float32 images `[batch, size, size, 3]` of 0 to 255 and the
            number of the batch to other images.
    """

    def __init__(
        self,
        split: Split,
        design: BatchDesign,
        steps_per_epoch: int,
        augment: Callable[[np.ndarray, int], np.ndarray],
    ) -> None:
        super().__init__(workers=1, use_multiprocessing=False)
        self.error: Exception | None = None
        self._split = split
        self._run = BatchSequence(design, self._read, ahead=_AHEAD)
        self._steps_per_epoch = steps_per_epoch
        self._augment = augment
        self._epoch = 0

    def begin_at(self, epoch: int) -> None:
        """Go to the batches of an epoch, counted from 0.

        To be called at the beginning of each epoch. (Keras 3.15 reads batches and calls
        `on_epoch_end` before the first epoch too: it cannot be counted from there.)
        """
        self._epoch = epoch

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return self._steps_per_epoch

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return batch `index` of the epoch: images and labels."""
        with noted(self):
            batch = self._run.batch(self._epoch * self._steps_per_epoch + index)
        return batch

    def _read(self, chosen: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        images = self._split.images.random(self._split.positions[chosen], step)
        images = self._augment(images.astype("float32"), step)
        return images, self._split.data.labels[chosen]

    def positions(self, step: int) -> np.ndarray:
        """Return the places in the split of the images of batch `step`, `[batch]`."""
        return self._run.positions(step)


def build_augmentation(
    settings: Augmentation, seed: int
) -> Callable[[np.ndarray, int], np.ndarray]:
    """Build the random changes of training images from Keras' layers.

    They run beside the training step, not in it: the geometric ones have no XLA
    kernel in TensorFlow.

    Args:
        settings: How strong each change is.
        seed: Seed of the random numbers.

    Returns:
        Function of float32 images `[batch, height, width, 3]` of 0 to 255 and of the
        number of the batch, on which the random numbers depend.
    """
    layers = keras.layers
    white = {"fill_mode": "constant", "fill_value": 255.0}
    zoom, shift, turn = settings.zoom, settings.shift, settings.rotation / 360
    possible = [
        zoom and layers.RandomZoom((-zoom, zoom), (-zoom, zoom), seed=seed, **white),
        shift and layers.RandomTranslation(shift, shift, seed=seed + 1, **white),
        turn and layers.RandomRotation(turn, seed=seed + 2, **white),
        settings.flip and layers.RandomFlip("horizontal", seed=seed + 3),
        settings.brightness
        and layers.RandomBrightness(settings.brightness, seed=seed + 4),
        settings.contrast and layers.RandomContrast(settings.contrast, seed=seed + 5),
        settings.saturation
        and layers.RandomSaturation(_lowered(settings.saturation), seed=seed + 6),
        settings.hue and layers.RandomHue(settings.hue, seed=seed + 7),
        settings.grayscale
        and layers.RandomGrayscale(settings.grayscale, seed=seed + 8),
    ]
    chosen: list[Any] = [layer for layer in possible if layer]
    if not chosen:
        return lambda images, step: images
    run = _compiled(keras.Sequential(chosen))
    generators = [layer.generator.state for layer in chosen]
    seeds = [int(keras.ops.convert_to_numpy(state)[0]) for state in generators]

    def augment(images: np.ndarray, step: int) -> np.ndarray:
        for state, first in zip(generators, seeds, strict=True):
            # A layer counts on from here, a few numbers a batch.
            state.assign([first, _NUMBERS_A_BATCH * step])
        return run(images)

    return augment


def _compiled(model: keras.Model) -> Callable[[np.ndarray], np.ndarray]:
    """Run a model in training mode as one compiled function; eager, it is slow."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        graph = tf.function(lambda x: model(x, training=True), reduce_retracing=True)
        return lambda images: graph(images).numpy()
    if keras.backend.backend() == "jax":
        import jax

        @jax.jit
        def augmented(state: list, images: np.ndarray) -> np.ndarray:
            return model.stateless_call([], state, images, training=True)[0]

        def augment(images: np.ndarray) -> np.ndarray:
            if not model.built:
                model.build(images.shape)
            state = [variable.value for variable in model.non_trainable_variables]
            return np.asarray(augmented(state, images))

        return augment
    return lambda images: keras.ops.convert_to_numpy(model(images, training=True))


def _lowered(strength: float) -> tuple[float, float]:
    """Return the range for RandomSaturation, where 0.5 changes nothing and 0 is gray.

    It is lowered only: Keras 3.15 lets a raised saturation leave the color range.
    """
    return (0.5 * (1 - strength), 0.5)
