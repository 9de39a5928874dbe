"""Compute the SoftTriple loss: a softmax over several centers per class."""

from typing import Any

from keras import ops

from tfdml._core.arguments import above_zero, at_least_zero
from tfdml._core.tensors import Tensor
from tfdml.losses._proxy_base import ProxyLoss, class_mask, cross_entropy


class SoftTripleLoss(ProxyLoss):
    """SoftTriple loss: a softmax over classes with several centers each.

        S_ic = sum_k q_k x_i . w_ck,   q = softmax_k(x_i . w_ck / gamma)
        L_i  = -log softmax over c of lambda (S_ic - delta [c = y_i]), at c = y_i

    with x and w at unit length. The penalty tau on superfluous centers is a function of
    the centers alone, which a loss does not receive: it is a regularizer of the layer
    (`Proxies(n, K, regularizer=CenterRegularizer(tau))`), and Keras adds it.

    An anchor always has its centers; with a single class the loss is 0.

    Args:
        scale: lambda, above 0.
        temperature: gamma, above 0. The smaller, the larger the weight of the nearest
            center.
        margin: delta, at least 0, in units of cosine similarity.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = SoftTripleLoss(scale=1.0, margin=0.0)
        >>> round(float(loss([0, 1], [[[1.0, 1.0], [0.0, 0.0]]] * 2)), 4)
        0.8133

    Reference:
        Qian, Shang, Sun, Hu, Li and Jin, SoftTriple Loss: Deep Metric Learning Without
        Triplet Sampling, ICCV 2019.
    """

    _ranks = (2, 3)
    _shape = "[batch, num_classes] or [batch, num_classes, centers_per_class]"

    def __init__(
        self,
        scale: float = 20.0,
        *,
        temperature: float = 0.1,
        margin: float = 0.01,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.scale: float = above_zero("scale", scale)
        self.temperature: float = above_zero("temperature", temperature)
        self.margin: float = at_least_zero("margin", margin)

    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute L_i, `[B]`. See `ProxyLoss.proxy_loss`."""
        relaxed = similarities
        if len(similarities.shape) == 3:
            # The shares do not depend on it, so the gradient need not pass it.
            peaks = ops.stop_gradient(ops.max(similarities, axis=2, keepdims=True))
            # Not `ops.softmax`, which warns of a single center.
            shares = ops.exp((similarities - peaks) / self.temperature)
            shares = shares / ops.sum(shares, axis=2, keepdims=True)
            relaxed = ops.sum(shares * similarities, axis=2)
        target = class_mask(labels, similarities.shape[1])
        logits = self.scale * ops.where(target, relaxed - self.margin, relaxed)
        return cross_entropy(logits, target)
