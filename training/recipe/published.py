"""Hold what a paper printed for the configuration that a recipe has."""

import re
from dataclasses import dataclass, field

from tfdml.messages import shown

from .checks import RecipeError

_AT_K = re.compile(r"(?:precision|recall)_at_([1-9][0-9]*)")
_CLUSTERING = re.compile(
    r"(?:superclasses\.)?clustering\."
    r"(?:nmi_arithmetic|nmi_geometric|pairwise_f1|adjusted_rand)"
)
_WITHOUT_K = ("r_precision", "map_at_r", "mean_average_precision")


@dataclass(frozen=True)
class Published:
    """`[published]`: what a paper printed for this recipe. It changes no training.

    `paper` says which one, and `variant` which of its configurations this is. `rows`
    holds, by the name of a table, the values of the row in percent, by metric. A metric
    has the name that it has in the `metrics.json` of an evaluation: "precision_at_1",
    "mean_average_precision", "clustering.nmi_geometric". A run and an evaluation print
    what they measured beside it.
    """

    paper: str = ""
    variant: str = ""
    rows: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the values."""
        for table, row in self.rows.items():
            for metric, value in row.items():
                check_metric(metric)
                if not 0 <= value <= 100:
                    raise RecipeError(
                        "`rows` must hold percentages, from 0 to 100. Received: "
                        f"{shown(value)} for {shown(metric)} of {shown(table)}."
                    )

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric of the rows, in their order."""
        return tuple(dict.fromkeys(name for row in self.rows.values() for name in row))

    @property
    def ks(self) -> tuple[int, ...]:
        """Every k of the Precision@k and Recall@k of the rows, in their order."""
        found = (_AT_K.fullmatch(name) for name in self.metrics)
        return tuple(dict.fromkeys(int(match[1]) for match in found if match))

    def has_clusters_of(self, labels: str) -> bool:
        """Return whether a row compares clusters with "classes" or "categories"."""
        start = {"classes": "clustering.", "categories": "superclasses."}[labels]
        return any(name.startswith(start) for name in self.metrics)


def check_metric(name: str) -> None:
    """Raise unless a metric is one that an evaluation measures.

    Raises:
        RecipeError: The message names the value and examples.
    """
    if name in _WITHOUT_K or _AT_K.fullmatch(name) or _CLUSTERING.fullmatch(name):
        return
    raise RecipeError(
        'A published metric must be named as in metrics.json, such as "recall_at_8", '
        '"mean_average_precision" or "clustering.nmi_geometric". '
        f"Received: {shown(name)}."
    )
