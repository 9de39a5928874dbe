"""Exact nearest neighbors, the ranks of positives, and re-ranking."""

from tfdml._core.exact_search import Metric, SearchLimits, Ties
from tfdml.neighbors._combination import combine_queries
from tfdml.neighbors._dimensions import first_dimensions
from tfdml.neighbors._exact import ExactSearcher, nearest_neighbors
from tfdml.neighbors._expansion import augment_gallery, expand_queries
from tfdml.neighbors._ranks import positive_ranks
from tfdml.neighbors._reciprocal import KReciprocalDistances

__all__ = [
    "ExactSearcher",
    "KReciprocalDistances",
    "Metric",
    "SearchLimits",
    "Ties",
    "augment_gallery",
    "combine_queries",
    "expand_queries",
    "first_dimensions",
    "nearest_neighbors",
    "positive_ranks",
]
