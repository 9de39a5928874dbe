"""Draw the figures of the pages: which pairs a loss moves, and how strongly.

    python docs/figures.py            # into docs/losses/figures

Every figure is a function of a fixed batch, so a run gives the same files again. It
needs TensorFlow and matplotlib.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfdml import losses
from tfdml.figure_style import save_small
from tfdml.layers import as_similarities
from tfdml.losses import PairWeightedLoss, binlifted_weights
from tfdml.plots import Panel, plot_pair_weights, plot_weights

FOLDER = Path(__file__).parent / "losses" / "figures"
CLASSES, IMAGES = 12, 4
LABELS = np.repeat(np.arange(CLASSES), IMAGES)


def embeddings(dimension: int = 8) -> np.ndarray:
    """Return a batch of 12 classes of 4 images, half way through training."""
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(CLASSES, dimension))
    return centers[LABELS] + 0.8 * generator.normal(size=(len(LABELS), dimension))


def pair_figure(*chosen: losses.PairLoss) -> Any:
    """Draw the weights of all pairs of the batch."""
    return plot_pair_weights(chosen, LABELS, embeddings())


def top_k() -> Any:
    """Draw top-k precision for three k."""
    return pair_figure(
        *(
            losses.TopKPrecisionLoss(k, name=f"TopKPrecisionLoss(k={k})")
            for k in (1, 3, 5)
        )
    )


def contrastive() -> Any:
    """Draw the contrastive losses, with one mean over all pairs and with two."""
    return pair_figure(
        losses.ContrastiveLoss(name="ContrastiveLoss(margin=1)"),
        losses.ContrastiveLoss(
            separate_means=True, name="ContrastiveLoss(separate_means=True)"
        ),
        losses.CosineContrastiveLoss(name="CosineContrastiveLoss(threshold=0.5)"),
    )


def triplet() -> Any:
    """Draw the triplet and margin losses."""
    return pair_figure(
        losses.TripletLoss(name="TripletLoss(margin=0.2)"),
        losses.SemiHardTripletLoss(0.2, name="SemiHardTripletLoss(margin=0.2)"),
        losses.SemiHardWindowTripletLoss(name="SemiHardWindowTripletLoss(margin=0.2)"),
        losses.HardTripletLoss(name="HardTripletLoss(margin=0.2)"),
        losses.DistanceWeightedTripletLoss(
            dimension=8, name="DistanceWeightedTripletLoss"
        ),
        losses.MarginLoss(name="MarginLoss(alpha=0.2, beta=1.2)"),
    )


def similarity() -> Any:
    """Draw the losses that weigh pairs by similarity."""
    return pair_figure(
        losses.MultiSimilarityLoss(name="MultiSimilarityLoss"),
        losses.BinomialDevianceLoss(name="BinomialDevianceLoss"),
        losses.HistogramLoss(0.1, name="HistogramLoss(bin_width=0.1)"),
    )


def softmax() -> Any:
    """Draw the softmax losses."""
    return pair_figure(
        losses.NCALoss(10.0, name="NCALoss(scale=10)"),
        losses.SupervisedContrastiveLoss(
            name="SupervisedContrastiveLoss(temperature=0.1)"
        ),
        losses.NTXentLoss(name="NTXentLoss(temperature=0.1)"),
        losses.GeneralizedLiftedStructureLoss(name="GeneralizedLiftedStructureLoss"),
        losses.CosineLiftedStructureLoss(name="CosineLiftedStructureLoss"),
        losses.CircleLoss(name="CircleLoss(scale=80, margin=0.4)"),
    )


def average_precision() -> Any:
    """Draw the losses on average precision, Smooth-AP at two temperatures."""
    return pair_figure(
        losses.FastAPLoss(name="FastAPLoss(num_bins=10)"),
        losses.SmoothAPLoss(name="SmoothAPLoss(temperature=0.01)"),
        losses.SmoothAPLoss(0.1, name="SmoothAPLoss(temperature=0.1)"),
    )


def pair_weighting() -> Any:
    """Draw binomial deviance, lifted structure, and their mean."""
    return pair_figure(
        losses.BinomialDevianceLoss(name="BinomialDevianceLoss"),
        losses.CosineLiftedStructureLoss(
            negative_scale=50.0, positive_scale=2.0, name="CosineLiftedStructureLoss"
        ),
        PairWeightedLoss(binlifted_weights, name="BinLifted"),
    )


def proxy() -> Any:
    """Draw how strongly losses move an embedding to and from each class's proxy."""
    x = embeddings()
    proxies = np.stack([x[label == LABELS].mean(axis=0) for label in range(CLASSES)])
    proxies += np.random.default_rng(1).normal(size=proxies.shape)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, proxies)]
    scores = as_similarities(tf.constant(unit[0] @ unit[1].T, dtype="float32"))
    own = LABELS[:, None] == np.arange(CLASSES)
    panels = []
    for loss in (
        losses.ProxyAnchorLoss(name="ProxyAnchorLoss"),
        losses.ProxyNCALoss(name="ProxyNCALoss"),
        losses.CosFaceLoss(name="CosFaceLoss"),
    ):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            total = len(LABELS) * loss(LABELS, scores)
        weights = np.abs(tape.gradient(total, scores))
        pairs = {
            kind: (scores.numpy()[mask], weights[mask])
            for kind, mask in (("own proxy", own), ("other proxies", ~own))
        }
        panels.append(Panel(loss.name, "weight |dL/dS|", pairs))
    figure = plot_weights(panels, "cosine similarity S of embedding and proxy")
    for axes in figure.axes[: len(panels)]:
        axes.set_xlim(-1.05, 1.05)
    return figure


