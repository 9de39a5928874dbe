"""Define the base class of the losses on similarities with proxies."""

from abc import abstractmethod

import keras
from keras import ops

from tfdml._core.batches import checked_labels, is_traced, refuse_few_rows
from tfdml._core.marks import PROXIES, require_mark
from tfdml._core.tensors import Tensor
from tfdml.losses._base import MetricLoss
from tfdml.ops import masked_logsumexp

_REMEDY = (
    "End the model with `Proxies(num_classes)`; a layer of your own declares its "
    "output by `tfdml.layers.as_similarities`."
)


class ProxyLoss(MetricLoss):
    """A loss over the similarities of embeddings with the proxies of all classes.

    The model ends in `tfdml.layers.Proxies`, and the loss takes its output as
    `y_pred`. A tensor that no such layer made is refused, also in `fit`; a layer of
    proxies of your own declares its output by `tfdml.layers.as_similarities`. Arrays
    and lists, as `predict` gives, are taken at their word.

    A subclass writes one pure method, `proxy_loss`.

    Labels are the indices of the proxies, 0 to C - 1. Another label, or one with a
    fraction, is a ValueError where labels are known; inside a compiled function, as in
    `fit`, the anchor's loss is NaN, and so is the mean, even if its sample weight is 0.
    A batch may have one row.
    """

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check labels and similarities. See `MetricLoss.checked`."""
        require_mark(type(self).__name__, y_pred, PROXIES, _REMEDY)
        similarities = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        if len(similarities.shape) not in self._ranks or similarities.shape[1] is None:
            raise ValueError(
                f"The output (`y_pred`) for {type(self).__name__} must be similarities "
                f"of the shape {self._shape}, as `tfdml.layers.Proxies` returns them. "
                f"Received: shape={tuple(similarities.shape)}."
            )
        labels = checked_labels(y_true, similarities.shape[0])
        refuse_few_rows(labels, 1, "or there is no mean")
        if not is_traced(labels):
            values = ops.convert_to_numpy(labels)
            unknown = values[(values < 0) | (values >= similarities.shape[1])]
            if len(unknown):
                raise ValueError(
                    "The labels (`y_true`) must be indices of proxies, 0 to "
                    f"{similarities.shape[1] - 1}. Received: {unknown[0]}. Number the "
                    "classes from 0, and give `Proxies` the number of classes."
                )
        return labels, similarities

    _ranks: tuple[int, ...] = (2,)
    _shape = "[batch, num_classes]"

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the loss of each anchor, NaN where its label has no proxy."""
        kind = keras.backend.standardize_dtype(labels.dtype)
        if kind in ("bool", "int8", "uint8", "int16", "uint16"):
            labels = ops.cast(labels, "int32")  # C may be too large for these
        known = ops.logical_and(labels >= 0, labels < embeddings.shape[1])
        if "float" in kind:
            known = ops.logical_and(known, ops.equal(labels, ops.floor(labels)))
        # Compared before the cast, which would fold ids above 2^31 onto others.
        rows = ops.cast(ops.where(known, labels, ops.zeros_like(labels)), "int32")
        return ops.where(known, self.proxy_loss(embeddings, rows), float("nan"))

    @abstractmethod
    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of each anchor from its similarities.

        Args:
            similarities: Float tensor `[B, C]`, or `[B, C, K]` for a loss that takes
                several centers per class.
            labels: int32 tensor `[B]` of values from 0 to C - 1.

        Returns:
            Float tensor `[B]`.
        """


def class_mask(labels: Tensor, num_classes: int) -> Tensor:
    """Mark the class of each anchor: boolean tensor `[B, num_classes]`."""
    return ops.equal(ops.expand_dims(labels, 1), ops.arange(num_classes, dtype="int32"))


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Compute -log softmax of the class marked in `target`, both `[B, C]`: `[B]`."""
    total = masked_logsumexp(logits, ops.ones_like(target))
    return total - ops.sum(ops.where(target, logits, 0), axis=1)
