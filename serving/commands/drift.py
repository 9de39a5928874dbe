"""`drift`: compare recorded queries with the gallery that they searched."""

import argparse
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .options import add_json
from .tables import print_json, print_text, table

if TYPE_CHECKING:
    from ..search.gallery.drift import Sample


def add_drift(commands: Any) -> None:
    """Add the command."""
    drift = commands.add_parser(
        "drift", help="compare recorded queries with the gallery"
    )
    drift.add_argument("index", help="folder that `index build` wrote")
    drift.add_argument("queries", help="folder that `page --record-queries` wrote")
    drift.add_argument(
        "--since",
        metavar="DATE",
        type=_date,
        help="begin of the period, such as 2026-11-30 or 2026-11-30T18:00; queries "
        "before it are shown for comparison; default: the first query",
    )
    drift.add_argument(
        "--until",
        metavar="DATE",
        type=_date,
        help="end of the period, which is not in it; default: the last query",
    )
    drift.add_argument(
        "--figure", metavar="FILE", help="draw the distributions to this PNG file"
    )
    add_json(drift)
    drift.set_defaults(run_command=_drift, job="drift")


def _date(text: str) -> float:
    """Return the seconds since 1970 of a date, by the clock of this machine."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            "must be a date such as 2026-11-30 or 2026-11-30T18:00. "
            f"Received: {text[:100]}"
        ) from None


def _drift(parsed: argparse.Namespace) -> None:
    from tfdml.figure_style import save_small

    from ..search.gallery.drift import draw_drift, measure_drift
    from ..search.gallery.gallery import load_gallery
    from ..search.gallery.query_record import read_queries

    since = -math.inf if parsed.since is None else parsed.since
    until = math.inf if parsed.until is None else parsed.until
    if since >= until:
        raise ValueError("--since must be before --until.")
    index, gallery = load_gallery(parsed.index)
    known = gallery.calibration
    with index:
        recorded = read_queries(parsed.queries, index)
        period = recorded.between(since, until)
        if not len(period):
            raise ValueError(
                f"{parsed.queries} has no query of the period by the model of this "
                f"index. It has {len(recorded.times)} of other times, and "
                f"{recorded.of_other_models} by other models."
            )
        drift = measure_drift(
            index,
            period,
            recorded.between(-math.inf, since),
            threshold=None if known is None else known.threshold,
        )
    if parsed.figure is not None:
        save_small(draw_drift(drift), parsed.figure)
    if parsed.json:
        print_json(
            {
                "index": parsed.index,
                "threshold": drift.queries.threshold,
                "of_other_models": recorded.of_other_models,
                "samples": {n: _json(sample) for n, sample in drift.samples.items()},
                "distances": {
                    name: found._asdict() for name, found in drift.distances.items()
                },
            }
        )
        return
    header = ["", "number", "median", "lowest 5 %", "no match", "from", "to"]
    print_text(table(header, [_row(*each) for each in drift.samples.items()]))
    print()
    for name, found in drift.distances.items():
        print(
            f"Distance of the queries from the {name}: D = {found.statistic:.4f} "
            f"(p = {found.p_value:.2g})."
        )
    if recorded.of_other_models:
        print(f"{recorded.of_other_models:,} queries by other models were left out.")


def _row(name: str, sample: "Sample") -> list[str | int | float | None]:
    share = sample.without_match or (None, None, None)
    return [name, len(sample.scores), sample.median, sample.lowest, *share]


def _json(sample: "Sample") -> dict[str, Any]:
    share = sample.without_match
    return {
        "number": len(sample.scores),
        "median": sample.median,
        "lowest": sample.lowest,
        "without_match": None if share is None else share._asdict(),
    }
