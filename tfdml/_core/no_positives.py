"""Warn once of batches without a positive pair, from which most losses learn nothing.

Compiled code cannot warn: there the metrics in `compile` and `RetrievalEvaluation` look
at the end of an epoch, which costs nothing.
"""

import warnings

import numpy as np
from keras import ops

from tfdml._core.batches import is_traced
from tfdml._core.tensors import Tensor

_REMEDY = (
    "A shuffled batch of many classes rarely has one. Choose a batch design, such as "
    "`tfdml.batch_designs.GroupBatches(labels, images_per_class=4, "
    "classes_per_batch=16)`, and give `BatchSequence(design, images, labels)` to `fit`."
)


def holds_positives(labels: Tensor) -> bool | None:
    """Return whether two labels are equal; `None` where it is not known.

    Args:
        labels: Class ids `[B]`, or `[B, levels]`, of which the coarsest ones count.
    """
    if is_traced(labels) or labels.shape[0] is None or labels.shape[0] < 2:
        return None
    values = ops.convert_to_numpy(labels)
    values = values[:, 0] if values.ndim > 1 else values
    return len(np.unique(values)) < len(values)


def warn_of_no_positives(found: str) -> None:
    """Warn that there is no positive pair.

    Args:
        found: Where there is none, as the first words of a sentence.
    """
    warnings.warn(
        f"{found} no positive pair, two items of one class, so that the loss is 0 or "
        f"only pushes items apart. {_REMEDY}",
        stacklevel=3,
    )
