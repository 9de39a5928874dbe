"""Apply a loss to an embedding and to its high-order moments: HORDE."""

from keras import ops

from tfdml._core.arguments import whole
from tfdml._core.marks import MOMENTS, require_mark
from tfdml._core.tensors import Tensor
from tfdml.losses._base import MetricLoss
from tfdml.losses._continuous_base import ContinuousLoss
from tfdml.losses._distillation_base import DistillationLoss
from tfdml.losses._learned_margin import LearnedMarginLoss
from tfdml.losses._learned_pairwise_sigmoid import LearnedPairwiseSigmoidLoss
from tfdml.losses._proxy_base import ProxyLoss
from tfdml.messages import shown


class HORDELoss(MetricLoss):
    """High-order regularizer: a loss on an embedding, plus the same on its moments.

    The model ends in `HighOrderMoments`: f_1 is the embedding, and f_2 to f_K are
    embeddings of the moments of order 2 to K.

        L = sum_{k=1..K} loss(labels, f_k)

    Args:
        loss: A loss of `tfdml.losses` over class ids and embeddings, which also sets
            reduction and type. The paper's is the contrastive loss.
        order: K, at least 2, as in `HighOrderMoments`.
        name: Name of the loss.

    Raises:
        TypeError: `loss` is no such loss.
        ValueError: `order` is out of range, or the output of the model is not that of
            `HighOrderMoments` of the same order.

    Example:
        >>> from tfdml.losses import ContrastiveLoss
        >>> loss = HORDELoss(ContrastiveLoss(), order=2)
        >>> embeddings, moments = np.array([[1.0, 0.0]] * 2), np.array([[0.0, 1.0]] * 2)
        >>> float(loss([7, 8], np.concatenate([embeddings, moments], axis=1))) == 2 * (
        ...     float(ContrastiveLoss()([7, 8], embeddings))
        ... )
        True

    Reference:
        Jacob, Picard, Histace and Klein, Metric Learning With HORDE: High-Order
        Regularizer for Deep Embeddings, ICCV 2019.
    """

    def __init__(
        self, loss: MetricLoss, *, order: int = 5, name: str | None = "horde_loss"
    ) -> None:
        others = (
            ContinuousLoss,
            DistillationLoss,
            HORDELoss,
            LearnedMarginLoss,
            LearnedPairwiseSigmoidLoss,
            ProxyLoss,
        )
        if not isinstance(loss, MetricLoss) or isinstance(loss, others):
            raise TypeError(
                "`loss` must be a loss of tfdml.losses over class ids and embeddings. "
                f"Received: {shown(loss)}."
            )
        super().__init__(reduction=loss.reduction, name=name, dtype=loss.dtype)
        self.loss = loss
        self.order: int = whole("order", order, 2)
        self.needs_positives = loss.needs_positives

    @property
    def compares_lengths(self) -> bool:
        """Whether the lengths of embeddings count. See `MetricLoss`."""
        return self.loss.compares_lengths

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check a batch as the loss does. See `MetricLoss.checked`."""
        remedy = f"End the model with `HighOrderMoments(order={self.order})`."
        require_mark(type(self).__name__, y_pred, MOMENTS, remedy)
        outputs = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        columns = outputs.shape[1] if len(outputs.shape) == 2 else None
        if columns is not None and columns % self.order:
            raise ValueError(
                f"The model must end with `HighOrderMoments(order={self.order})`, "
                f"whose output has a multiple of {self.order} columns. "
                f"Received: {columns} columns."
            )
        rows = [self.loss.checked(y_true, part) for part in self._parts(outputs)]
        return rows[0][0], ops.concatenate([part for _, part in rows], axis=1)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        return sum(self.loss.call(labels, part) for part in self._parts(embeddings))

    def _parts(self, outputs: Tensor) -> list[Tensor]:
        """Cut the output of the model into the embeddings of each order."""
        return list(ops.split(outputs, self.order, axis=1))
