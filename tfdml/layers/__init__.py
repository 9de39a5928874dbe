"""Layers of an embedder, and the layers that hold what a loss learns."""

from tfdml.layers._class_boundaries import ClassBoundaries
from tfdml.layers._layers import ColorTransform, GeMPooling, L2Normalization
from tfdml.layers._proxies import CenterRegularizer, Proxies

__all__ = [
    "CenterRegularizer",
    "ClassBoundaries",
    "ColorTransform",
    "GeMPooling",
    "L2Normalization",
    "Proxies",
]
