"""Check the values that plots draw."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfdml.messages import shown


def runs_of(argument: str, runs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check that a mapping by name of run holds at least one, and return it."""
    if not isinstance(runs, Mapping):
        raise TypeError(
            f"`{argument}` must map names of runs to their values. "
            f"Received: {type(runs).__name__}."
        )
    if not runs:
        raise ValueError(
            f"`{argument}` must hold at least one run. Received: {shown(runs)}."
        )
    return runs


def numbers(
    argument: str, values: Any, *, low: float = -math.inf, high: float = math.inf
) -> np.ndarray:
    """Check one row of finite numbers from low to high, and return it in float64."""
    row = np.asarray(values)
    if row.ndim != 1 or not row.size or row.dtype.kind not in "iuf":
        raise ValueError(
            f"`{argument}` must be one row of numbers, at least one. "
            f"Received: shape {row.shape}, dtype {row.dtype}."
        )
    row = row.astype("float64")
    unfit = ~(np.isfinite(row) & (row >= low) & (row <= high))
    if unfit.any():
        place = int(np.argmax(unfit))
        limits = "" if low == -math.inf else f" and from {low:g} to {high:g}"
        raise ValueError(
            f"`{argument}` must be finite{limits}. "
            f"Received: {row[place]} at place {place}."
        )
    return row
