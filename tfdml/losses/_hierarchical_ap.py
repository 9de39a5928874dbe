"""Compute the loss of hierarchical average precision, on labels of several levels."""

from typing import Any

import keras
from keras import ops

from tfdml._core.arguments import at_least_zero, within
from tfdml._core.arrays import as_array
from tfdml._core.batches import checked_batch
from tfdml._core.marks import refuse_marks
from tfdml._core.row_order import row_counts
from tfdml._core.tensors import Tensor, at_least_float32, count, same_labels
from tfdml.losses._base import MetricLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._hierarchical_precision import lost_precision, steep_step
from tfdml.losses._ranges import scale_of_exponents
from tfdml.ops import cosine_similarities

_MOST_LEVELS = 16


class HierarchicalAPLoss(MetricLoss):
    """H-AP loss of HAPPIER: 1 - average precision in which near misses count in part.

    Labels have several levels, the coarsest first, as a path: (furniture, chair,
    armchair). The level l of a candidate of an anchor is how many ids it shares from
    the coarsest on: 0 with none, L with all. With Omega_l the candidates of level l,

        rel_i = (l / L)^alpha / |Omega_l|
        H-AP = sum over i of h_i / rank_i  /  sum over i of rel_i
        h_i = rel_i + sum over candidates j with S_j >= S_i of min(rel_i, rel_j)
        rank_i = 1 + number of candidates j of level l or above with S_j >= S_i
                 + sum over candidates j of a level below l of H(S_j - S_i)

    over the candidates i != anchor with l > 0, with H of `SupAPLoss` and S the cosine
    similarity. The loss is the mean of 1 - H-AP over the anchors that have such
    candidates; the others add 0. With one level it is `SupAPLoss`.

    No gradient passes through the counts with S_j >= S_i, so none passes through h: as
    in the authors' settings.

    Relevant candidates are visited one at a time, forward and backward, for each level:
    O(B^2 R L) operations for R relevant candidates per anchor, O(B^2 L) memory.

    Args:
        alpha: From 0 to 10: how little the coarse levels count. 1 in the authors'
            settings.
        temperature: tau of `SupAPLoss`.
        slope: rho of `SupAPLoss`.
        delta: delta of `SupAPLoss`.
        jump: That of `SupAPLoss`.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import math
        >>> loss = HierarchicalAPLoss(temperature=1e-4, slope=0.0)
        >>> labels = [[0, 0], [0, 0], [0, 1], [1, 0]]  # three chairs, and a table
        >>> angles = [0.0, 0.2, 0.5, 0.9]  # it is between the second and third chair
        >>> embeddings = [[math.cos(angle), math.sin(angle)] for angle in angles]
        >>> round(float(loss(labels, embeddings)), 3)  # (1 - (1/4 + 1/7) / (1/2)) / 3
        0.071

    Reference:
        Ramzi et al., Hierarchical Average Precision Training for Pertinent Image
        Retrieval, ECCV 2022. The formula is that of the authors' code, in which an
        anchor is a candidate of itself. Their method adds a softmax over proxies of the
        finest classes with weight 0.1.
    """

    needs_positives = True

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        temperature: float = 0.01,
        slope: float = 100.0,
        delta: float = 0.05,
        jump: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.alpha: float = within("alpha", alpha, 0, 10)
        self.temperature: float = scale_of_exponents("temperature", temperature)
        self.slope: float = at_least_zero("slope", slope, 1e4)
        self.delta: float = at_least_zero("delta", delta, 2)
        self.jump: float = at_least_zero("jump", jump, 1)

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check labels `[B, levels]`, or `[B]`, and embeddings.

        Returns:
            Labels `[B, levels]` and embeddings `[B, dimension]`.

        Raises:
            ValueError: As in `MetricLoss`, or the number of levels is unknown, 0 or
                above 16.
        """
        refuse_marks(y_pred)
        columns, embeddings = [], y_pred
        for level in _levels(y_true):
            labels, embeddings = checked_batch(level, embeddings, self.dtype)
            columns.append(labels)
        return ops.stack(columns, axis=1), embeddings

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        scores = at_least_float32(cosine_similarities(embeddings, embeddings))
        position = ops.arange(ops.shape(labels)[0], dtype="int32")
        shared = ops.logical_not(same_labels(position, position))
        levels, number = [], labels.shape[1]
        for column in range(number):
            same = same_labels(labels[:, column], labels[:, column])
            levels.append(ops.logical_and(shared, ops.logical_not(same)))
            shared = ops.logical_and(shared, same)
        levels.append(shared)
        counts = [row_counts(level, scores.dtype) for level in levels]
        relevances = [
            (level / number) ** self.alpha / ops.where(total > 1, total, 1)
            for level, total in enumerate(counts)
        ][1:]
        step = steep_step(self.temperature, self.jump, self.slope, self.delta)
        values = lost_precision(scores, levels, relevances, step)
        # Of level 0 are those without a common id; an anchor is none of its candidates.
        others = ops.cast(ops.shape(labels)[0] - 1, values.dtype)
        has_relevant = count(levels[0], values.dtype, axis=1) < others
        values = scale_to_mean(values, count(has_relevant, values.dtype))
        return ops.cast(values, embeddings.dtype)


def _levels(labels: Any) -> list[Tensor]:
    """Return the column of each level of labels `[B, levels]` or `[B]`."""
    if not keras.backend.is_keras_tensor(labels) and not ops.is_tensor(labels):
        labels = as_array("y_true", labels)
    if len(labels.shape) < 2:
        return [labels]
    number = labels.shape[1]
    if len(labels.shape) > 2 or number is None or not 1 <= number <= _MOST_LEVELS:
        raise ValueError(
            "The labels (`y_true`) must have the shape [batch, levels], an id for each "
            f"level from the coarsest on, with at most {_MOST_LEVELS} levels. "
            f"Received: shape={tuple(labels.shape)}."
        )
    return [labels[:, level] for level in range(number)]
