"""Write the report of an evaluation."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..recipe.published import Published
from ..reports.compatibility import compatibility_section
from ..reports.page import (
    Section,
    Table,
    environment_section,
    paper_section,
    write_page,
)
from ..reports.published import published_section
from ..reports.text import metric_text, metric_title, reranked_table
from ..reports.threshold import threshold_rows, threshold_warning
from .figures import Drawn, figures

_K = re.compile(r"_at_[0-9]+$")
_CHOSEN = ("precision_at_1", "r_precision", "map_at_r", "mean_average_precision")


def write_evaluation_report(
    folder: Path, results: Mapping[str, Any], drawn: Drawn
) -> None:
    """Write `report.html`.

    Args:
        folder: Where to.
        results: What `metrics.json` will hold.
        drawn: What the figures show.

    Raises:
        OSError: The file cannot be written.
    """
    sections = [
        _metrics(results),
        compatibility_section(results.get("compatibility")),
        paper_section(results),
        published_section(Published(**results.get("published", {})), results),
        _reranked(results),
        _superclasses(results),
        _clusters(results),
        _verification(results),
        _at_threshold(results),
        _categories(results),
        Section("Figures", figures=figures(drawn)),
        environment_section(results["environment"]),
    ]
    write_page(
        folder / "report.html",
        f"{results['model']}: evaluation",
        _lead(results),
        sections=[section for section in sections if section],
    )


def _lead(results: Mapping[str, Any]) -> str:
    of_classes = f" of {results['classes']:,} classes" if results["classes"] else ""
    split = "" if results["split"] == "all" else f" ({results['split']})"
    text = (
        f"{results['images']:,} images{of_classes} in {results['of']}{split}, "
        f"embeddings of dimension {results['dimension']}, on {results['backend']}."
    )
    if results["compared_by"] != "cosine":
        text += (
            " They have any length and are compared by squared Euclidean distance, so "
            "that pairs are not verified: a threshold of cosines would say nothing."
        )
    if count := results["classes_trained_on"]:
        text += (
            f" {count:,} of the classes share the name of a class that the run trained "
            "on, so the metrics say less about unseen classes."
        )
    return text


def _metrics(results: Mapping[str, Any]) -> Section:
    macro, intervals = results.get("macro", {}), results["intervals"]
    head = ["", "mean over queries", "95 % interval", "mean over classes"]
    rows = []
    for name in _without_k(results["metrics"]):
        interval = " to ".join(metric_text(name, v) for v in intervals.get(name, ()))
        over_classes = metric_text(name, macro[name]) if macro else ""
        value = metric_text(name, results["metrics"][name])
        rows.append([metric_title(name), value, interval, over_classes])
    keep = len(head) if macro else 3
    without = results["queries_without_positive"]
    left_out = f" {without:,} queries without a positive are left out." * bool(without)
    note = (
        f"{results['queries']:,} queries.{left_out} The interval shows how far the "
        "mean would move with other classes of the same kind."
    )
    table = Table(head[:keep], [row[:keep] for row in rows])
    return Section("Retrieval", note, [table, *_by_k(results["metrics"])])


def _without_k(metrics: Mapping[str, float]) -> list[str]:
    """Return Precision@1 and the metrics without a k; all if there are no classes."""
    if "precision_at_1" not in metrics:
        return list(metrics)
    single = [name for name in metrics if not _K.search(name)]
    return ["precision_at_1", *single]


def _by_k(metrics: Mapping[str, float]) -> list[Table]:
    """Return a table of Precision@k and Recall@k, one column per k, if measured."""
    found = [name for name in metrics if name.startswith("recall_at_")]
    if not found:
        return []
    ks = [name.removeprefix("recall_at_") for name in found]
    rows = [
        [title, *(metric_text("recall_at_", metrics[f"{name}_at_{k}"]) for k in ks)]
        for name, title in (("recall", "Recall@k"), ("precision", "Precision@k"))
    ]
    return [Table(["k", *ks], rows)]


def _reranked(results: Mapping[str, Any]) -> Section | None:
    if "reranked" not in results:
        return None
    head, *rows = reranked_table(results)
    note = "The same queries, after the results of each were ranked again."
    return Section("Re-ranking", note, [Table(head, rows)])


def _superclasses(results: Mapping[str, Any]) -> Section | None:
    if "superclasses" not in results:
        return None
    metrics = results["superclasses"]["metrics"]
    rows = [[metric_title(n), metric_text(n, metrics[n])] for n in _without_k(metrics)]
    return Section(
        "Retrieval by category",
        "The same searches; any image of the query's category counts as a positive.",
        [Table(["", "mean over queries"], rows), *_by_k(metrics)],
    )


def _clusters(results: Mapping[str, Any]) -> Section | None:
    columns = {"classes": results.get("clustering")}
    if "superclasses" in results:
        columns["categories"] = results["superclasses"]["clustering"]
    if not columns["classes"]:
        return None
    rows = [
        [title, *(_clustered(name, found[name]) for found in columns.values() if found)]
        for name, title in (
            ("clusters", "clusters"),
            ("nmi_arithmetic", "NMI (arithmetic)"),
            ("nmi_geometric", "NMI (geometric)"),
            ("pairwise_f1", "pairwise F1"),
            ("adjusted_rand", "adjusted Rand"),
        )
    ]
    return Section(
        "Clustering",
        "k-means with one cluster per label, compared with the labels.",
        [Table(["", *columns], rows)],
    )


def _clustered(name: str, value: float) -> str:
    return f"{value:,}" if name == "clusters" else f"{100 * value:.1f}%"


def _verification(results: Mapping[str, Any]) -> Section | None:
    found = results.get("verification")
    if not found:
        return None
    rows = []
    prefix = "threshold_at_far_"
    for name in found:
        if not name.startswith(prefix):
            continue
        rate = name.removeprefix(prefix)
        accepted = f"tar_at_far_{rate}"
        interval = [found.get(f"{accepted}_{end}") for end in ("low", "high")]
        rows.append(
            [
                f"{100 * float(rate):g}%",
                f"{100 * found[accepted]:.1f}%",
                " to ".join(f"{100 * v:.1f}%" for v in interval if v is not None),
                f"{found[name]:.4f}",
            ]
        )
    head = ["false accept rate", "true accept rate", "95 % interval", "threshold"]
    auc = 100 * found["pair_auc"]
    return Section(
        "Verification",
        f"Area under the ROC curve of all pairs: {auc:.2f}%.{_consistency(found)}",
        [Table(head, rows)] if rows else (),
    )


def _consistency(found: Mapping[str, float]) -> str:
    """Describe how differently one threshold works for different classes."""
    if "opis" not in found:
        return ""
    return (
        f" OPIS {found['opis']:.2e}: how much one threshold differs in its use for "
        "different classes (0: not at all); "
        f"mean utility {100 * found['utility']:.1f}%."
    )


def _at_threshold(results: Mapping[str, Any]) -> Section | None:
    at = results.get("at_threshold")
    if not at:
        return None
    note = (
        f"What a search answers with the threshold from `calibrate`: a similarity of "
        f"{at['threshold']:.4f} or more is a match. {threshold_warning(at)}"
    )
    rows = [[name, text] for name, text in threshold_rows(at)]
    return Section("Threshold", note.rstrip(), [Table([], rows)])


def _categories(results: Mapping[str, Any]) -> Section | None:
    found = results.get("categories")
    if not found:
        return None
    names = [name for name in _CHOSEN if name in results["metrics"]]
    ordered = sorted(found.items(), key=lambda item: item[1].get("precision_at_1", 2))
    rows = [
        [
            str(category),
            f"{values['queries']:,}",
            *(metric_text(n, values[n]) if n in values else "" for n in names),
        ]
        for category, values in ordered
    ]
    head = ["", "queries", *map(metric_title, names)]
    return Section("Categories, worst first", tables=[Table(head, rows)])
