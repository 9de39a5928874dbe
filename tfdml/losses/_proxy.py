"""Losses over similarities with proxies: what they share, and Proxy-Anchor."""

from abc import abstractmethod
from typing import Any

import keras
from keras import ops

from tfdml._arguments import above_zero, at_least_zero, one_of
from tfdml.losses._base import MetricLoss
from tfdml.ops import Tensor, checked_labels, is_traced, masked_logsumexp, softplus


class ProxyLoss(MetricLoss):
    """A loss over the similarities of embeddings with the proxies of all classes.

    The model ends in `tfdml.layers.Proxies`, and the loss takes its output as
    `y_pred`. A subclass writes one pure method, `proxy_loss`.

    Labels are the rows of the proxies, 0 to C - 1. Another label, or one with a
    fraction, is a ValueError where labels are known; inside a compiled function, as in
    `fit`, the anchor's loss is NaN, and so is the mean, even if its sample weight is 0.
    A batch of one row is fine.
    """

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check labels and similarities. See `MetricLoss.checked`."""
        similarities = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        if len(similarities.shape) not in self._ranks or similarities.shape[1] is None:
            raise ValueError(
                f"{type(self).__name__} takes similarities (`y_pred`) of the shape "
                f"{self._shape}, the output of `tfdml.layers.Proxies`. "
                f"Received: shape={tuple(similarities.shape)}."
            )
        labels = checked_labels(y_true, similarities.shape[0])
        if not is_traced(labels):
            values = ops.convert_to_numpy(labels)
            wrong = values[(values < 0) | (values >= similarities.shape[1])]
            if len(wrong):
                raise ValueError(
                    "The labels (`y_true`) must be the numbers of proxies, 0 to "
                    f"{similarities.shape[1] - 1}. Received: {wrong[0]}. Number the "
                    "classes from 0 and give `Proxies` as many."
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
                several centers a class.
            labels: int32 tensor `[B]` of values from 0 to C - 1.

        Returns:
            Float tensor `[B]`.
        """


def class_mask(labels: Tensor, num_classes: int) -> Tensor:
    """Mark the class of each anchor: boolean tensor `[B, num_classes]`."""
    return ops.equal(ops.expand_dims(labels, 1), ops.arange(num_classes))


def cross_entropy(logits: Tensor, own: Tensor) -> Tensor:
    """Compute -log softmax of the class marked in `own`, both `[B, C]`: `[B]`."""
    everything = masked_logsumexp(logits, ops.ones_like(own))
    return everything - ops.sum(ops.where(own, logits, 0), axis=1)


@keras.saving.register_keras_serializable(package="tfdml")
class ProxyAnchorLoss(ProxyLoss):
    """Proxy-Anchor loss: each proxy pulls and pushes the whole batch, hard ones most.

        L = 1/|P+| sum_{p in P+} log(1 + sum_{i in B_p+} e^(-alpha (S_ip - delta)))
          + 1/|P|  sum_{p in P}  log(1 + sum_{i in B_p-} e^( alpha (S_ip + delta)))

    P are all proxies, P+ those whose class is in the batch, B_p+ the embeddings of the
    class of p and B_p- the others; S are cosine similarities.

    The sums run over proxies, not anchors. A value an anchor comes from an exact split:
    the positive term of a proxy is shared evenly by the anchors of its class, the
    negative terms by the whole batch, so that the mean over the batch is L. A sample
    weight therefore scales an anchor's share, but does not take its embedding out of
    the sums. Under `tf.distribute` each replica computes L of its own rows, and the
    mean of these is not L of the whole batch; the same holds for any split of a batch.

    An anchor always has its proxy; a proxy without negatives in the batch adds 0.

    Args:
        scale: alpha, above 0.
        margin: delta, at least 0, in units of cosine similarity.
        normalizer: What the negative terms are divided by: `"all"`, the number of all
            proxies (the paper and its code), or `"with_negatives"`, the number of
            those with a negative in the batch (the authors' slides). The two differ
            only for a batch of a single class.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = ProxyAnchorLoss(scale=1.0, margin=0.0)
        >>> round(float(loss([0, 1], [[1.0, 0.0], [0.0, 1.0]])), 4)
        1.0064

    Reference:
        Kim, Kim, Cho and Kwak, Proxy Anchor Loss for Deep Metric Learning, CVPR 2020,
        Eq. 4.
    """

    def __init__(
        self,
        scale: float = 32.0,
        margin: float = 0.1,
        normalizer: str = "all",
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "proxy_anchor_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.scale = above_zero("scale", scale)
        self.margin = at_least_zero("margin", margin)
        self.normalizer = one_of("normalizer", normalizer, ("all", "with_negatives"))

    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute each anchor's share of L, `[B]`. See `ProxyLoss.proxy_loss`."""
        own = class_mask(labels, similarities.shape[1])
        positive = self._positive_shares(similarities, labels, own)
        pushes = self.scale * (similarities + self.margin)
        others = ops.logical_not(own)
        negative = ops.sum(softplus(masked_logsumexp(pushes, others, axis=0)))
        if self.normalizer == "all":
            return positive + negative / similarities.shape[1]
        counted = ops.sum(ops.cast(ops.any(others, axis=0), negative.dtype))
        return positive + negative / ops.maximum(counted, 1)

    def _positive_shares(
        self, similarities: Tensor, labels: Tensor, own: Tensor
    ) -> Tensor:
        """Positive term of the anchor's proxy times B / (|P+| size of its class)."""
        classes = similarities.shape[1]
        pulls = ops.sum(ops.where(own, similarities, 0), axis=1)
        pulls = -self.scale * (pulls - self.margin)
        peaks = ops.segment_max(ops.stop_gradient(pulls), labels, classes)
        peaks = ops.stop_gradient(ops.take(peaks, labels))
        sums = ops.segment_sum(ops.exp(pulls - peaks), labels, classes)
        terms = softplus(ops.log(ops.take(sums, labels)) + peaks)
        counts = ops.segment_sum(ops.ones_like(pulls), labels, classes)
        present = ops.sum(ops.cast(counts > 0, pulls.dtype))
        batch = ops.sum(counts)
        return terms * batch / (present * ops.take(counts, labels))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "scale": self.scale,
            "margin": self.margin,
            "normalizer": self.normalizer,
        }
