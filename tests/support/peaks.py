"""Measure the memory that Python and NumPy ask for."""

import tracemalloc
from collections.abc import Callable
from typing import Any


def peak_of(call: Callable[[], Any]) -> int:
    """Return how many bytes a call has taken at most."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
