"""Read the images of a run, and split them."""

from tfdml.messages import cut

from ..data.data_set import SPLITS
from ..data.images import find_readable, open_images
from ..data.source import Source, read_source
from ..data.split import Split
from ..recipe.recipe import Recipe
from .build_batches import label_distance_of


def classes_of(splits: dict[str, Split]) -> dict[str, list[str]] | None:
    """Return the classes of each split; None with continuous labels."""
    if splits["train"].data.is_continuous:
        return None
    return {name: list(split.data.class_names) for name, split in splits.items()}


def read_splits(recipe: Recipe) -> tuple[Source, dict[str, Split], list[str]]:
    """Read every image once, and split them.

    Args:
        recipe: Where the images are, and how they are split.

    Returns:
        What was read, the images by split, and a message for each file that was
        skipped.

    Raises:
        ValueError: No image trains, or those of one class alone.
        UnreadableImageError: A file is broken, and the recipe does not skip it.
    """
    source = read_source(recipe.data)
    for note in source.notes:
        print(note)
    if not (source.data.splits == "train").any():
        raise ValueError(
            f'{cut(recipe.data.images)} has no image whose `split` is "train".'
        )
    images = open_images(recipe, source.data)
    readable, skipped = find_readable(
        images, skip_unreadable=recipe.data.skip_unreadable
    )
    splits = {}
    for split in SPLITS:
        positions = readable[source.data.splits[readable] == split]
        selected = source.data.select(positions)
        distance = label_distance_of(recipe)
        splits[split] = Split(selected, images, positions, distance)
    train = splits["train"].data
    if not train.is_continuous and len(train.class_names) < 2:
        raise ValueError(
            "At least 2 training classes must have an image that can be read. "
            f"Received: {len(train.class_names)}, after {len(skipped)} files were "
            "skipped."
        )
    return source, splits, skipped
