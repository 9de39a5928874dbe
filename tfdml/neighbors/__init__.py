"""Exact nearest neighbors, and the ranks of positives."""

from tfdml.neighbors._exact import ExactSearcher, check_k, nearest_neighbors
from tfdml.neighbors._ranks import Ties, check_ties, positive_ranks, ranks_in
from tfdml.neighbors._scores import Metric, PreparedGallery

__all__ = [
    "ExactSearcher",
    "Metric",
    "PreparedGallery",
    "Ties",
    "check_k",
    "check_ties",
    "nearest_neighbors",
    "positive_ranks",
    "ranks_in",
]
