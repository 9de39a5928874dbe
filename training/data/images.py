"""Read and cache the images of a data set, as the network sees them."""

from typing import Any

import numpy as np

from tfdml.images import ImageReader, View

from ..recipe.recipe import Recipe
from .contents import shared_images
from .data_set import DataSet


class Images(ImageReader):
    """The images of a data set in one view, read when they are asked for.

    Args:
        data: Which images.
        view: What the network sees of them.
        options: As for `tfdml.images.ImageReader`.
    """

    def __init__(self, data: DataSet, view: View, **options: Any) -> None:
        super().__init__(data.images, view, boxes=data.boxes, **options)
        self.data = data


def open_images(recipe: Recipe, data: DataSet) -> Images:
    """Open the images of a data set as a recipe shows them; none is read yet."""
    about = recipe.images
    return Images(
        data,
        recipe.view,
        crop=about.crop,
        min_scale=about.min_scale,
        seed=recipe.fit.seed,
        cache_bytes=about.cache_megabytes * 2**20,
        max_pixels=about.max_pixels,
        scaled_decoding=about.scaled_decoding,
        workers=None if about.workers < 0 else about.workers,
    )


def find_readable(
    images: Images, *, skip_unreadable: bool
) -> tuple[np.ndarray, list[str]]:
    """Read every image once; print what is broken, and what is in several classes.

    Args:
        images: The images.
        skip_unreadable: Whether broken files are skipped.

    Returns:
        The positions of the others, and a message for each broken file.

    Raises:
        UnreadableImageError: A file is broken or gone and `skip_unreadable` is False.
        OSError, MemoryError: The machine cannot read a file.
    """
    failures = images.check(skip_unreadable=skip_unreadable)
    skipped = [message for _, message in failures]
    if skipped:
        print(f"Skipped {len(skipped)} unreadable files:", *skipped, sep="\n  ")
    if shared := shared_images(images.data, images.contents):
        print(shared)
    broken = [position for position, _ in failures]
    return np.delete(np.arange(len(images)), broken), skipped
