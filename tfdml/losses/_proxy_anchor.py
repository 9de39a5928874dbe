"""Compute the Proxy-Anchor loss."""

from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero, one_of
from tfdml._core.tensors import Tensor, count
from tfdml.losses._proxy_base import ProxyLoss, class_mask
from tfdml.losses._ranges import LARGEST, scale_of_exponents
from tfdml.ops import masked_logsumexp, softplus


class ProxyAnchorLoss(ProxyLoss):
    """Proxy-Anchor loss: compares each proxy with the whole batch.

        L = 1/|P+| sum_{p in P+} log(1 + sum_{i in B_p+} e^(-alpha (S_ip - delta)))
          + 1/|P|  sum_{p in P}  log(1 + sum_{i in B_p-} e^( alpha (S_ip + delta)))

    P is the set of all proxies, P+ the set of those whose class is in the batch, B_p+
    the embeddings of p's class and B_p- the others; S is the cosine similarity.

    The sums run over proxies, not anchors. They are split exactly into one value per
    anchor: the anchors of a class share the positive term of its proxy evenly, and the
    whole batch shares the negative terms, so the mean over the batch is L. A
    sample weight therefore scales an anchor's share, but does not remove its embedding
    from the sums. Under `tf.distribute`, each replica computes L of its own rows, and
    the mean of these is not the L of the whole batch; the same holds for any split of
    a batch.

    An anchor always has its proxy; a proxy without negatives in the batch adds 0.

    Args:
        scale: alpha, from 1e-4 to 1e4.
        margin: delta, at least 0, in units of cosine similarity.
        normalizer: Divisor of the negative terms: `"all"`, the number of all proxies
            (the paper and its code), or `"with_negatives"`, the number of proxies with
            a negative in the batch (the authors' slides). They differ only for a batch
            of a single class.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

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
        *,
        margin: float = 0.1,
        normalizer: str = "all",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.scale: float = scale_of_exponents("scale", scale)
        self.margin: float = at_least_zero("margin", margin, LARGEST)
        self.normalizer: str = one_of(
            "normalizer", normalizer, ("all", "with_negatives")
        )

    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute each anchor's share of L, `[B]`. See `ProxyLoss.proxy_loss`."""
        target = class_mask(labels, similarities.shape[1])
        pos = self._positive_shares(similarities, labels, target)
        negatives = ops.logical_not(target)
        logits = masked_logsumexp(self.scale * similarities, negatives, axis=0)
        neg = ops.sum(softplus(logits + self.scale * self.margin))
        if self.normalizer == "all":
            return pos + neg / similarities.shape[1]
        proxies = ops.cast(count(ops.any(negatives, axis=0), neg.dtype), neg.dtype)
        return pos + neg / ops.maximum(proxies, 1)

    def _positive_shares(
        self, similarities: Tensor, labels: Tensor, target: Tensor
    ) -> Tensor:
        """Compute each anchor's positive term, times B / (|P+| class size)."""
        classes = similarities.shape[1]
        logits = ops.sum(ops.where(target, similarities, 0), axis=1)
        logits = -self.scale * logits
        peaks = ops.segment_max(ops.stop_gradient(logits), labels, classes)
        peaks = ops.stop_gradient(ops.take(peaks, labels))
        sums = ops.segment_sum(ops.exp(logits - peaks), labels, classes)
        logits = ops.log(ops.take(sums, labels)) + peaks
        terms = softplus(logits + self.scale * self.margin)
        sizes = ops.segment_sum(ops.ones_like(logits), labels, classes)
        present = ops.cast(count(sizes > 0, logits.dtype), logits.dtype)
        return terms * ops.sum(sizes) / (present * ops.take(sizes, labels))
