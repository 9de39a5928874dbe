"""List the reported metrics, for sets with classes and with continuous labels."""

from collections.abc import Iterable, Sequence
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
        """Return its value of each run that has it, which one that diverged has not."""
        found = [run.get("metrics", {}) for run in runs]
        return [self.scale * m[self.metric] for m in found if self.metric in m]


@dataclass(frozen=True)
class Metrics:
    """The metrics of a kind of set.

    Args:
        columns: What is reported, the most important first.
        query: Which is kept of each query.
        chosen_by: By which the learning rate is chosen on validation images: one with
            less noise than the first column.
        less_is_better: Of the first column, `query` and `chosen_by`.
        others: What some studies report beside.
    """

    columns: tuple[Column, ...]
    query: str
    chosen_by: str
    less_is_better: bool = False
    others: tuple[Column, ...] = ()

    def column(self, name: str) -> Column:
        """Return the column of a name."""
        every = (*self.columns, *self.others)
        return next(column for column in every if column.name == name)

    def reported(self, names: Iterable[str], runs: Sequence[Record]) -> list[Column]:
        """Return the columns of some names that runs have; the first without names."""
        columns = [self.column(name) for name in names] or [self.columns[0]]
        return [column for column in columns if column.of(runs)] or columns[:1]


_RMS = 15**-0.5
"""Label distances are those of 15 joints; they are reported as root mean squares."""

NO_PAIR = "batches without an informative pair"
"""In percent, of multi-similarity."""

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
    others=(Column(NO_PAIR, "batches_without_informative_pair"),),
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
