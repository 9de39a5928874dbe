"""Tensor operations that losses are made of, on `keras.ops` alone."""

from tfdml._devices import has_gpu
from tfdml.ops._angular_sums import (
    hinge_costs,
    pair_signs,
    soft_costs,
    sums_by_product,
    sums_by_rows,
    sums_in_turn,
)
from tfdml.ops._batches import checked_batch, checked_labels, is_traced, refuse_mask
from tfdml.ops._control_flow import cond, while_loop, without_autograph
from tfdml.ops._histograms import pair_histograms
from tfdml.ops._label_distances import (
    caption_distance,
    segmentation_distance,
    squared_label_distance,
)
from tfdml.ops._pairs import (
    Tensor,
    at_least_float32,
    cosine_similarities,
    count,
    euclidean_distances,
    label_masks,
    masked_logsumexp,
    masked_max,
    masked_mean,
    masked_min,
    products,
    same_labels,
    scale_to_mean,
    softmax_costs,
    softplus,
    squared_distances,
    unit_rows,
    wide,
)
from tfdml.ops._ranking import ranks, top_scores
from tfdml.ops._triplets import (
    each_positive,
    hinge_weights,
    next_above,
    semi_hard_weights,
    weighted_hinges,
)

__all__ = [
    "Tensor",
    "at_least_float32",
    "caption_distance",
    "checked_batch",
    "checked_labels",
    "cond",
    "cosine_similarities",
    "count",
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
    "pair_signs",
    "products",
    "ranks",
    "refuse_mask",
    "same_labels",
    "scale_to_mean",
    "segmentation_distance",
    "semi_hard_weights",
    "soft_costs",
    "softmax_costs",
    "softplus",
    "squared_distances",
    "squared_label_distance",
    "sums_by_product",
    "sums_by_rows",
    "sums_in_turn",
    "top_scores",
    "unit_rows",
    "weighted_hinges",
    "while_loop",
    "wide",
    "without_autograph",
]
