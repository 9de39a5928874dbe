"""Exact nearest neighbors, and the ranks of positives."""

from tfdml._core.exact_search import Metric, SearchLimits, Ties
from tfdml.neighbors._exact import ExactSearcher, nearest_neighbors
from tfdml.neighbors._ranks import positive_ranks

__all__ = [
    "ExactSearcher",
    "Metric",
    "SearchLimits",
    "Ties",
    "nearest_neighbors",
    "positive_ranks",
]
