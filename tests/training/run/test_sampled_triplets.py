"""How many triplets the batches held."""

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest

from training.run.progress import SampledTriplets, triplets_of


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_triplets_equal_their_enumeration(classes):
    labels = np.random.default_rng(classes).integers(0, classes, 9)
    expected = sum(
        labels[a] == labels[p] != labels[n] for a, p, n in permutations(range(9), 3)
    )
    assert triplets_of(labels) == expected


class Batches:
    """Two batches an epoch, each with more positives than the one before."""

    def __len__(self):
        return 2

    def positions(self, step):
        return np.arange(step + 3)


def test_epochs_add_up_also_after_an_interruption():
    labels = np.array([0, 0, 1, 0, 1, 0, 1, 1])
    of_step = [triplets_of(labels[: step + 3]) for step in range(4)]
    progress = SimpleNamespace(history={})
    logs = {}
    SampledTriplets(Batches(), labels, progress).on_epoch_end(0, logs)
    assert logs["triplets"] == sum(of_step[:2])
    whole = logs["triplets"]
    progress.history = {"loss": [1.0]}  # of a run that began before they were counted
    SampledTriplets(Batches(), labels, progress).on_epoch_end(1, logs)
    assert logs["triplets"] == sum(of_step)
    progress.history = {"triplets": [whole]}
    SampledTriplets(Batches(), labels, progress).on_epoch_end(1, logs)
    assert logs["triplets"] == sum(of_step)
