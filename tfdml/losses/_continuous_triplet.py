"""Compute the triplet loss on continuous labels."""

import math
from collections.abc import Callable
from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero, whole
from tfdml._core.control_flow import while_loop
from tfdml._core.row_order import ranks
from tfdml._core.tensors import Tensor, at_least_float32
from tfdml.losses._continuous_base import ContinuousLoss, other_items
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._distance_base import Distance
from tfdml.losses._triplet import TripletLoss
from tfdml.messages import shown

_COLUMNS = 8
"""Number of items that are compared with all others in one step."""


class ContinuousTripletLoss(ContinuousLoss):
    """Triplet loss on labels that have a distance, over all triplets of the batch.

    A triplet (a, i, j) is an anchor and two other items, i nearer by its label:

        dense triplets, `threshold` None:   D(y_a, y_i) < D(y_a, y_j)
        binary, with the threshold t:       D(y_a, y_i) <= t < D(y_a, y_j)
        binary, with `neighbors` k:         D(y_a, y_i) <= t_a < D(y_a, y_j)

    where t_a is the k-th smallest distance of the anchor's label from those of the
    other items: its k nearest neighbors count as positives, with all that are as near
    as the last of them, and the rest as negatives.

    With T triplets in the batch,

        L = 1/T sum max(0, D(f_a, f_i) - D(f_a, f_j) + margin)

    Dense triplets and the threshold are the baselines that the log-ratio loss is
    measured against, and neighbors the other quantization that its authors name. They
    use which item should be nearer, but not by how much; in binary triplets the items
    on one side of the threshold are equivalent, as in a class. Neighbors of a rare
    label may be far, and items that are no neighbors of a common label near.

    No triplet is listed: the count of the triplets above 0 that each pair is in gives
    value and gradient exactly, in O(B^2) memory. Dense triplets take O(B^3) time,
    binary ones that of `TripletLoss`.

    Items at equal label distances form no triplet. An anchor without a triplet adds 0,
    and a batch without one has the loss 0. A triplet exactly at the margin adds 0 and
    has a zero gradient. NaN in a label or an embedding makes the loss NaN.

    Args:
        margin: By how much j must be farther than i, at least 0. The paper's are 0.03
            with dense triplets and 0.2 with a threshold.
        threshold: t, at least 0, in units of D(y_a, y_i), so of squared label
            coordinates by default. None: no threshold.
        neighbors: k, at least 1; with as many other items or more, no item is a
            negative. The neighbors are those in the batch: `NeighborBatches` brings an
            anchor together with its nearest items of the whole set. None: no neighbors.
            Without `threshold` and `neighbors` triplets are dense.
        label_distance: D between labels. `"squared_euclidean"` takes `y_true` as
            vectors `[B]` or `[B, ...]`. `"precomputed"` takes `y_true` as the matrix of
            distances `[B, B]`; row a belongs to anchor a, and the diagonal does not
            count. A function of (labels, labels) returns that matrix. Distances must
            not be negative.
        distance: D between embeddings: `"squared_euclidean"`, `"euclidean"`, or
            `"cosine"`, which is 1 - cosine similarity.
        normalize: Whether embeddings are scaled to unit length first, as in the paper.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range, both `threshold` and `neighbors` are
            given, or a matrix of label distances is not
            `[B, B]`, or, where values are known, negative. Inside a compiled function
            a negative distance makes the loss NaN.

    Example:
        >>> loss = ContinuousTripletLoss(margin=0.5)
        >>> angles = [0.0, 1.0, 3.0]
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss(angles, embeddings)), 3)  # (0 + 0.5 + 0) / 3
        0.167

    Reference:
        Kim, Seo, Laptev, Cho and Kwak, Deep Metric Learning Beyond Binary Supervision,
        CVPR 2019, section 5. Neighbors: Kwak, Cho and Laptev, Thin-Slicing for Pose:
        Learning to Understand Pose Without Explicit Pose Estimation, CVPR 2016.
    """

    def __init__(
        self,
        margin: float = 0.03,
        *,
        threshold: float | None = None,
        neighbors: int | None = None,
        label_distance: str | Callable[[Tensor, Tensor], Tensor] = "squared_euclidean",
        distance: Distance = "squared_euclidean",
        normalize: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(label_distance, **kwargs)
        self.triplet_loss = TripletLoss(
            margin, distance=distance, normalize=normalize, dtype=self.dtype
        )
        self.margin: float = self.triplet_loss.margin
        self.distance: Distance = self.triplet_loss.distance
        self.normalize: bool = self.triplet_loss.normalize
        if threshold is not None:
            threshold = at_least_zero("threshold", threshold)
        if neighbors is not None:
            neighbors = whole("neighbors", neighbors)
            if threshold is not None:
                raise ValueError(
                    "`neighbors` must be None where `threshold` is given: each is a "
                    f"rule for positives. Received: neighbors={shown(neighbors)} and "
                    f"threshold={threshold}."
                )
        self.threshold: float | None = threshold
        self.neighbors: int | None = neighbors

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        scores = self.triplet_loss.scores(embeddings, embeddings)
        distances, scale = self.label_distances(labels, embeddings)
        others = other_items(embeddings)
        threshold: Tensor | float | None = None
        if self.threshold is not None:
            threshold = _scaled(self.threshold, scale)
        elif self.neighbors is not None:
            threshold = _nth_smallest(distances, others, self.neighbors)
        if threshold is None:
            values = _dense_loss(scores, distances, others, self.margin)
        else:
            near = ops.logical_and(others, distances <= threshold)
            far = ops.logical_and(others, distances > threshold)
            values = self.triplet_loss.pair_loss(scores, near, far)
        # A NaN is in no triplet, and must show in the loss.
        is_valid = ops.logical_or(distances >= 0, ops.logical_not(others))
        return ops.where(ops.all(is_valid, axis=1), values, float("nan"))


def _scaled(threshold: float, scale: Tensor | float) -> Tensor | float:
    """Divide a threshold by the square of a scale, exactly.

    The division is done in two steps, as the threshold of labels whose squares are
    beyond float32 is beyond float32 too.
    """
    root = 2.0 ** (math.frexp(threshold)[1] // 2)
    return threshold / root / root * (root / scale) * (root / scale)


def _nth_smallest(distances: Tensor, others: Tensor, n: int) -> Tensor:
    """Return the n-th smallest distance from other items, `[B, 1]`.

    It is infinite where there are fewer than n.
    """
    ordered = ops.sort(ops.where(others, distances, float("inf")), axis=1)
    column = ops.minimum(n, ops.shape(distances)[1]) - 1
    return ops.expand_dims(ops.take(ordered, column, axis=1), 1)


def _dense_loss(
    scores: Tensor, distances: Tensor, others: Tensor, margin: float
) -> Tensor:
    """Compute the share of each anchor in the mean over all dense triplets, `[B]`."""
    scores = at_least_float32(scores)
    # An anchor itself is neither the nearer nor the farther item of a triplet.
    near = ops.where(others, distances, float("inf"))
    far = ops.where(others, distances, -float("inf"))
    as_near, as_far = _counts_above_zero(ops.stop_gradient(scores), near, far, margin)
    hinges = ops.sum((as_near - as_far) * scores, axis=1)
    hinges = hinges + margin * ops.sum(as_near, axis=1)
    nearer = ranks(ops.sort(near, axis=1), far)
    return scale_to_mean(hinges, ops.sum(ops.cast(nearer, scores.dtype)))


def _counts_above_zero(
    scores: Tensor, near: Tensor, far: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """Count the triplets above 0 that each pair is in.

    Each item in turn is compared with all others: O(B^3) time.

    Args:
        scores: D(f_a, f_i), `[B, B]`.
        near: D(y_a, y_i), `[B, B]`; infinity where i must not be the nearer item.
        far: The same; minus infinity where it must not be the farther one.
        margin: By how much the farther item must be farther.

    Returns:
        Constants `[B, B]`: how often an item is the nearer one, and the farther one.
    """
    rows = ops.shape(scores)[0]
    fill = [[0, -rows % _COLUMNS], [0, 0]]
    columns = [
        ops.pad(ops.transpose(x), fill, constant_values=value)
        for x, value in ((scores, 0.0), (near, float("inf")), (far, -float("inf")))
    ]

    def step(position: Tensor, as_near: Tensor, as_far: Tensor) -> tuple[Tensor, ...]:
        for column in range(_COLUMNS):
            score, nearer, farther = (
                ops.expand_dims(ops.take(x, position + column, axis=0), 1)
                for x in columns
            )
            is_near = ops.logical_and(near < farther, score < scores + margin)
            is_far = ops.logical_and(nearer < far, scores < score + margin)
            as_near = as_near + ops.cast(is_near, scores.dtype)
            as_far = as_far + ops.cast(is_far, scores.dtype)
        return position + _COLUMNS, as_near, as_far

    none = ops.zeros_like(scores)
    _, as_near, as_far = while_loop(
        lambda position, *counts: position < rows,
        step,
        (ops.zeros((), "int32"), none, none),
    )
    return ops.stop_gradient(as_near), ops.stop_gradient(as_far)
