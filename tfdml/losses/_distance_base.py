"""Define the base class of the losses on distances: a distance and a margin."""

from typing import Any, Literal, get_args

from tfdml._core.arguments import at_least_zero, boolean, one_of
from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss
from tfdml.losses._ranges import LARGEST
from tfdml.ops import (
    cosine_similarities,
    euclidean_distances,
    squared_distances,
    unit_rows,
)

Distance = Literal["squared_euclidean", "euclidean", "cosine"]


class _DistanceLoss(PairLoss):
    """A pair loss on distances with a margin between them.

    Args:
        margin: At least 0, in units of the distance.
        distance: `"squared_euclidean"`, `"euclidean"` or `"cosine"`, which is
            1 - cosine similarity.
        normalize: Whether embeddings are scaled to unit length first.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.
    """

    def __init__(
        self,
        margin: float,
        *,
        distance: Distance = "squared_euclidean",
        normalize: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.margin: float = at_least_zero("margin", margin, LARGEST)
        self.distance: Distance = checked_distance(distance)
        self.normalize: bool = boolean("normalize", normalize)
        if distance == "cosine" and not normalize:
            raise ValueError(
                '`normalize` must be True with distance="cosine", which compares '
                f"directions. Received: normalize={normalize}."
            )

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compute the distances of anchors to a gallery, `[A, G]`."""
        return distances(anchors, gallery, self.distance, self.normalize)


def checked_distance(distance: Distance) -> Distance:
    """Return the name of a distance, or raise a ValueError."""
    return one_of("distance", distance, get_args(Distance))


def distances(
    anchors: Tensor, gallery: Tensor, distance: Distance, normalize: bool
) -> Tensor:
    """Compute the distances of anchors to a gallery, `[A, G]`."""
    if distance == "cosine":
        return 1 - cosine_similarities(anchors, gallery)
    if normalize:
        anchors, gallery = unit_rows(anchors), unit_rows(gallery)
    if distance == "euclidean":
        return euclidean_distances(anchors, gallery)
    return squared_distances(anchors, gallery)
