"""List the reported metrics, for sets with classes and with continuous labels."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.papers.runs import Record


@dataclass(frozen=True)
class Column:
    """A metric as it is reported.

    Args:
        name: What it is called.
        metric: Its name in `metrics` of a record.
        scale: By what it is multiplied.
    """

    name: str
    metric: str
    scale: float = 100.0

    def of(self, runs: Iterable[Record]) -> list[float]:
        """Return its value of each run that did not diverge."""
        return [self.scale * r["metrics"][self.metric] for r in runs if "metrics" in r]


@dataclass(frozen=True)
class Metrics:
    """The metrics of a kind of set.

    Args:
        columns: What is reported, the most important first.
        query: Which is kept of each query.
        chosen_by: By which the learning rate is chosen on validation images: one with
            less noise than the first column.
        less_is_better: Of the first column, `query` and `chosen_by`.
    """

    columns: tuple[Column, ...]
    query: str
    chosen_by: str
    less_is_better: bool = False

    def column(self, name: str) -> Column:
        """Return the column of a name."""
        return next(column for column in self.columns if column.name == name)


_RMS = 15**-0.5
"""Label distances are those of 15 joints; they are reported as root mean squares."""

CLASSES = Metrics(
    (
        Column("Precision@1", "precision_at_1"),
        Column("Precision@3", "precision_at_3"),
        Column("Precision@5", "precision_at_5"),
        Column("Precision@10", "precision_at_10"),
        Column("Recall@3", "recall_at_3"),
        Column("Recall@5", "recall_at_5"),
        Column("Recall@10", "recall_at_10"),
        Column("MAP@R", "map_at_r"),
        Column("mAP", "mean_average_precision"),
        Column("NMI", "nmi_arithmetic"),
        Column("F1", "pairwise_f1"),
    ),
    query="precision_at_1",
    chosen_by="map_at_r",
)
LABELS = Metrics(
    (
        Column("distance of the first", "label_distance_at_1_other_sequences", _RMS),
        Column("distance of 10", "label_distance_at_10_other_sequences", _RMS),
        Column("nDCG@10", "ndcg_at_10_other_sequences"),
        Column("distance of the first, all clips", "label_distance_at_1", _RMS),
    ),
    query="label_distance_at_1_other_sequences",
    chosen_by="label_distance_at_10_other_sequences",
    less_is_better=True,
)
