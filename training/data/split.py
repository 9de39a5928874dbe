"""Hold the images of a split, such as those that validate a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .data_set import DataSet
from .images import Images


@dataclass(frozen=True)
class Split:
    """The images of a split.

    Args:
        data: What is known of them.
        images: The images of the whole data set.
        positions: Where the images of the split are in it, int64 `[N]`.
        label_distance: Of continuous labels, as for
            `tfdml.metrics.label_distance_metrics`.
    """

    data: DataSet
    images: Images
    positions: np.ndarray
    label_distance: Callable[[Any, Any], Any] | None = None

    @property
    def contents(self) -> list[str]:
        """Digests of the images, which have been read once."""
        contents = self.images.contents
        return [contents[position] for position in self.positions.tolist()]

    @property
    def can_be_measured(self) -> bool:
        """Whether a query has something to find."""
        return bool(self.data.has_positive().any())
