"""Tensor operations that losses are made of, on `keras.ops` alone."""

from tfdml._devices import has_gpu
from tfdml.ops._angular_sums import (
    hinge_costs,
    soft_costs,
    sums_by_product,
    sums_by_rows,
    sums_in_turn,
)
from tfdml.ops._batches import checked_batch, checked_labels, is_traced, refuse_mask
from tfdml.ops._control_flow import cond, while_loop
from tfdml.ops._histograms import pair_histograms
from tfdml.ops._label_distances import (
    caption_distance,
    segmentation_distance,
    squared_label_distance,
)
from tfdml.ops._pairs import (
    Tensor,
    anchors_per_pair,
    cosine_similarities,
    euclidean_distances,
    label_masks,
    masked_logsumexp,
    masked_max,
    masked_mean,
    masked_min,
    products,
    same_labels,
    softplus,
    squared_distances,
    top_scores,
    unit_rows,
    wide,
)
from tfdml.ops._triplets import (
    each_positive,
    hinge_weights,
    next_above,
    ranks,
    row_count,
    semi_hard_weights,
)

__all__ = [
    "Tensor",
    "anchors_per_pair",
    "caption_distance",
    "checked_batch",
    "checked_labels",
    "cond",
    "cosine_similarities",
    "each_positive",
    "euclidean_distances",
    "has_gpu",
    "hinge_costs",
    "hinge_weights",
    "is_traced",
    "label_masks",
    "masked_logsumexp",
    "masked_max",
    "masked_mean",
    "masked_min",
    "next_above",
    "pair_histograms",
    "products",
    "ranks",
    "refuse_mask",
    "row_count",
    "same_labels",
    "segmentation_distance",
    "semi_hard_weights",
    "soft_costs",
    "softplus",
    "squared_distances",
    "squared_label_distance",
    "sums_by_product",
    "sums_by_rows",
    "sums_in_turn",
    "top_scores",
    "unit_rows",
    "while_loop",
    "wide",
]
