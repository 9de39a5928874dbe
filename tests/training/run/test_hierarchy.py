"""Batches by a tree of the classes, which the loss gets with the labels."""

import numpy as np
import pytest

from tests.support.small_images import write_shapes
from tests.support.training_runs import RECIPE, fit
from tests.training.run.test_resume import assert_same_run, stop_fit
from tfdml.batch_designs import ClassHierarchy, HierarchyBatches
from training.recipe.recipe import RecipeError, recipe_of
from training.run.hierarchy import HierarchyEpochs, HierarchyMining

pytestmark = pytest.mark.backend

LABELS = np.repeat(np.arange(8), 3)
TREES = [
    ClassHierarchy(np.random.default_rng(s).normal(size=(24, 4)), LABELS, levels=3)
    for s in range(3)
]


@pytest.mark.parametrize("with_targets", [True, False])
def test_batch_has_the_targets_of_the_tree_of_its_epoch(with_targets):
    design = HierarchyBatches(LABELS, 2, 2, 2)
    epochs = HierarchyEpochs(design, 5, with_targets=with_targets)
    for epoch, tree in enumerate(TREES):
        epochs.begin(epoch, tree)
        for place, batch in enumerate(epochs.batches(epoch)):
            labels = LABELS[batch]
            received = epochs.targets(5 * epoch + place, labels)
            expected = tree.targets(labels) if with_targets else labels
            np.testing.assert_array_equal(received, expected)
    # A reader may still be at the epoch before.
    again = epochs.targets(9, LABELS[:4])
    expected = TREES[1].targets(LABELS[:4]) if with_targets else LABELS[:4]
    np.testing.assert_array_equal(again, expected)


def test_first_batch_can_be_looked_at_in_a_run_that_is_taken_up():
    epochs = HierarchyEpochs(HierarchyBatches(LABELS, 2, 2, 2), 5, with_targets=True)
    epochs.begin(1, TREES[1])
    labels = LABELS[epochs.batches(0)[0]]
    np.testing.assert_array_equal(epochs.targets(0, labels), TREES[1].targets(labels))


def test_tree_is_made_of_the_embeddings():
    design = HierarchyEpochs(HierarchyBatches(LABELS, 2, 2, 2), 5, with_targets=True)
    mining = HierarchyMining(design, None, None, levels=3)
    rows = np.random.default_rng(0).normal(size=(24, 4))
    received = mining.found(rows, LABELS)
    np.testing.assert_array_equal(received.nodes, TREES[0].nodes)


def test_loss_without_a_tree_is_refused():
    tables = {"data": {"images": "x"}, "loss": {"name": "HierarchicalTripletLoss"}}
    with pytest.raises(RecipeError, match='`design` must be "hierarchy" with Hierarch'):
        recipe_of(tables)


LOSSES = ("HierarchicalTripletLoss", "TripletLoss")
FULL = pytest.mark.full


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("hierarchy")
    write_shapes(root / "images", classes=10, images_per_class=4)
    recipe = RECIPE.format(images=root / "images").replace(
        "images_per_class = 3\nclasses_per_batch = 4",
        "design = 'hierarchy'\nanchors = 1\nclasses_per_anchor = 3\n"
        "images_per_class = 3\nlevels = 4",
    )
    for name in LOSSES:
        (root / f"{name}.toml").write_text(f"{recipe}[loss]\nname = '{name}'\n")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("name", [LOSSES[0], pytest.param(LOSSES[1], marks=FULL)])
def test_losses_train_in_these_batches(folder, name):
    assert fit(folder / f"{name}.toml", folder / name) == 0


@pytest.mark.full
def test_interrupted_run_makes_the_same_trees(folder, tmp_path):
    recipe, whole, run = (
        folder / f"{LOSSES[0]}.toml",
        tmp_path / "whole",
        tmp_path / "run",
    )
    assert fit(recipe, whole) == 0
    where = "training.run.progress:Progress"
    stop_fit(recipe, run, where, "on_train_batch_end", 9, "after")
    assert fit(recipe, run) == 0
    assert_same_run(run, whole)
