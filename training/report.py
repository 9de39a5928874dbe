"""What a run measured, as text."""

from typing import Any

__all__ = ["summary"]


def summary(results: dict[str, Any]) -> str:
    """Write the contents of a run's `metrics.json` as a table.

    Args:
        results: What `training.fit.fit` returned.

    Returns:
        Several lines of text.
    """
    rows = {
        "before training": results["test_before_training"],
        "after training": results["test_after_training"],
        "raw 32 x 32 pixels": results["test_of_raw_32x32_pixels"],
    }
    head = (
        f"{results['images']['test']} test images of {results['classes']['test']} "
        "classes that training never saw"
    )
    if not rows["after training"]:
        return f"{head}: nothing to measure."
    names = [n for n in rows["after training"] if not n.startswith("queries")]
    lines = [head, " " * 20 + "".join(f"{_title(name):>14}" for name in names)]
    for row, values in rows.items():
        cells = "".join(f"{100 * values[name]:13.1f}%" for name in names)
        lines.append(f"{row:<20}{cells}")
    without = rows["after training"]["queries_without_positive"]
    if without:
        lines.append(f"{without} images alone in their class are no queries.")
    return "\n".join(lines)


def _title(name: str) -> str:
    name = name.replace("precision_at_", "Precision@").replace("recall_at_", "Recall@")
    return name.replace("map_at_r", "MAP@R")
