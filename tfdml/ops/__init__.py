"""Tensor operations that losses are made of, on `keras.ops` alone."""

from tfdml._core.tensors import Tensor
from tfdml.ops._label_distances import (
    caption_distance,
    segmentation_distance,
    squared_label_distance,
)
from tfdml.ops._pairs import (
    cosine_similarities,
    euclidean_distances,
    label_masks,
    masked_logsumexp,
    masked_max,
    masked_mean,
    masked_min,
    softplus,
    squared_distances,
    unit_rows,
)
from tfdml.ops._top_scores import top_scores
from tfdml.ops._triplets import hinge_weights

__all__ = [
    "Tensor",
    "caption_distance",
    "cosine_similarities",
    "euclidean_distances",
    "hinge_weights",
    "label_masks",
    "masked_logsumexp",
    "masked_max",
    "masked_mean",
    "masked_min",
    "segmentation_distance",
    "softplus",
    "squared_distances",
    "squared_label_distance",
    "top_scores",
    "unit_rows",
]
