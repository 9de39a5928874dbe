"""Cut a data set into the splits that a run trains on and measures."""

from collections.abc import Sequence

import numpy as np

from training.data.data_set import DataSet
from training.data.images import Images
from training.data.split import Split
from training.recipe.recipe import Recipe
from training.run.build_batches import label_distance_of


def splits_of(
    recipe: Recipe, data: DataSet, names: Sequence[str], thin: float = 0.0
) -> list[Split]:
    """Return some splits of a data set.

    Args:
        recipe: How images are seen.
        data: The images.
        names: Which splits, in this order.
        thin: How unequal the sizes of the training classes are made; see `thinned`.
    """
    images = Images(data, recipe.view, seed=recipe.fit.seed, workers=0)
    distance = label_distance_of(recipe)
    splits = []
    for name in names:
        places = np.flatnonzero(data.splits == name)
        if name == "train" and thin:
            places = places[thinned(data.labels[places], thin)]
        splits.append(Split(data.select(places), images, places, distance))
    return splits


def thinned(labels: np.ndarray, gamma: float) -> np.ndarray:
    """Choose images so that class sizes become unequal.

    The classes are put into a random order, always the same. Of L classes the one at
    place r keeps the share 1 - gamma r / (L - 1) of its images, at least 2.

    Args:
        labels: Class ids, integers `[N]`.
        gamma: 0 keeps all; with 1 the last class keeps 2.

    Returns:
        The positions that stay, in ascending order, int64 `[M]`.
    """
    random = np.random.default_rng(0)
    classes = random.permutation(np.unique(labels))
    chosen = []
    for place, name in enumerate(classes):
        images = random.permutation(np.flatnonzero(labels == name))
        share = 1 - gamma * place / max(len(classes) - 1, 1)
        chosen.append(images[: max(2, round(share * len(images)))])
    return np.sort(np.concatenate(chosen))
