"""Exact nearest neighbors, and the ranks of positives."""

from tfdml.neighbors._checks import check_k
from tfdml.neighbors._exact import ExactSearcher, nearest_in, nearest_neighbors
from tfdml.neighbors._ranks import Ties, check_ties, positive_ranks, ranks_in
from tfdml.neighbors._scores import Metric, PreparedGallery, SearchLimits, leave_out

__all__ = [
    "ExactSearcher",
    "Metric",
    "PreparedGallery",
    "SearchLimits",
    "Ties",
    "check_k",
    "check_ties",
    "leave_out",
    "nearest_in",
    "nearest_neighbors",
    "positive_ranks",
    "ranks_in",
]
