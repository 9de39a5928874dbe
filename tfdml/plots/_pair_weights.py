"""Draw the weights that losses give to pairs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfdml._core.fonts import drawable
from tfdml._core.tensors import Tensor
from tfdml.figure_style import COLORS, light_grid
from tfdml.losses import PairLoss, weighted_pairs
from tfdml.messages import shown

_STYLES = ({"color": COLORS[0], "marker": "o"}, {"color": COLORS[1], "marker": "x"})


class Panel(NamedTuple):
    """One panel of a figure of weights."""

    title: str
    y_label: str
    weights: Mapping[str, tuple[np.ndarray, np.ndarray]]
    """Two kinds of pairs by name: x and the weight of each pair, at least 0."""


def plot_pair_weights(
    losses: Sequence[PairLoss], labels: Tensor, embeddings: Tensor
) -> Any:
    """Draw the weight of every pair of a batch against its cosine similarity.

    One panel per loss, titled by its name, each with its own scale of weights: the
    scales of losses differ by orders of magnitude. The weights of positive pairs go up
    from the middle line, those of negative pairs down, so that neither hides the other.
    What is drawn is what `tfdml.losses.weighted_pairs` returns. A weight that
    depends on the pair's own similarity alone draws a line, one that depends on other
    pairs too a cloud. A weight is the derivative by the score that the loss compares:
    S is the cosine similarity, and "score" means a distance, or whatever else
    `PairLoss.scores` returns.

    Args:
        losses: Losses to compare, at least one.
        labels: Class ids `[B]` or `[B, 1]`.
        embeddings: Embeddings `[B, dimension]`.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot: save it with `savefig`.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: A loss is not a `PairLoss`.
        ValueError: There is no loss, or the losses refuse the batch.
    """
    if not losses:
        raise ValueError(
            f"`losses` must hold at least one loss. Received: {shown(losses)}."
        )
    panels = []
    for loss in losses:
        pairs = weighted_pairs(loss, labels, embeddings)
        score = "S" if type(loss).scores is PairLoss.scores else "score"
        weights = {f"{kind} pairs": values for kind, values in pairs.items()}
        panels.append(Panel(loss.name, f"weight |dL/d{score}|", weights))
    figure = plot_weights(panels, "cosine similarity S of the pair")
    for axes in figure.axes[: len(panels)]:
        axes.set_xlim(-1.05, 1.05)
    return figure


def plot_weights(panels: Sequence[Panel], x_label: str) -> Any:
    """Draw the weights of two kinds of pairs, the first kind upwards, the other down.

    Args:
        panels: The panels, at least one, all with the same two kinds of pairs.
        x_label: What x is, with its unit.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot. Its first axes are the panels.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from tfdml._core.figures import ShownFigure
    except ImportError as error:
        raise ImportError(
            'Plots need matplotlib: pip install "tfdml[evaluation]". The numbers alone '
            "come from tfdml.losses.weighted_pairs."
        ) from error
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    size = (3.6 * columns, 2.8 * rows + 0.3)
    figure = ShownFigure(figsize=size, layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, panel in zip(grid, panels, strict=False):
        styles = zip(("above", "below"), (1, -1), _STYLES, strict=True)
        for (kind, (x, weights)), (side, sign, style) in zip(
            panel.weights.items(), styles, strict=True
        ):
            label = f"{kind} ({side} the line)"
            axes.scatter(
                x, sign * weights, s=12, alpha=0.5, linewidths=1, label=label, **style
            )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.yaxis.set_major_formatter(lambda y, _: f"{abs(y):g}")
        title, families = drawable(panel.title)
        axes.set_title(title, fontsize="medium", fontfamily=families)
        axes.set_xlabel(x_label)
        axes.set_ylabel(panel.y_label)
        light_grid(axes)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.legend(
        *grid[0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=len(_STYLES),
        markerscale=1.6,
        frameon=False,
    )
    return figure
