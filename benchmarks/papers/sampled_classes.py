"""Train on some classes at a time, drawn anew at each epoch.

Hong et al., section 6.5, control the induced lambda so: the number of negatives that
the contrastive loss compares with each positive is the number of classes less one.
"""

import dataclasses
from collections.abc import Sequence

import keras
import numpy as np

from training.data.split import Split
from training.recipe.recipe import Recipe
from training.run.batches import ImageBatches
from training.run.build_batches import build_design, build_loss


def fit_on_samples(
    model: keras.Model,
    recipe: Recipe,
    trained: Split,
    classes: int,
    callbacks: Sequence[keras.callbacks.Callback],
) -> dict[str, list[float]]:
    """Train a compiled model, with the batches and the loss of each sample of classes.

    The loss knows the sizes of the sampled classes alone, so that importance weights
    are those of training on them. A step is compiled anew at each epoch.

    Args:
        model: The model, whose optimizer goes on from epoch to epoch.
        recipe: Its recipe, with groups as the batch design.
        trained: All training images.
        classes: How many classes a sample has.
        callbacks: Of each epoch; those that end the training, end it.

    Returns:
        The metrics of each epoch by their names.
    """
    settings = recipe.fit
    history: dict[str, list[float]] = {}
    for epoch in range(settings.epochs or 0):  # None: by minutes, which no study has
        some = sample(trained, classes, recipe.batches.images_per_class, epoch)
        design = build_design(recipe, some.data)
        loss = build_loss(recipe, some.data, design)
        model.compile(model.optimizer, loss, jit_compile=model.jit_compile)
        changes = recipe.augmentation, settings.seed
        batches = ImageBatches(some, design, settings.epoch_steps, *changes)
        batches.begin_at(epoch)
        found = model.fit(
            batches,
            initial_epoch=epoch,
            epochs=epoch + 1,
            callbacks=list(callbacks),
            shuffle=False,
            verbose=0,
        ).history
        for name, values in found.items():
            history.setdefault(name, []).extend(values)
        if model.stop_training:
            break
    return history


def sample(trained: Split, classes: int, least: int, epoch: int) -> Split:
    """Return the images of so many classes of at least so many images.

    Raises:
        ValueError: There are fewer classes.
    """
    counts = np.bincount(trained.data.labels)
    large = np.flatnonzero(counts >= least)
    if classes > len(large):
        raise ValueError(
            f"`classes` must be at most {len(large)}, the training classes of {least} "
            f"images or more. Received: {classes}."
        )
    chosen = np.random.default_rng([0, epoch]).choice(large, classes, replace=False)
    places = np.flatnonzero(np.isin(trained.data.labels, chosen))
    return dataclasses.replace(
        trained,
        data=trained.data.select(places),
        positions=trained.positions[places],
    )
