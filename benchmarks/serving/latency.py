"""Summarize the times of requests."""

from collections.abc import Sequence
from typing import Any

LEAST_SAMPLES = 1000
"""Of fewer, less than ten lie above the 99th percentile, which is then chance."""


def latency(times_ms: Sequence[float]) -> dict[str, Any]:
    """Describe the times of requests.

    Args:
        times_ms: How long each took, in any order.

    Returns:
        `samples`, how many there are; `p50_ms`, the time that half of them took at
        most, None without any; `p99_ms`, the same of 99 %, None below 1000.
    """
    ordered, count = sorted(times_ms), len(times_ms)
    return {
        "samples": count,
        "p50_ms": ordered[count // 2] if count else None,
        "p99_ms": ordered[int(0.99 * count)] if count >= LEAST_SAMPLES else None,
    }
