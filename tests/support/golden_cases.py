"""The golden numbers of the losses, and how a loss is compared with them."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import differentiated, value_and_gradient

_FILE = Path(__file__).parents[1] / "goldens" / "goldens.json"
_TOLERANCE = {
    "float64": {"value": 1e-9, "gradient": 1e-7},
    "float32": {"value": 2e-5, "gradient": 2e-4},
}


@functools.cache
def _goldens() -> dict[str, Any]:
    return json.loads(_FILE.read_text(encoding="utf-8"))


def cases(loss: str) -> list[Any]:
    """Return the cases of a loss, as parameters of a test with their ids."""
    found = [c for c in _goldens()["cases"] if c["loss"] == loss]
    assert found, loss
    return [pytest.param(c, id=c["id"]) for c in found]


def losses_of_cases() -> set[str]:
    """Return the names of the losses that have cases."""
    return {case["loss"] for case in _goldens()["cases"]}


def sampler_cases(prefix: str) -> list[Any]:
    """Return the cases of samplers and weights whose id starts so."""
    found = [c for c in _goldens()["sampler_cases"] if c["id"].startswith(prefix)]
    assert found, prefix
    return [pytest.param(c, id=c["id"]) for c in found]


def check(
    case: dict[str, Any],
    function: Callable[..., Any],
    dtype: str,
    *,
    compiled: bool = False,
) -> None:
    """Compare value and gradients of a loss with a case, as its flags allow.

    Args:
        case: A golden case.
        function: Maps the case's float inputs (by name: `X`, `proxies`, ...) of the
            given dtype to the scalar loss.
        dtype: "float64" or "float32".
        compiled: Whether the function is compiled by XLA.
    """
    expected = case["expected"]
    names = [n.removeprefix("grad_") for n in expected if n.startswith("grad_")]
    inputs = {n: np.array(case["inputs"][n], dtype=dtype) for n in names}
    tolerance = _TOLERANCE[dtype]
    both = differentiated(lambda x: function(**x), compiled=compiled)
    value, gradients = both(inputs)
    assert np.isfinite(value)
    if not case.get("discontinuous_here"):
        scale = max(1.0, abs(expected["loss"]))
        assert value == pytest.approx(
            expected["loss"], rel=0, abs=tolerance["value"] * scale
        )
    for name, gradient in gradients.items():
        assert np.all(np.isfinite(gradient))
        right = expected[f"grad_{name}"]
        if case.get("discontinuous_here") or right is None:
            continue
        if dtype == "float32" and not case["kink_free_1e-4"]:
            continue
        right = np.array(right)
        largest = max(np.abs(right).max(), 1e-12)
        np.testing.assert_allclose(
            gradient, right, rtol=0, atol=tolerance["gradient"] * largest
        )


def assert_computes(
    function: Callable[..., Any],
    x: np.ndarray,
    value: float,
    gradient: Any,
    tolerance: float,
    gradient_tolerance: float | None = None,
) -> None:
    """Compare value and gradient at x with what another library computed.

    Args:
        function: Maps x to a scalar.
        x: Embeddings.
        value: The value there.
        gradient: The gradient there, of the shape of x.
        tolerance: Of the value, relative where it is above 1.
        gradient_tolerance: Relative to the largest entry. Default: 10 times the other.
    """
    received, slopes = value_and_gradient(function, x)
    assert received == pytest.approx(value, rel=tolerance, abs=tolerance)
    assert np.all(np.isfinite(slopes))
    gradient = np.asarray(gradient)
    atol = (gradient_tolerance or 10 * tolerance) * np.abs(gradient).max()
    np.testing.assert_allclose(slopes, gradient, rtol=0, atol=atol)


def rows_of_pairs(anchors, positives):
    """Mix anchors and positives into one batch: positives follow in reverse order."""
    names = np.arange(anchors.shape[0])
    rows = ops.concatenate([anchors, ops.flip(positives, axis=0)], axis=0)
    return np.concatenate([names, names[::-1]]), rows
