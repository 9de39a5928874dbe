"""Choose what mines the batches of a run with its network."""

import keras

from tfdml.batch_designs import BatchDesign, HierarchyBatches, NPairBatches

from ..data.split import Split
from ..recipe.recipe import Recipe
from .hard_classes import HardClassEpochs, HardClassMining
from .hierarchy import HierarchyEpochs, HierarchyMining
from .mining import Mining


def mined(
    recipe: Recipe,
    design: BatchDesign,
    train: Split,
    embedder: keras.Model,
) -> tuple[BatchDesign, list[Mining]]:
    """Return the design as it is drawn, and the callbacks that it needs."""
    steps, about = recipe.fit.epoch_steps, recipe.batches
    if isinstance(design, NPairBatches) and about.hard_classes:
        hard = HardClassEpochs(design, steps)
        return hard, [HardClassMining(hard, train, embedder)]
    if isinstance(design, HierarchyBatches):
        with_targets = recipe.loss.name == "HierarchicalTripletLoss"
        near = HierarchyEpochs(design, steps, with_targets=with_targets)
        return near, [HierarchyMining(near, train, embedder, levels=about.levels)]
    return design, []
