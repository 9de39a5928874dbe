"""Record what pytorch-metric-learning 2.9.0 computes, into golden_pml.json beside it.

It runs in an environment of its own:

    pip install pytorch-metric-learning==2.9.0 torch==2.13.0
    python tests/goldens/make_golden_pml.py

Each case holds the name of a loss as docs/migration/pytorch-metric-learning.md writes
it, a batch and the value, in float64. `proxies` are the weights of losses that have
some, a row for each proxy.
"""

import json
from pathlib import Path

import numpy as np
import torch
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers

FOLDER = Path(__file__).parent
CLASSES = 4
CENTERS = 2
DIMENSION = 5

BATCHES = {
    "equal": [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3],
    "unequal": [0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3],
    "pairs": [0, 0, 1, 1, 2, 2, 3, 3],
    "unit": [0, 0, 0, 1, 1, 2, 2, 2],
}
ONLY = {
    # Pairs of a class are drawn by lot there if it has more than two rows.
    "NPairsLoss()": ["pairs"],
    # Negatives are not normalized there.
    "AngularLoss(40)": ["unit"],
}

SQUARED = distances.LpDistance(power=2)
COSINE = distances.CosineSimilarity()
MEAN = reducers.MeanReducer()
HARD = miners.BatchHardMiner()

CASES = {
    "TripletMarginLoss(0.2)": losses.TripletMarginLoss(0.2),
    "TripletMarginLoss(0.2) + MeanReducer()": (
        losses.TripletMarginLoss(0.2, reducer=MEAN)
    ),
    "TripletMarginLoss(0.2, distance=LpDistance(power=2))": (
        losses.TripletMarginLoss(0.2, distance=SQUARED)
    ),
    "TripletMarginLoss(0.2, distance=CosineSimilarity())": (
        losses.TripletMarginLoss(0.2, distance=COSINE)
    ),
    "TripletMarginLoss(0.2) + MeanReducer() + BatchHardMiner()": (
        losses.TripletMarginLoss(0.2, reducer=MEAN),
        HARD,
    ),
    "TripletMarginLoss(0, smooth_loss=True) + MeanReducer() + BatchHardMiner()": (
        losses.TripletMarginLoss(0, smooth_loss=True, reducer=MEAN),
        HARD,
    ),
    'TripletMarginLoss(0.2) + TripletMarginMiner(0.2, "semihard")': (
        losses.TripletMarginLoss(0.2),
        miners.TripletMarginMiner(0.2, "semihard"),
    ),
    "LiftedStructureLoss(neg_margin=1)": losses.LiftedStructureLoss(neg_margin=1),
    "GeneralizedLiftedStructureLoss(neg_margin=1)": (
        losses.GeneralizedLiftedStructureLoss(neg_margin=1)
    ),
    "NPairsLoss()": losses.NPairsLoss(),
    "AngularLoss(40)": losses.AngularLoss(40),
    "NCALoss(1)": losses.NCALoss(1),
    "SupConLoss(0.1)": losses.SupConLoss(0.1),
    "NTXentLoss(0.07)": losses.NTXentLoss(0.07),
    "CircleLoss(m=0.4, gamma=80)": losses.CircleLoss(m=0.4, gamma=80),
    "HistogramLoss(n_bins=100)": losses.HistogramLoss(n_bins=100),
    "FastAPLoss(10)": losses.FastAPLoss(10),
    "MultiSimilarityLoss(alpha=2, beta=50, base=0.5)": (
        losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5)
    ),
    "MultiSimilarityLoss() + MultiSimilarityMiner(0.1)": (
        losses.MultiSimilarityLoss(),
        miners.MultiSimilarityMiner(0.1),
    ),
    "ArcFaceLoss(C, D, margin=28.6, scale=64)": losses.ArcFaceLoss(CLASSES, DIMENSION),
    "CosFaceLoss(C, D, margin=0.35, scale=64)": losses.CosFaceLoss(CLASSES, DIMENSION),
    "NormalizedSoftmaxLoss(C, D, temperature=0.05)": (
        losses.NormalizedSoftmaxLoss(CLASSES, DIMENSION, temperature=0.05)
    ),
    "ProxyNCALoss(C, D, softmax_scale=3)": (
        losses.ProxyNCALoss(CLASSES, DIMENSION, softmax_scale=3)
    ),
    "ProxyAnchorLoss(C, D, margin=0.1, alpha=32)": (
        losses.ProxyAnchorLoss(CLASSES, DIMENSION)
    ),
    "SoftTripleLoss(C, D, K, la=20, gamma=0.1, margin=0.01)": (
        losses.SoftTripleLoss(CLASSES, DIMENSION, CENTERS)
    ),
    "SoftTripleLoss(C, D, K) + SparseCentersRegularizer(C, K)": (
        losses.SoftTripleLoss(
            CLASSES,
            DIMENSION,
            CENTERS,
            weight_regularizer=regularizers.SparseCentersRegularizer(CLASSES, CENTERS),
        )
    ),
}


def main():
    """Write the file."""
    torch.manual_seed(0)
    generator = np.random.default_rng(21)
    batches, cases = {}, []
    for name, labels in BATCHES.items():
        centers = generator.normal(size=(CLASSES, DIMENSION))
        rows = centers[labels] + generator.normal(size=(len(labels), DIMENSION))
        if name == "unit":
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        batches[name] = {"labels": labels, "rows": rows.tolist()}
    for case, made in CASES.items():
        loss, miner = made if isinstance(made, tuple) else (made, None)
        loss.double()
        weights = [w.detach().numpy() for w in loss.parameters()]
        proxies = [w if w.shape[1] == DIMENSION else w.T for w in weights]
        for name, batch in batches.items():
            if name not in ONLY.get(case, BATCHES):
                continue
            rows = torch.tensor(batch["rows"], dtype=torch.float64)
            labels = torch.tensor(batch["labels"])
            mined = None if miner is None else miner(rows, labels)
            record = {
                "loss": case,
                "batch": name,
                "value": loss(rows, labels, mined).item(),
            }
            if proxies:
                record["proxies"] = proxies[0].tolist()
            cases.append(record)
    text = json.dumps({"classes": CLASSES, "batches": batches, "cases": cases})
    (FOLDER / "golden_pml.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
