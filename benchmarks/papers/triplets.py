"""Count the triplets that a loss samples, as in Figure 4 of Lu et al."""

from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.papers.runs import Tables
from training.run.progress import triplets_of

WAYS = ("all", "pair", "anchor", "misplaced")
"""Of every triplet of a batch, or one a positive pair, an anchor, a misplaced pair."""


def sampled_triplets(
    labels: Iterable[np.ndarray], misplaced: float | None = None
) -> dict[str, int]:
    """Count the triplets of some batches, each way that a loss may sample them.

    Args:
        labels: The labels of each batch, `[B]`.
        misplaced: Mean number of misplaced pairs of an anchor, |P| = |N|; None where
            the loss has none.
    """
    counts = dict.fromkeys(WAYS, 0)
    for batch in labels:
        sizes = np.unique(batch, return_counts=True)[1]
        counts["all"] += triplets_of(batch)
        counts["pair"] += int((sizes * (sizes - 1)).sum())
        counts["anchor"] += len(batch)
    if misplaced is None:
        del counts["misplaced"]
    else:
        counts["misplaced"] = round(misplaced * counts["anchor"])
    return counts


def running_totals(epochs: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """Add up the counts of the epochs until each one's end."""
    totals: list[dict[str, int]] = []
    for counts in epochs:
        before = totals[-1] if totals else {}
        totals.append({way: before.get(way, 0) + n for way, n in counts.items()})
    return totals


def most_triplets_a_step(sampled: str, tables: Tables) -> int:
    """Return how many triplets a loss samples of a batch, or may sample at most.

    For results in which they were not counted.

    Args:
        sampled: One of `WAYS`. An anchor of top-k precision has at most as many
            misplaced pairs as k and as its positives.
        tables: The tables of a recipe, whose batches have the same number of images of
            each class.
    """
    batches = tables["batches"]
    classes, images = batches["classes_per_batch"], batches["images_per_class"]
    anchors = classes * images
    match sampled:
        case "all":
            return anchors * (images - 1) * (anchors - images)
        case "pair":
            return anchors * (images - 1)
        case "misplaced":
            return anchors * min(tables["loss"]["k"], images - 1)
        case _:
            return anchors
