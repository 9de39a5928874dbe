"""Golden cases times types, and a few of them compiled by XLA."""

from typing import Any

import pytest

from tests.support.autodiff import BACKEND
from tests.support.golden_cases import cases

# Keras 3.15 on torch computes `segment_sum` in float32.
_SINGLE = ("histogram_loss", "npair_mc", "proxy_anchor")


def variants(loss: str) -> Any:
    """Return a decorator for tests of `case`, `dtype` and `compiled`.

    Every case runs in float64. Two of different sizes and conditions stand for all in
    float32, the first among them, which overflows before others do where there is such
    a case; `make test-all` runs the others, and compiles the two, which takes a second
    for each. JAX is always compiled: without compilation it compiles each operation for
    each shape. There the first case stands for all.
    """
    found = cases(loss)
    chosen = {p.id for p in found[::6][:2]}
    compiled = BACKEND == "jax"
    parameters = []
    for case in found:
        for dtype in ("float64", "float32"):
            if BACKEND == "torch" and dtype == "float64" and loss in _SINGLE:
                continue
            if compiled and dtype == "float32" and case.id not in chosen:
                continue
            stands_for_all = case.id == found[0].id and dtype == "float64"
            if BACKEND != "jax":
                stands_for_all = dtype == "float64" or case.id in chosen
            marks = [] if stands_for_all else [pytest.mark.full]
            parameters.append((case, dtype, compiled, marks))
        if BACKEND == "tensorflow" and case.id in chosen:
            parameters.append((case, "float32", True, [pytest.mark.full]))
    return pytest.mark.parametrize(
        ("case", "dtype", "compiled"),
        [
            pytest.param(
                *case.values,
                dtype,
                compiled,
                id=f"{case.id}-{dtype}-{'xla' if compiled else 'eager'}",
                marks=marks,
            )
            for case, dtype, compiled, marks in parameters
        ],
    )
