"""Compute the Proxy-NCA loss."""

from typing import Any

from keras import ops

from tfdml._core.arguments import boolean, fraction, within
from tfdml._core.tensors import Tensor
from tfdml.losses._proxy_base import ProxyLoss, class_mask, cross_entropy
from tfdml.ops import masked_logsumexp


class ProxyNCALoss(ProxyLoss):
    """Proxy-NCA loss: compares the distance to the target proxy with all others.

        L_i = -log( e^(-D(x_i, p_y)) / sum_{c != y} e^(-D(x_i, p_c)) )
            = D(x_i, p_y) + log sum_{c != y} e^(-D(x_i, p_c))

    with D(x, p) = || s x/||x|| - s p/||p|| ||^2. As D is
    2 s^2 (1 - S) and the constant cancels, the logits are 2 s^2 S. L_i may be negative.

    Separate scales of embeddings and proxies act as their geometric mean: (1, 8) is
    `scale=8 ** 0.5`. For distances of vectors that are not normalized, give `y_pred` as
    -||x - p||^2 / 2 and `scale=1`.

    With a single class L_i is 0.

    Args:
        scale: s, from 0.01 to 100.
        include_positive: Whether the sum includes the target class, which makes L_i the
            cross-entropy of a softmax and at least 0. The paper excludes it; the
            published code and most others include it.
        smoothing: Share of each label that is spread evenly over the other classes,
            at least 0 and below 1; 0.1 in the published code. It needs
            `include_positive`.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = ProxyNCALoss(scale=1.0)
        >>> float(loss([0, 1], [[1.0, 0.0], [0.0, 0.5]]))  # (-2 - 1) / 2
        -1.5

    Reference:
        Movshovitz-Attias, Toshev, Leung, Ioffe and Singh, No Fuss Distance Metric
        Learning using Proxies, ICCV 2017.
    """

    def __init__(
        self,
        scale: float = 3.0,
        *,
        include_positive: bool = False,
        smoothing: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.scale: float = within("scale", scale, 0.01, 100)
        self.include_positive: bool = boolean("include_positive", include_positive)
        self.smoothing: float = fraction("smoothing", smoothing)
        if smoothing and not include_positive:
            raise ValueError(
                "`smoothing` must be 0 without include_positive=True: without the "
                "target class there are no probabilities to smooth. "
                f"Received: smoothing={smoothing}."
            )

    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute L_i, `[B]`. See `ProxyLoss.proxy_loss`."""
        classes = similarities.shape[1]
        target = class_mask(labels, classes)
        logits = 2 * self.scale**2 * similarities
        pos = ops.sum(ops.where(target, logits, 0), axis=1)
        if not self.include_positive:
            if classes == 1:
                return ops.zeros_like(pos)
            return masked_logsumexp(logits, ops.logical_not(target)) - pos
        loss = cross_entropy(logits, target)
        if not self.smoothing or classes == 1:
            return loss
        gaps = ops.sum(logits, axis=1) - classes * pos
        return loss - self.smoothing / (classes - 1) * gaps
