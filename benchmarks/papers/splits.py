"""Cut a data set into the splits that a run trains on and measures."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from training.data.data_set import DataSet
from training.data.images import Images
from training.data.split import Split
from training.recipe.recipe import Recipe
from training.run.build_batches import label_distance_of


def splits_of(
    recipe: Recipe,
    data: DataSet,
    names: Sequence[str],
    thin: float = 0.0,
    noise: float = 0.0,
) -> list[Split]:
    """Return some splits of a data set.

    Args:
        recipe: How images are seen.
        data: The images.
        names: Which splits, in this order.
        thin: How unequal the sizes of the training classes are made; see `thinned`.
        noise: The share of training images with a wrong label; see `mislabeled`.
    """
    images = Images(data, recipe.view, seed=recipe.fit.seed, workers=0)
    distance = label_distance_of(recipe)
    splits = []
    for name in names:
        places = np.flatnonzero(data.splits == name)
        if name == "train" and thin:
            places = places[thinned(data.labels[places], thin)]
        selected = data.select(places)
        if name == "train" and noise:
            labels = mislabeled(selected.labels, noise)
            selected = dataclasses.replace(selected, labels=labels)
        splits.append(Split(selected, images, places, distance))
    return splits


def thinned(labels: np.ndarray, gamma: float) -> np.ndarray:
    """Choose images so that class sizes become unequal, as Hong et al., section 6.4.

    From each class a share is removed that is drawn uniformly from 0 to gamma, always
    the same one; at least 2 images stay.

    Args:
        labels: Class ids, integers `[N]`.
        gamma: From 0, which keeps all, to 1.

    Returns:
        The positions that stay, in ascending order, int64 `[M]`.
    """
    random = np.random.default_rng(0)
    chosen = []
    for name in np.unique(labels):
        images = random.permutation(np.flatnonzero(labels == name))
        removed = round(random.uniform() * gamma * len(images))
        chosen.append(images[: max(2, len(images) - removed)])
    return np.sort(np.concatenate(chosen))


def mislabeled(labels: np.ndarray, share: float) -> np.ndarray:
    """Give a share of the images the label of another class, always the same ones.

    Args:
        labels: Class ids, integers `[N]`, of at least two classes.
        share: From 0 to 1.

    Returns:
        The labels, `[N]`.
    """
    random = np.random.default_rng(0)
    chosen = random.permutation(len(labels))[: round(share * len(labels))]
    classes, places = np.unique(labels, return_inverse=True)
    # A step around the circle of classes that never ends where it began.
    places[chosen] += random.integers(1, len(classes), len(chosen))
    return classes[places % len(classes)]
