"""Name the rules by which items of equal score are ranked."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tfdml._core.arguments import one_of

Ties = Literal["index", "pessimistic", "optimistic"]
"""Which of several items of equal score comes first."""


def check_ties(ties: str) -> None:
    """Refuse an unknown rule for ties.

    Raises:
        ValueError: It is none of those that `positive_ranks` names.
    """
    one_of("ties", ties, get_args(Ties))


def tie_keys(ties: Ties, is_positive: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return what is sorted by after the score, and before the index."""
    if ties == "index":
        return np.zeros(len(is_positive), bool)
    return is_positive if ties == "pessimistic" else ~is_positive
