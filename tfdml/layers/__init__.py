"""Layers of an embedder, and layers with the weights that a loss needs."""

from tfdml.layers._attention_masks import AttentionMasks, JoinedHeads
from tfdml.layers._center_regularizer import CenterRegularizer
from tfdml.layers._class_boundaries import ClassBoundaries
from tfdml.layers._color_transform import ColorTransform
from tfdml.layers._compatible_proxies import CompatibleProxies
from tfdml.layers._declared import as_embeddings_with_boundaries, as_similarities
from tfdml.layers._divided_embedding import DividedEmbedding
from tfdml.layers._gem_pooling import GeMPooling
from tfdml.layers._high_order_moments import HighOrderMoments
from tfdml.layers._image_changes import ImageChanges
from tfdml.layers._l2_normalization import L2Normalization
from tfdml.layers._proxies import Proxies
from tfdml.layers._reference_embeddings import ReferenceEmbeddings
from tfdml.layers._scale_and_bias import ScaleAndBias

__all__ = [
    "AttentionMasks",
    "CenterRegularizer",
    "ClassBoundaries",
    "ColorTransform",
    "CompatibleProxies",
    "DividedEmbedding",
    "GeMPooling",
    "HighOrderMoments",
    "ImageChanges",
    "JoinedHeads",
    "L2Normalization",
    "Proxies",
    "ReferenceEmbeddings",
    "ScaleAndBias",
    "as_embeddings_with_boundaries",
    "as_similarities",
]
