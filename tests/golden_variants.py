"""Golden cases times types, and two of them compiled by XLA."""

from typing import Any

import pytest

from tests.autodiff import BACKEND
from tests.golden_cases import cases

# JAX without compilation compiles each operation for each shape: seconds a case.
_ALL = (
    [("float64", True, "xla")]
    if BACKEND == "jax"
    else [("float64", False, "eager"), ("float32", False, "eager")]
)


def variants(loss: str) -> Any:
    """Return a decorator for tests of `case`, `dtype` and `compiled`.

    Every case runs in both types as it is. Compilation of a TensorFlow function takes a
    second a case, so two cases of different sizes and conditions stand for all.
    """
    found = cases(loss)
    chosen = {p.id for p in found[1::6][:2]}
    return pytest.mark.parametrize(
        ("case", "dtype", "compiled"),
        [
            pytest.param(*p.values, dtype, compiled, id=f"{p.id}-{dtype}-{word}")
            for p in found
            for dtype, compiled, word in [
                *_ALL,
                *([("float32", True, "xla")] if p.id in chosen else []),
            ]
        ],
    )
