"""The report of an evaluation, one HTML file that needs nothing else."""

import base64
import io
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from training.evaluation.figures import Drawn, Figure, figures
from training.reports.html_page import environment_table, html_page, html_table
from training.reports.text import metric_text, metric_title

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
    parts = [
        f"<h1>{escape(results['model'])}</h1>",
        f'<p class="lead">{escape(_lead(results))}</p>',
        _warning(results),
        _metrics(results),
        _superclasses(results),
        _clusters(results),
        _verification(results),
        _categories(results),
        '<h2>Figures</h2><div class="figures">',
        *map(figure_html, figures(drawn)),
        "</div>",
        environment_table(results["environment"]),
    ]
    page = html_page(f"{results['model']}: evaluation", parts)
    (folder / "report.html").write_text(page, encoding="utf-8")


def figure_html(figure: Figure) -> str:
    """Return a figure with its title and note, its picture inside of the page."""
    file = io.BytesIO()
    figure.drawing.savefig(file, format="png", dpi=160)
    picture = base64.b64encode(file.getvalue()).decode("ascii")
    width = round(figure.drawing.get_figwidth() * 100)
    return (
        f'<figure style="max-width: {width}px">'
        f"<figcaption>{escape(figure.title)}</figcaption>"
        f'<p class="note">{escape(figure.note)}</p>'
        f'<img alt="{escape(figure.title)}" width="{width}" '
        f'src="data:image/png;base64,{picture}"></figure>'
    )


def _lead(results: Mapping[str, Any]) -> str:
    of_classes = f" of {results['classes']:,} classes" * bool(results["classes"])
    split = "" if results["split"] == "all" else f" ({results['split']})"
    return (
        f"{results['images']:,} images{of_classes} in {results['of']}{split}, "
        f"embeddings of dimension {results['dimension']}, on {results['backend']}."
    )


def _warning(results: Mapping[str, Any]) -> str:
    count = results["classes_trained_on"]
    if not count:
        return ""
    return (
        f'<p class="note"><b>{count:,} of the classes have the name of one that the '
        "run trained on:</b> the numbers say less about classes it has never seen.</p>"
    )


def _metrics(results: Mapping[str, Any]) -> str:
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
    note = (
        f"{results['queries']:,} queries"
        + f"; {without:,} without anything to find are left out" * bool(without)
        + ". The interval says how far the mean would move with other classes of the "
        "same kind."
    )
    table = html_table(head[:keep], (row[:keep] for row in rows))
    by_k = _by_k(results["metrics"])
    return f'<h2>Retrieval</h2><p class="note">{escape(note)}</p>{table}{by_k}'


def _without_k(metrics: Mapping[str, float]) -> list[str]:
    """Return the metrics that have no k, and Precision@1; all that has no classes."""
    if "precision_at_1" not in metrics:
        return list(metrics)
    single = [name for name in metrics if not _K.search(name)]
    return ["precision_at_1", *single]


def _by_k(metrics: Mapping[str, float]) -> str:
    """Return a table of Precision@k and Recall@k, a column a k."""
    found = [name for name in metrics if name.startswith("recall_at_")]
    if not found:
        return ""
    ks = [name.removeprefix("recall_at_") for name in found]
    rows = [
        [title, *(metric_text("recall_at_", metrics[f"{name}_at_{k}"]) for k in ks)]
        for name, title in (("recall", "Recall@k"), ("precision", "Precision@k"))
    ]
    return html_table(["k", *ks], rows)


def _superclasses(results: Mapping[str, Any]) -> str:
    if "superclasses" not in results:
        return ""
    metrics = results["superclasses"]["metrics"]
    rows = [[metric_title(n), metric_text(n, metrics[n])] for n in _without_k(metrics)]
    return (
        '<h2>Retrieval of the category</h2><p class="note">The same searches, where '
        "any picture of the query's category counts as found.</p>"
        + html_table(["", "mean over queries"], rows)
        + _by_k(metrics)
    )


def _clusters(results: Mapping[str, Any]) -> str:
    columns = {"classes": results.get("clustering")}
    if "superclasses" in results:
        columns["categories"] = results["superclasses"]["clustering"]
    if not columns["classes"]:
        return ""
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
    return (
        '<h2>Clustering</h2><p class="note">k-means with as many clusters as there are '
        "labels, compared with these.</p>" + html_table(["", *columns], rows)
    )


def _clustered(name: str, value: float) -> str:
    return f"{value:,}" if name == "clusters" else f"{100 * value:.1f}%"


def _verification(results: Mapping[str, Any]) -> str:
    found = results.get("verification")
    if not found:
        return ""
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
    table = html_table(head, rows) if rows else ""
    return (
        f'<h2>Verification</h2><p class="note">Area under the ROC curve of all pairs: '
        f"{100 * found['pair_auc']:.2f}%.</p>{table}"
    )


def _categories(results: Mapping[str, Any]) -> str:
    found = results.get("categories")
    if not found:
        return ""
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
    return "<h2>By category, the worst first</h2>" + html_table(
        ["", "queries", *map(metric_title, names)], rows
    )