def log_ratio_weights(
    labels: np.ndarray, distances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Differentiate the log-ratio losses of all anchors by the distances D(f_a, f_i).

    The loss of an anchor is twice the variance of u_i = log D(f_a, f_i) - log
    D(y_a, y_i) over the n others, so dL/dD = 4 (u_i - mean u) / ((n - 1) D).

    Args:
        labels: D(y_a, y_i), `[B, B]`.
        distances: D(f_a, f_i), `[B, B]`.

    Returns:
        Both `[B, B - 1]`, without the diagonal: D(y_a, y_i), and dL/dD.
    """
    count = len(labels)
    off = ~np.eye(count, dtype=bool)
    target, d = (m[off].reshape(count, count - 1) for m in (labels, distances))
    u = np.log(d) - np.log(target)
    return target, 4 * (u - u.mean(axis=1, keepdims=True)) / ((count - 2) * d)


def continuous() -> Any:
    """Draw the weights of the log-ratio loss against the distance of the labels."""
    generator = np.random.default_rng(0)
    poses = generator.uniform(size=(40, 2))
    x = poses + 0.1 * generator.normal(size=poses.shape)
    target, slope = log_ratio_weights(*(_squared_distances(r) for r in (poses, x)))
    pairs = {
        name: (target[mask], np.abs(slope[mask]))
        for name, mask in (
            ("too far apart", slope > 0),
            ("too near", slope < 0),
        )
    }
    panel = Panel("LogRatioLoss", "weight |dL/dD|", pairs)
    figure = plot_weights([panel], "squared distance of the poses")
    figure.set_size_inches(6, 4)
    figure.axes[0].set_xscale("log")
    figure.axes[0].set_yscale("symlog", linthresh=0.1)
    figure.axes[0].yaxis.set_major_formatter(lambda y, _: f"{abs(y):g}")
    return figure


def _squared_distances(x: np.ndarray) -> np.ndarray:
    return np.square(x[:, None] - x).sum(axis=2)


FIGURES: dict[str, Callable[[], Any]] = {
    "top-k": top_k,
    "contrastive": contrastive,
    "triplet": triplet,
    "similarity": similarity,
    "softmax": softmax,
    "average-precision": average_precision,
    "pair-weighting": pair_weighting,
    "proxy": proxy,
    "continuous": continuous,
}


def draw(folder: Path, names: Iterable[str] = tuple(FIGURES)) -> None:
    """Write figures as small PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        save_small(FIGURES[name](), folder / f"{name}.png", dpi=100)


if __name__ == "__main__":
    draw(FOLDER, sys.argv[1:] or FIGURES)
