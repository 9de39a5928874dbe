"""Read batches of images from files, for `fit`."""

from collections.abc import Sequence
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike

from tfdml.batch_designs._design import BatchDesign
from tfdml.batch_designs._sequence import BatchSequence
from tfdml.images import ImageReader, RandomChanges, View

_AHEAD = 4  # batches: enough for no process to wait for the slowest of a batch


def image_batches(
    images: Sequence[str | PathLike[str]] | np.ndarray,
    labels: ArrayLike,
    design: BatchDesign,
    view: View,
    *,
    crop: str = "resized",
    min_scale: float = 0.16,
    changes: RandomChanges | None = None,
    seed: int = 0,
    cache_bytes: int = 2**30,
    scaled_decoding: bool = False,
    workers: int | None = None,
    steps_per_epoch: int | None = None,
    start_step: int = 0,
) -> BatchSequence:
    """Read the batches of a design from image files, on all cores.

    Batches are uint8 images `[batch_size, image_size, image_size, 3]` of 0 to 255 and
    their labels; the model casts and scales them on its device. Four batches are read
    ahead. The random crop of an image depends only on the seed, the number of the batch
    and the image's position in it, not on the number of processes.

    Args:
        images: Paths of files, or a uint8 array `[N, height, width, 3]`.
        labels: Their labels, numbers `[N, ...]`.
        design: Which images share a batch.
        view: What the network sees of an image.
        crop: How images are cropped at random: "none", "position" or "resized", see
            `tfdml.images.RandomView`.
        min_scale: Smallest share of the area with `crop` = "resized", above 0 and at
            most 1.
        changes: Random changes of the images. Then a batch is ((images, numbers),
            labels), for a model that begins with `tfdml.layers.ImageChanges`.
        seed: Seed of the random crops and changes, at least 0.
        cache_bytes: Maximum bytes of images to keep in memory; 0 keeps none.
        scaled_decoding: As for `tfdml.images.ImageReader`.
        workers: How many processes read, see `tfdml.images.ImageReader`.
        steps_per_epoch: Number of batches in an epoch; `None` for a pass of the design.
        start_step: How many batches of the run are done already.

    Returns:
        The batches. Pass `shuffle=False` to `fit`: batches in any order other than that
        of the run are not read ahead.

    Raises:
        ValueError: An argument is out of range, or the design is for another number of
            images.

    Example:
        >>> from tfdml.batch_designs import GroupBatches
        >>> images = np.zeros((6, 30, 40, 3), "uint8")
        >>> design = GroupBatches([0, 0, 1, 1, 2, 2], 2, 2)
        >>> batches = image_batches(images, [0, 0, 1, 1, 2, 2], design, View(24))
        >>> batches[0][0].shape, batches[0][0].dtype
        ((4, 24, 24, 3), dtype('uint8'))
    """
    if len(images) != design.images:
        raise ValueError(
            f"`images` must be the {design.images} images of the design. "
            f"Received: {len(images)}."
        )
    reader = ImageReader(
        images,
        view,
        crop=crop,
        min_scale=min_scale,
        seed=seed,
        cache_bytes=cache_bytes,
        scaled_decoding=scaled_decoding,
        workers=workers,
    )
    drawn = changes or RandomChanges()

    def changed(positions: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        numbers = drawn.numbers(seed, step, len(positions))
        return reader.random(positions, step), numbers

    return BatchSequence(
        design,
        changed if drawn else reader.random,
        labels,
        steps_per_epoch=steps_per_epoch,
        start_step=start_step,
        ahead=_AHEAD,
    )
