"""Time the losses of pytorch-metric-learning. Run by its own interpreter."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from pytorch_metric_learning import distances, losses, miners, regularizers

from benchmarks.batches import (
    CENTERS,
    CLASS_SIZE,
    MEMORY,
    PROXIES,
    labels_of,
    random_rows,
)
from benchmarks.peer_worker import measure

SQUARED = distances.LpDistance(power=2)


def _memory(batch: int, dimension: int) -> losses.CrossBatchMemory:
    loss = losses.CrossBatchMemory(losses.ContrastiveLoss(), dimension, MEMORY)
    loss.embedding_memory = torch.from_numpy(random_rows(MEMORY, dimension, seed=1))
    loss.label_memory = torch.from_numpy(labels_of(MEMORY)).long()
    loss.has_been_filled = True
    return loss


def _learned_margin(batch: int, dimension: int) -> losses.MarginLoss:
    classes = int(labels_of(batch).max()) + 1
    return losses.MarginLoss(learn_beta=True, num_classes=classes)


def _soft_triple(batch: int, dimension: int, **options: Any) -> losses.SoftTripleLoss:
    return losses.SoftTripleLoss(
        PROXIES, dimension, CENTERS, la=20, gamma=0.1, **options
    )


# Each maps a batch size and a dimension to a loss, or to a loss and a miner.
CASES: dict[str, Callable[[int, int], Any]] = {
    "ContrastiveLoss": lambda b, d: losses.ContrastiveLoss(),
    "ContrastiveLoss(CosineSimilarity)": lambda b, d: losses.ContrastiveLoss(
        pos_margin=1, neg_margin=0.5, distance=distances.CosineSimilarity()
    ),
    "TripletMarginLoss": lambda b, d: losses.TripletMarginLoss(0.2, distance=SQUARED),
    "TripletMarginLoss + TripletMarginMiner(semihard)": lambda b, d: (
        losses.TripletMarginLoss(0.2, distance=SQUARED),
        miners.TripletMarginMiner(0.2, "semihard", distance=SQUARED),
    ),
    "TripletMarginLoss + BatchHardMiner": lambda b, d: (
        losses.TripletMarginLoss(0.2, distance=SQUARED),
        miners.BatchHardMiner(),
    ),
    "TripletMarginLoss + DistanceWeightedMiner": lambda b, d: (
        losses.TripletMarginLoss(0.2, distance=SQUARED),
        miners.DistanceWeightedMiner(),
    ),
    "MarginLoss": lambda b, d: losses.MarginLoss(),
    "MarginLoss + DistanceWeightedMiner": lambda b, d: (
        losses.MarginLoss(),
        miners.DistanceWeightedMiner(),
    ),
    "MarginLoss(learn_beta)": _learned_margin,
    "LiftedStructureLoss": lambda b, d: losses.LiftedStructureLoss(),
    "GeneralizedLiftedStructureLoss": lambda b, d: (
        losses.GeneralizedLiftedStructureLoss()
    ),
    "NPairsLoss": lambda b, d: losses.NPairsLoss(),
    "AngularLoss": lambda b, d: losses.AngularLoss(alpha=45),
    "NCALoss": lambda b, d: losses.NCALoss(),
    "SupConLoss": lambda b, d: losses.SupConLoss(),
    "NTXentLoss": lambda b, d: losses.NTXentLoss(temperature=0.1),
    "CircleLoss": lambda b, d: losses.CircleLoss(),
    "HistogramLoss": lambda b, d: losses.HistogramLoss(n_bins=100),
    "FastAPLoss": lambda b, d: losses.FastAPLoss(),
    "SmoothAPLoss": lambda b, d: losses.SmoothAPLoss(),
    "MultiSimilarityLoss": lambda b, d: losses.MultiSimilarityLoss(),
    "MultiSimilarityLoss + MultiSimilarityMiner": lambda b, d: (
        losses.MultiSimilarityLoss(),
        miners.MultiSimilarityMiner(),
    ),
    "ProxyAnchorLoss": lambda b, d: losses.ProxyAnchorLoss(PROXIES, d),
    "ProxyNCALoss": lambda b, d: losses.ProxyNCALoss(PROXIES, d, softmax_scale=3),
    "SoftTripleLoss": _soft_triple,
    "SoftTripleLoss + SparseCentersRegularizer": partial(
        _soft_triple,
        weight_regularizer=regularizers.SparseCentersRegularizer(PROXIES, CENTERS),
    ),
    "ArcFaceLoss": lambda b, d: losses.ArcFaceLoss(PROXIES, d),
    "CosFaceLoss": lambda b, d: losses.CosFaceLoss(PROXIES, d),
    "CrossBatchMemory(ContrastiveLoss)": _memory,
}


def eager(case: str, batch: int, dimension: int) -> Callable[[], None]:
    made = CASES[case](batch, dimension)
    loss, miner = made if isinstance(made, tuple) else (made, None)
    rows = torch.from_numpy(random_rows(batch, dimension)).requires_grad_()
    classes = PROXIES if case.startswith(("Proxy", "Soft", "Arc", "Cos")) else None
    size = 2 if case == "NPairsLoss" else CLASS_SIZE
    labels = torch.from_numpy(labels_of(batch, classes, size)).long()

    def function() -> None:
        rows.grad = None
        loss.zero_grad()
        indices = None if miner is None else miner(rows, labels)
        loss(rows, labels, indices).backward()

    return function


if __name__ == "__main__":
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    measure({"eager": eager})
