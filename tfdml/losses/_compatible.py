"""Add the influence of an old model to a loss: backward-compatible training."""

from keras import ops

from tfdml._core.arguments import above_zero
from tfdml._core.batches import gallery_masks
from tfdml._core.marks import BOTH_PROXIES, PROXIES, REFERENCE, mark, require_mark
from tfdml._core.tensors import Tensor
from tfdml.losses._base import MetricLoss, PairLoss
from tfdml.losses._proxy_base import ProxyLoss
from tfdml.losses._query_gallery import check_pairwise
from tfdml.losses._ranges import LARGEST_WEIGHT

_OF_PAIRS = "End the model with `ReferenceEmbeddings()([embeddings, old embeddings])`."
_OF_PROXIES = (
    "End the model with `CompatibleProxies(num_classes)`, and set its old proxies."
)


class CompatibleLoss(MetricLoss):
    """Train a new model so that it can search the gallery of an old one.

        L_i = loss_i(new) + weight * influence_i

    The influence is the same loss in the space of the old model, which does not change:

    - Around a `PairLoss` new embeddings are the queries and the old embeddings of the
      batch are the gallery, as in `query_gallery_loss`: positives are the old
      embeddings of the anchor's class, its own among them, negatives all others. The
      model ends in `tfdml.layers.ReferenceEmbeddings`.
    - Around a `ProxyLoss` new embeddings are compared with the old model's proxies, the
      mean of its embeddings of each class. The model ends in
      `tfdml.layers.CompatibleProxies`.

    The second is the paper's influence loss, with class means in place of the old
    classifier; the first author's code adds it with weight 1. The first is the same
    idea for losses without a classifier.

    An anchor's influence without negatives in the batch is what the loss defines for
    such an anchor. It always has a positive, the old embedding of the same image.

    Args:
        loss: A `PairLoss` that `pair_loss` defines alone, or a `ProxyLoss`; it also
            sets reduction and type.
        weight: Weight of the influence, above 0.
        name: Name of the loss.

    Raises:
        TypeError: `loss` is another kind of loss.
        ValueError: `weight` is out of range; the output of the model is not that of the
            layer above, or old and new embeddings have other dimensions.

    Example:
        >>> from tfdml.layers import ReferenceEmbeddings
        >>> from tfdml.losses import TopKPrecisionLoss
        >>> new, old = np.array([[1.0, 0.0], [0.0, 1.0]]), np.eye(2)
        >>> loss = CompatibleLoss(TopKPrecisionLoss(k=1))
        >>> float(loss([7, 9], ReferenceEmbeddings()([new, old])))
        0.0

    Reference:
        Shen, Xiong, Xia and Soatto, Towards Backward-Compatible Representation
        Learning, CVPR 2020.
    """

    def __init__(
        self,
        loss: MetricLoss,
        *,
        weight: float = 1.0,
        name: str | None = "compatible_loss",
    ) -> None:
        self._is_on_proxies = isinstance(loss, ProxyLoss)
        if not self._is_on_proxies:
            check_pairwise(loss)
        super().__init__(reduction=loss.reduction, name=name, dtype=loss.dtype)
        self.loss = loss
        self.weight: float = above_zero("weight", weight, LARGEST_WEIGHT)
        self.needs_positives = loss.needs_positives

    @property
    def compares_lengths(self) -> bool:
        """Whether the lengths of embeddings count. See `MetricLoss`."""
        return self.loss.compares_lengths

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check both halves of a batch as the loss does. See `MetricLoss.checked`."""
        content, remedy = REFERENCE, _OF_PAIRS
        if self._is_on_proxies:
            content, remedy = BOTH_PROXIES, _OF_PROXIES
        require_mark(type(self).__name__, y_pred, content, remedy)
        outputs = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        columns = outputs.shape[1] if len(outputs.shape) > 1 else 1
        if columns is not None and columns % 2:
            raise ValueError(
                "New and old embeddings must have equal dimensions to be compared, so "
                "that the output (`y_pred`) for CompatibleLoss has twice as many "
                f"columns. Received: {columns} columns."
            )
        rows = [self.loss.checked(y_true, half) for half in self._halves(outputs)]
        return rows[0][0], ops.concatenate([half for _, half in rows], axis=1)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the loss of each anchor with the influence on it, `[B]`."""
        new, old = self._halves(embeddings)
        own = self.loss.call(labels, new)
        if not isinstance(self.loss, PairLoss):
            return own + self.weight * self.loss.call(labels, old)
        scores = self.loss.scores(new, ops.stop_gradient(old))
        masks = gallery_masks(labels, labels)
        return own + self.weight * self.loss.pair_loss(scores, *masks)

    def _halves(self, outputs: Tensor) -> list[Tensor]:
        """Cut the output of the model into what is new and what is old."""
        halves = ops.split(outputs, 2, axis=1)
        return [mark(half, PROXIES) if self._is_on_proxies else half for half in halves]
