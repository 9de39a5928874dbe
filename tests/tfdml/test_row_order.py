"""Ranks in sorted rows, against NumPy's."""

import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import tensors
from tfdml._core.row_order import ranks

pytestmark = pytest.mark.backend


@pytest.mark.parametrize("ties", [False, True])
def test_ranks_equal_those_of_numpy(ties):
    generator = np.random.default_rng(3)
    rows = np.sort(generator.integers(0, 9, (4, 7)) / 8, axis=1)
    rows[2] = np.inf
    values = generator.integers(-1, 10, (4, 11)) / 8
    received = ops.convert_to_numpy(ranks(*tensors(rows, values), ties=ties))
    side = "right" if ties else "left"
    expected = [
        np.searchsorted(*row, side=side) for row in zip(rows, values, strict=True)
    ]
    np.testing.assert_array_equal(received, expected)
