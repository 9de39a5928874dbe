"""Pictures of losses. They need matplotlib, which the library does not install."""

import math
from collections.abc import Sequence
from typing import Any

from tfdml.losses.base import PairLoss
from tfdml.pair_weights import weighted_pairs
from tfdml.pairs import Tensor

__all__ = ["plot_pair_weights"]

# Blue and orange stay apart for every kind of colour vision, and in grey.
_STYLE = {"positive": ("#0072B2", "o"), "negative": ("#E69F00", "x")}


def plot_pair_weights(
    losses: Sequence[PairLoss], labels: Tensor, embeddings: Tensor
) -> Any:
    """Draw the weight of every pair of a batch against its cosine similarity.

    One panel a loss, titled by the loss's name, each with its own scale of weights: the
    scales of losses differ by orders of magnitude. What is drawn is what
    `tfdml.pair_weights.weighted_pairs` returns. A weight that depends on the pair's own
    similarity alone draws a line, one that depends on other pairs too a cloud.

    Args:
        losses: Losses to compare, at least one.
        labels: Class ids `[B]` or `[B, 1]`.
        embeddings: Embeddings `[B, dimension]`.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot: save it with `savefig`.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: A loss is no `PairLoss`.
        ValueError: There is no loss, or the batch is not as losses take it.
    """
    if not losses:
        raise ValueError(f"`losses` must hold at least one loss. Received: {losses}.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Plots need matplotlib: pip install matplotlib. The numbers alone come "
            "from tfdml.pair_weights.weighted_pairs."
        ) from error
    columns = min(3, len(losses))
    rows = math.ceil(len(losses) / columns)
    figure = Figure(figsize=(4 * columns, 3 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel, loss in zip(panels, losses, strict=False):
        for kind, pairs in weighted_pairs(loss, labels, embeddings).items():
            color, marker = _STYLE[kind]
            panel.scatter(*pairs, s=12, c=color, marker=marker, alpha=0.6, label=kind)
        panel.set_title(loss.name, fontsize="medium")
        panel.set_xlabel("cosine similarity")
        panel.set_ylabel("weight |dL/dS|")
        panel.margins(y=0.15)  # room for the legend
        panel.set_ylim(bottom=0)
        panel.legend(fontsize="small")
    for panel in panels[len(losses) :]:
        panel.set_axis_off()
    return figure
