"""What the losses on distances share: the distance, the margin, sums of hinges."""

from typing import Any, Literal, get_args

import keras
from keras import ops

from tfdml._arguments import at_least_zero, one_of
from tfdml.losses._base import PairLoss
from tfdml.ops import (
    Tensor,
    cosine_similarities,
    euclidean_distances,
    squared_distances,
    unit_rows,
)

Distance = Literal["squared_euclidean", "euclidean", "cosine"]


class DistanceLoss(PairLoss):
    """A pair loss on distances, which keeps a margin between them.

    Args:
        margin: At least 0, in units of the distance.
        distance: `"squared_euclidean"`, `"euclidean"` or `"cosine"`, which is
            1 - cosine similarity.
        normalize: Whether embeddings are scaled to unit length first.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.
    """

    def __init__(
        self,
        margin: float,
        distance: Distance,
        normalize: bool,
        *,
        reduction: str | None,
        name: str | None,
        dtype: str | None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        if distance == "cosine" and not normalize:
            raise ValueError(
                '`normalize` must be True with distance="cosine", which compares '
                f"directions. Received: normalize={normalize}."
            )
        self.margin: float = at_least_zero("margin", margin)
        self.distance: Distance = one_of("distance", distance, get_args(Distance))
        self.normalize: bool = bool(normalize)

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Return the distances of anchors to a gallery, `[A, G]`."""
        if self.distance == "cosine":
            return 1 - cosine_similarities(anchors, gallery)
        if self.normalize:
            anchors, gallery = unit_rows(anchors), unit_rows(gallery)
        if self.distance == "euclidean":
            return euclidean_distances(anchors, gallery)
        return squared_distances(anchors, gallery)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "margin": self.margin,
            "distance": self.distance,
            "normalize": self.normalize,
        }


def weighted_hinges(
    scores: Tensor, positives: Tensor, weights: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """Sum the hinges of each anchor's triplets, given the weights of its pairs.

    Returns:
        Sum of D_ap - D_an + margin over the triplets of each anchor, `[A]`, and the
        number of these triplets, `[A]`.
    """
    active = ops.sum(ops.where(positives, weights, 0), axis=1)
    # Pairs of weight 0 stay in the sum: a NaN among them must not go unseen.
    return ops.sum(weights * scores, axis=1) + margin * active, active


def mean_over(values: Tensor, total: Tensor) -> Tensor:
    """Scale values `[A]` so that their mean is their sum over a total count."""
    anchors = ops.cast(ops.shape(values)[0], values.dtype)
    empty = ops.equal(total, 0)
    return values * ops.where(empty, 0, anchors / ops.where(empty, 1, total))


def count(mask: Tensor, like: Tensor) -> Tensor:
    """Count the True values of each row `[A]`, in the type of `like`."""
    return ops.sum(ops.cast(mask, like.dtype), axis=1)


def at_least_float32(x: Tensor) -> Tensor:
    """Widen half precision, which cannot hold the counts of a large batch."""
    if keras.backend.standardize_dtype(x.dtype) in ("float16", "bfloat16"):
        return ops.cast(x, "float32")
    return x
