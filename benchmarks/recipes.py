"""Measure what recipes reach on their test images, over several seeds.

    python -m benchmarks.recipes training/recipes/small/emoji_*.toml --out results.jsonl

Each recipe is trained once for each seed. The classes of the test images were never
trained on; the weights are those of the epoch that was best on validation classes. The
table gives the mean over seeds and, after +-, half the range.
"""

import dataclasses
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.session import bare_parser, machine, write

_ROWS = (
    ("raw 32 x 32 pixels", "test_of_raw_32x32_pixels"),
    ("untrained", "test_before_training"),
    ("trained", "test_after_training"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    made = bare_parser("recipes", __doc__)
    made.add_argument("recipes", nargs="+", help="recipe files")
    made.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = made.parse_args(arguments)
    records = []
    for recipe in options.recipes:
        for seed in options.seeds:
            records.append(_run(Path(recipe), seed))
            write(options.out, records[-1])
    print(table(records))
    return 0


def _run(path: Path, seed: int) -> dict[str, Any]:
    from training.recipe.recipe import read_recipe
    from training.run.fit import fit

    recipe = read_recipe(path)
    if not recipe.data.images.endswith(".csv") and not recipe.data.test_fraction:
        raise ValueError(f"{path}: `test_fraction` must be above 0. Received: 0.")
    settings = dataclasses.replace(recipe.fit, seed=seed)
    recipe = dataclasses.replace(recipe, fit=settings)
    with tempfile.TemporaryDirectory() as folder:
        results = fit(recipe, Path(folder) / "run")
    kept = {key: results[key] for _, key in _ROWS}
    seconds = results["seconds_of_training"]
    return {"recipe": path.stem, "seed": seed, **kept, "seconds": seconds, **machine()}


def table(records: Iterable[dict[str, Any]]) -> str:
    """Write a Markdown table of runs, a line a recipe and state."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["recipe"], []).append(record)
    lines: list[str] = []
    shown: list[str] = []  # the columns of the table begun last
    for recipe, runs in groups.items():
        names = [n for n in runs[0][_ROWS[-1][1]] if not n.startswith("queries")]
        head = f"| {recipe} | " + " | ".join(names) + " |"
        if names != shown:
            shown = names
            lines += ["", head, "| --- |" + " ---: |" * len(names)]
        for row, key in _ROWS:
            cells = [_cell([run[key][name] for run in runs], name) for name in names]
            lines.append(f"| {recipe}, {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(values: Sequence[float], name: str) -> str:
    # Label distances have the unit of the labels; all else is a share.
    scale, digits = (1, 3) if "label_distance" in name else (100, 1)
    mean = scale * sum(values) / len(values)
    spread = scale * (max(values) - min(values)) / 2
    return f"{mean:.{digits}f}" + (f" +- {spread:.{digits}f}" if spread else "")


if __name__ == "__main__":
    sys.exit(main())
