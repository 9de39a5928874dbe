"""Compute the distillation of similarities."""

from typing import Any

from keras import ops

from tfdml._core.tensors import Tensor, at_least_float32
from tfdml.losses._distillation_base import DistillationLoss
from tfdml.losses._ranges import scale_of_exponents
from tfdml.ops import cosine_similarities


class SimilarityDistillationLoss(DistillationLoss):
    """Distill the similarities of a batch: which items the teacher has near an anchor.

    With s and t the cosine similarities of an anchor with the whole batch, of student
    and teacher,

        L_i = T^2 KL(softmax(t_i / T) || softmax(s_i / T))

    and the loss is the mean over the anchors. An anchor is among its own items, as in
    the authors' code. Teacher and student may have any dimensions. The teacher may be a
    larger embedder, or, as in the paper, a longer embedding or the features of the same
    network, for a student of few components.

    Args:
        temperature: T, from 1e-4 to 1e4. In the paper 1, with a weight of the loss of
            50 (`loss_weights` of `compile`).
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `temperature` is out of range, or `y_true` are no embeddings.

    Example:
        >>> loss = SimilarityDistillationLoss()
        >>> teacher = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        >>> float(loss(teacher, [[0.0, 2.0], [3.0, 0.0]]))  # similarities are equal
        0.0

    Reference:
        Roth et al., S2SD: Simultaneous Similarity-based Self-Distillation for Deep
        Metric Learning, ICML 2021.
    """

    def __init__(self, temperature: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature: float = scale_of_exponents("temperature", temperature)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute L_i, `[B]`, given the teacher's embeddings as labels."""
        wanted, received = (
            ops.log_softmax(
                at_least_float32(cosine_similarities(x, x)) / self.temperature, axis=1
            )
            for x in (labels, embeddings)
        )
        divergence = ops.sum(ops.exp(wanted) * (wanted - received), axis=1)
        return ops.cast(self.temperature**2 * divergence, embeddings.dtype)
