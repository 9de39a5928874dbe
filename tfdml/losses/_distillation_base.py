"""Define the base class of the losses on the embeddings of a teacher."""

from typing import Any

import keras
from keras import ops

from tfdml._core.arrays import as_array
from tfdml._core.batches import refuse_few_rows, refuse_long
from tfdml._core.marks import refuse_marks
from tfdml._core.tensors import Tensor
from tfdml.losses._base import MetricLoss


class DistillationLoss(MetricLoss):
    """A loss that compares the embeddings of a batch with those of a teacher.

    `y_true` are the embeddings of the teacher, float `[B, teacher's dimension]`, in
    place of labels, and `y_pred` those of the student, whose dimension may be another.
    What the teacher says is constant: no gradient reaches it.

    A subclass writes `call(teacher, student)` and returns one value per anchor.
    """

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check the embeddings of teacher and student. See `MetricLoss.checked`."""
        refuse_marks(y_pred)
        teacher = _numbers(y_true)
        kind = keras.backend.standardize_dtype(teacher.dtype)
        if len(teacher.shape) != 2 or teacher.shape[1] == 1 or "float" not in kind:
            raise ValueError(
                "The labels (`y_true`) must be the teacher's embeddings, floats of the "
                "shape [batch, dimension]. "
                f"Received: shape={tuple(teacher.shape)}, dtype={kind}. Give the "
                "model one output for class ids and another for the teacher."
            )
        teacher = ops.stop_gradient(ops.cast(teacher, self.dtype))
        student = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        if len(student.shape) != 2:
            raise ValueError(
                "The embeddings (`y_pred`) must have the shape [batch, dimension]. "
                f"Received: shape={tuple(student.shape)}."
            )
        rows = teacher.shape[0], student.shape[0]
        if None not in rows and rows[0] != rows[1]:
            raise ValueError(
                "The teacher's embeddings (`y_true`) and the embeddings (`y_pred`) "
                "must have equally many rows. "
                f"Received: {rows[0]} and {rows[1]} rows."
            )
        refuse_few_rows(student, 2, "or there is no pair to compare")
        if self.compares_lengths:
            return refuse_long(teacher), refuse_long(student)
        return teacher, student


def _numbers(values: Any) -> Tensor:
    """Return what was given for the teacher's embeddings as a tensor."""
    if keras.backend.is_keras_tensor(values) or ops.is_tensor(values):
        return values
    array = as_array("y_true", values)
    if array.dtype.kind not in "iufbV":
        raise ValueError(
            "The labels (`y_true`) must be the teacher's embeddings, which are "
            f"numbers. Received: dtype={array.dtype}."
        )
    return ops.convert_to_tensor(array)
