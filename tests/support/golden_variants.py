"""Golden cases times types, and two of them compiled by XLA."""

from typing import Any

import pytest

from tests.support.autodiff import BACKEND
from tests.support.golden_cases import cases

# JAX without compilation compiles each operation for each shape: seconds a case.
_ALL = (
    [("float64", True, "xla")]
    if BACKEND == "jax"
    else [("float64", False, "eager"), ("float32", False, "eager")]
)
_CHOSEN = [("float32", True, "xla")]
# Keras 3.15 on torch computes `segment_sum` in float32.
_SINGLE = ("histogram_loss", "npair_mc", "proxy_anchor")


def variants(loss: str) -> Any:
    """Return a decorator for tests of `case`, `dtype` and `compiled`.

    Every case runs in both types as it is. Compilation of a TensorFlow function takes a
    second a case, so two cases of different sizes and conditions stand for all, the
    first among them, which overflows before others do where there is such a case.
    """
    found = cases(loss)
    chosen = {p.id for p in found[::6][:2]}
    everywhere, sometimes = _ALL, _CHOSEN
    if BACKEND == "torch":  # which is not compiled
        everywhere, sometimes = _ALL[1:] if loss in _SINGLE else _ALL, []
    return pytest.mark.parametrize(
        ("case", "dtype", "compiled"),
        [
            pytest.param(*p.values, dtype, compiled, id=f"{p.id}-{dtype}-{word}")
            for p in found
            for dtype, compiled, word in everywhere
            + (sometimes if p.id in chosen else [])
        ],
    )
