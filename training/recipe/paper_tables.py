"""Name the columns of the tables in the papers, to print them whole."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_K = re.compile(r"_at_(\d+)$")


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Args:
        source: Where it stands.
        columns: The metric of each column, by its title.
        note: What its numbers are, a sentence; may be empty.
        of_categories: Whether the clustering is of the categories, where a data set has
            some.
        is_continuous: Whether it is of continuous labels.
    """

    source: str
    columns: Mapping[str, str]
    note: str = ""
    of_categories: bool = False
    is_continuous: bool = False

    @property
    def ks(self) -> tuple[int, ...]:
        """The k that its columns need."""
        found = (_K.search(metric) for metric in self.columns.values())
        return tuple(sorted({int(match[1]) for match in found if match}))

    @property
    def has_clustering(self) -> bool:
        """Whether a column is about clusters."""
        return any(map(_is_of_clusters, self.columns.values()))


def _is_of_clusters(metric: str) -> bool:
    return metric.startswith("nmi_") or metric == "pairwise_f1"


def _recall(*ks: int) -> dict[str, str]:
    return {f"R@{k}": f"recall_at_{k}" for k in ks}


def _by_label(*ks: int) -> dict[str, str]:
    distances = {f"D@{k}": f"label_distance_at_{k}" for k in ks}
    return distances | {f"nDCG@{k}": f"ndcg_at_{k}" for k in ks}


_MULTI_SIMILARITY = "Wang, Han et al., CVPR 2019"
_PROXY_ANCHOR = "Kim et al., CVPR 2020"

PAPER_TABLES = {
    "topk": PaperTable(
        "Lu et al., ICCV 2019, Table 1",
        {
            "P/R@1": "precision_at_1",
            "P@3": "precision_at_3",
            "P@5": "precision_at_5",
            "P@10": "precision_at_10",
            **_recall(3, 5, 10),
            "NMI": "nmi_arithmetic",
            "mAP": "mean_average_precision",
            "F1": "pairwise_f1",
        },
        "NMI with the arithmetic mean; the paper does not say which.",
        of_categories=True,
    ),
    "weighted-contrastive": PaperTable(
        "Hong et al., Tables 2 to 4",
        {**_recall(1, 2, 4, 8), "NMI": "nmi_geometric"},
        "NMI with the geometric mean, as in the paper.",
    ),
    "multi-similarity": PaperTable(
        f"{_MULTI_SIMILARITY}, on CUB and Cars", _recall(1, 2, 4, 8, 16, 32)
    ),
    "multi-similarity-sop": PaperTable(
        f"{_MULTI_SIMILARITY}, on SOP", _recall(1, 10, 100, 1000)
    ),
    "multi-similarity-in-shop": PaperTable(
        f"{_MULTI_SIMILARITY}, on In-Shop", _recall(1, 10, 20, 30, 40, 50)
    ),
    "proxy-anchor": PaperTable(
        f"{_PROXY_ANCHOR}, on CUB and Cars", _recall(1, 2, 4, 8)
    ),
    "proxy-anchor-sop": PaperTable(
        f"{_PROXY_ANCHOR}, on SOP", _recall(1, 10, 100, 1000)
    ),
    "proxy-anchor-in-shop": PaperTable(
        f"{_PROXY_ANCHOR}, on In-Shop", _recall(1, 10, 20, 40)
    ),
    "log-ratio": PaperTable(
        "Kim et al., CVPR 2019, section 5",
        _by_label(1, 5, 10, 20, 50),
        "D is the mean label distance; the paper draws both as curves.",
        is_continuous=True,
    ),
}
"""The tables by the names of `--table` and of `table` in `[evaluation]`."""


def filled_table(
    name: str,
    metrics: Mapping[str, float],
    clustering: Mapping[str, float] | None = None,
    *,
    clusters_of: str = "classes",
) -> dict[str, Any]:
    """Fill the columns of a table with what was measured.

    Args:
        name: A name in `PAPER_TABLES`.
        metrics: The means over queries.
        clustering: Comparison of clusters, as of `tfdml.metrics.clustering_metrics`.
        clusters_of: "classes" or "categories": what the clusters are compared with.

    Returns:
        `name`, `source`, `note` and `columns`, by title the value or None where the
        images are too few for its k.
    """
    table = PAPER_TABLES[name]
    known = {**metrics, **(clustering or {})}
    note = table.note
    if table.has_clustering and clusters_of == "categories":
        note += " NMI and F1 are of the categories, as the paper has them on SOP."
    return {
        "name": name,
        "source": table.source,
        "note": note,
        "columns": {title: known.get(key) for title, key in table.columns.items()},
    }
