"""Golden cases times types, and a few of them compiled by XLA."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.all_losses import ENTRIES
from tests.support.autodiff import BACKEND
from tests.support.golden_cases import cases

_ON_JAX = "topk_precision_loss"
# Keras 3.15 on torch computes `segment_sum` in float32.
_SINGLE = ("histogram_loss", "npair_mc", "proxy_anchor")


def every_golden() -> Any:
    """Return a decorator for tests of `entry`, `golden` and what `variants` gives.

    `golden` is a name of `tests.support.golden_losses`, which begins with that of its
    cases.
    """
    parameters = [
        pytest.param(
            entry,
            golden,
            *found.values,
            id=f"{type(entry.loss).__name__}-{golden}-{found.id}".replace(" ", "_"),
            # One loss stands for all in the part that `make test` runs on JAX.
            marks=[*found.marks, *[pytest.mark.jax] * (golden == _ON_JAX)],
        )
        for entry in ENTRIES.values()
        for golden in entry.golden
        for found in _variants(golden.split()[0])
    ]
    names = ("entry", "golden", "case", "dtype", "compiled")
    return pytest.mark.parametrize(names, parameters)


def variants(loss: str) -> Any:
    """Return a decorator for tests of `case`, `dtype` and `compiled`.

    Every case runs in float64. Two of different sizes and conditions stand for all in
    float32, the first among them, which overflows before others do where there is such
    a case; `make test-all` runs the others, and compiles the two, which takes a second
    for each. JAX is always compiled: without compilation it compiles each operation for
    each shape. There the first case stands for all.
    """
    return pytest.mark.parametrize(("case", "dtype", "compiled"), list(_variants(loss)))


def _variants(loss: str) -> Iterator[Any]:
    found = cases(loss)
    chosen = {p.id for p in found[::6][:2]}
    runs = [(dtype, BACKEND == "jax") for dtype in ("float64", "float32")]
    if BACKEND == "tensorflow":
        runs.append(("float32", True))
    for case in found:
        for dtype, compiled in runs:
            if BACKEND == "torch" and dtype == "float64" and loss in _SINGLE:
                continue
            if compiled and dtype == "float32" and case.id not in chosen:
                continue
            if BACKEND == "jax":
                stands_for_all = case.id == found[0].id and dtype == "float64"
            else:
                stands_for_all = dtype == "float64" or case.id in chosen
                stands_for_all = stands_for_all and not compiled
            yield pytest.param(
                *case.values,
                dtype,
                compiled,
                id=f"{case.id}-{dtype}-{'xla' if compiled else 'eager'}",
                marks=[] if stands_for_all else [pytest.mark.full],
            )
