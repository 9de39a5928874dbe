"""Write whether a new model may search an old gallery, as text and for the page."""

from collections.abc import Mapping
from typing import Any

from .page import Section, Table
from .text import aligned, metric_text, metric_title

_CHOSEN = ("precision_at_1", "r_precision", "map_at_r", "mean_average_precision")
_ROWS = {
    "old_on_old": "old on old",
    "new_on_old": "new on old",
    "new_on_new": "new on new",
}
_ORDERS = {"random": "in random order", "by_class": "worst of each class first"}


def compatibility_text(found: Mapping[str, Any]) -> str:
    """Return tables and verdict for a terminal.

    Args:
        found: What `training.evaluation.against.OldModel.measured` returned.
    """
    (head, rows), (shares, curve) = _three(found), _curve(found)
    trained = found["classes_old_model_trained_on"]
    lines = [
        f"Queries on gallery, against {found['old_model']}:",
        *aligned([head, *rows]),
        *([_trained_on(trained)] if trained else []),
        verdict(found),
        "Precision@1 of new queries by how much of the gallery is embedded again:",
        *aligned([shares, *curve]),
    ]
    return "\n".join(lines)


def compatibility_section(found: Mapping[str, Any] | None) -> Section | None:
    """Return the section of a page; None where no old model was named."""
    if found is None:
        return None
    note = verdict(found)
    if trained := found["classes_old_model_trained_on"]:
        note = f"{note} {_trained_on(trained)}"
    return Section(
        f"Compatibility with {found['old_model']}",
        f"{note} The second table has the Precision@1 of new queries by how much of "
        "the gallery is embedded again.",
        [Table(*_three(found)), Table(*_curve(found))],
    )


def verdict(found: Mapping[str, Any]) -> str:
    """Write in words whether the new model may search the old gallery."""
    change = found["change"].get("precision_at_1")
    if change is None:
        return "Not decided: with a single class there is no interval."
    points, low, high = (100 * change[key] for key in ("difference", "low", "high"))
    by = f"by {abs(points):.1f} points (95 % interval {low:+.1f} to {high:+.1f})"
    if not change["is_significant"]:
        lost = f"Up to {-low:.1f} points may be lost. " if low < 0 else ""
        return (
            "Not decided: new queries change Precision@1 in the old gallery by "
            f"{points:+.1f} points (95 % interval {low:+.1f} to {high:+.1f}). {lost}"
            "More classes narrow the interval."
        )
    if points < 0:
        return (
            "The new model must not search the old gallery: Precision@1 falls "
            f"{by}. Embed the gallery again, or train with [compatible]."
        )
    share = found["gain_share"].get("precision_at_1")
    of_gain = ""
    if share is not None:
        ends = " to ".join(f"{100 * share[end]:.0f}" for end in ("low", "high"))
        of_gain = (
            f" That is {100 * share['share']:.0f}% ({ends}) of the gain of embedding "
            "all images again."
        )
    return f"The new model may search the old gallery: Precision@1 rises {by}.{of_gain}"


def _trained_on(count: int) -> str:
    return (
        f"The old model was trained on {count:,} of these classes, so that its own "
        "results look better than on new classes."
    )


def _three(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    names = [name for name in _CHOSEN if name in found["metrics"]["old_on_old"]]
    rows = []
    for key, title in _ROWS.items():
        means, intervals = found["metrics"][key], found["intervals"].get(key, {})
        cells = []
        for name in names:
            ends = [metric_text(name, end) for end in intervals.get(name, ())]
            text = metric_text(name, means[name])
            cells.append(f"{text} ({ends[0]} to {ends[1]})" if ends else text)
        rows.append([title, *cells])
    return ["", *map(metric_title, names)], rows


def _curve(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    curve = found["backfill"]
    head = ["", *(f"{100 * share:.0f}%" for share in curve["shares"])]
    rows = [
        [title, *(metric_text("precision_at_1", m["precision_at_1"]) for m in curve[k])]
        for k, title in _ORDERS.items()
    ]
    return head, rows
