"""Write what the threshold of a search means for those who search."""

from collections.abc import Mapping
from typing import Any

from tfdml.metrics import Calibration

_LEAST_RECALL = 0.5


def calibration_text(found: Calibration) -> str:
    """Write what a new threshold means, on the images that it was chosen on.

    Args:
        found: The threshold, with its rates.

    Returns:
        Several lines of text; the last one warns where most searches find nothing.
    """
    rows = dict(threshold_rows(found.to_json()))
    low, high = 100 * found.low, 100 * found.high
    wanted = found.target.replace("_", " ")
    rows[wanted] += (
        f" ({low:.1f}% to {high:.1f}% at 95% confidence; "
        f"wanted {100 * found.target_value:g}%)"
    )
    lines = [
        f"A match is a similarity of {found.threshold:.4f} or more. "
        "On the validation images:",
        *(f"  {name:<21}{text}" for name, text in rows.items()),
    ]
    if warning := threshold_warning(found.to_json()):
        lines.append(f"warning: {warning}")
    return "\n".join(lines)


def threshold_rows(rates: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Write the rates at a threshold, each with what it is a share of.

    Args:
        rates: Those of `MatchScores.rates_at` or of a calibration, with `gallery`, the
            number of images that were searched.

    Returns:
        The name and the text of each.
    """
    queries, answered = rates["queries"], rates["answered"]
    correct = "none, because nothing is answered"
    if answered:
        correct = f"{100 * rates['precision']:.1f}% of the answers are correct"
    return [
        (
            "answered",
            f"{100 * answered / queries:.1f}% of the queries ({answered:,} of "
            f"{queries:,}, in a gallery of {rates['gallery']:,})",
        ),
        ("precision", correct),
        (
            "recall",
            f"{100 * rates['recall']:.1f}% of the queries with a positive are "
            "answered correctly",
        ),
        (
            "false positive rate",
            f"{100 * rates['false_positive_rate']:.1f}% of the queries would be "
            "answered if their class were missing",
        ),
    ]


def threshold_warning(rates: Mapping[str, Any]) -> str:
    """Warn of a threshold at which most searches find nothing.

    Args:
        rates: As in `threshold_rows`.

    Returns:
        What happens and what to try; empty where at least half of the queries with a
        positive are answered correctly.
    """
    if rates["recall"] >= _LEAST_RECALL:
        return ""
    return (
        f"Only {100 * rates['recall']:.1f}% of the queries with a positive are "
        'answered correctly; most others get "No match". Calibrate with a lower '
        "--precision or a higher --false-positive-rate, or train a better model: "
        "longer, on more images, or from trained weights. Without calibration.json in "
        "the run, an exported model always answers."
    )
