"""Distances between labels that are no classes: what is refused, what stays exact."""

import numpy as np
import pytest
from keras import ops

from tfdml.ops import squared_label_distance

pytestmark = pytest.mark.backend


def test_label_vectors_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"same axes.*\(2, 2\) and \(2, 5\)"):
        squared_label_distance(np.ones((2, 2)), np.ones((2, 5)))


def test_distances_of_large_whole_labels_are_exact():
    labels = np.array([1_700_000_001, 1_700_000_004], "int32")
    received = squared_label_distance(labels, labels[:1] + 1)
    assert ops.convert_to_numpy(received).tolist() == [[1.0], [4.0]]
