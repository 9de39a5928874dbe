"""Compare queries with a whole gallery, for arguments that have been checked."""

from tfdml._core.exact_search._nearest import nearest_in
from tfdml._core.exact_search._pairs import Pairs
from tfdml._core.exact_search._ranks import ranks_in
from tfdml._core.exact_search._scores import (
    USUAL_LIMITS,
    Metric,
    PreparedGallery,
    SearchLimits,
    leave_out,
)
from tfdml._core.exact_search._ties import Ties, check_ties

__all__ = [
    "USUAL_LIMITS",
    "Metric",
    "Pairs",
    "PreparedGallery",
    "SearchLimits",
    "Ties",
    "check_ties",
    "leave_out",
    "nearest_in",
    "ranks_in",
]
