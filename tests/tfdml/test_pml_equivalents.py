"""pytorch-metric-learning 2.9.0 beside what takes its place.

docs/migration/pytorch-metric-learning.md has the table, and
goldens/make_golden_pml.py recorded the numbers.
"""

import functools
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from keras import ops

import tfdml
from tfdml.layers import as_similarities
from tfdml.losses import ProxyLoss
from tfdml.ops import cosine_similarities

pytestmark = pytest.mark.backend

TESTS = Path(__file__).parents[1]
RECORDED = json.loads(
    (TESTS / "goldens" / "golden_pml.json").read_text(encoding="utf-8")
)


@functools.cache
def documented():
    """The code of the library beside each name of pytorch-metric-learning."""
    page = TESTS.parent / "docs" / "migration" / "pytorch-metric-learning.md"
    rows = re.findall(
        r"^\| `([^`]*)` \| ([^|]*) \| [^|]* \|$", page.read_text("utf-8"), re.MULTILINE
    )
    return {there: re.findall("`([^`]*)`", here) for there, here in rows}


@pytest.mark.parametrize(
    "name", list(dict.fromkeys(c["loss"] for c in RECORDED["cases"]))
)
def test_documented_loss_has_the_value_of_the_other_library(name):
    names = {"math": math, "tfdml": tfdml, **vars(tfdml.losses)}
    loss, *penalty = (eval(code, names) for code in documented()[name])  # noqa: S307
    for case in RECORDED["cases"]:
        if case["loss"] != name:
            continue
        batch = RECORDED["batches"][case["batch"]]
        labels, outputs = np.array(batch["labels"]), np.array(batch["rows"], "float32")
        value = 0.0
        if isinstance(loss, ProxyLoss):
            proxies = np.array(case["proxies"], "float32")
            outputs = cosine_similarities(outputs, proxies)
            classes = RECORDED["classes"]
            if len(proxies) > classes:
                outputs = ops.reshape(outputs, (len(labels), classes, -1))
                centers = proxies.reshape(classes, -1, proxies.shape[1])
                value = sum(float(regularizer(centers)) for regularizer in penalty)
            outputs = as_similarities(outputs)
        value += float(loss(labels, outputs))
        assert value == pytest.approx(case["value"], rel=2e-5), case["batch"]
