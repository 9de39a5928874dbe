"""A softmax over classes that have proxies: Proxy-NCA and SoftTriple."""

from typing import Any

import keras
from keras import ops

from tfdml._arguments import above_zero, at_least_zero, fraction
from tfdml.losses._proxy import (
    ProxyLoss,
    class_mask,
    cross_entropy,
)
from tfdml.ops import Tensor, masked_logsumexp


@keras.saving.register_keras_serializable(package="tfdml")
class ProxyNCALoss(ProxyLoss):
    """Proxy-NCA loss: nearer to the own proxy than to those of all other classes.

        L_i = -log( e^(-D(x_i, p_y)) / sum_{c != y} e^(-D(x_i, p_c)) )
            = D(x_i, p_y) + log sum_{c != y} e^(-D(x_i, p_c))

    with D(x, p) = || s x/||x|| - s p/||p|| ||^2. As D is
    2 s^2 (1 - S) and the constant cancels, the logits are 2 s^2 S. L_i may be negative.

    A published scale of the embeddings and another of the proxies act as one: (1, 8)
    is `scale=8 ** 0.5`. For distances of unnormalised vectors, give `y_pred` as
    -||x - p||^2 / 2 and `scale=1`.

    With a single class there is nothing to be far from, and L_i is 0.

    Args:
        scale: s, above 0.
        include_positive: Whether the sum has the own class too, which makes L_i the
            cross entropy of a softmax and at least 0. The paper leaves it out; the
            published code and most others have it in.
        smoothing: Share of each label that is spread evenly over the other classes,
            at least 0 and below 1; 0.1 in the published code. It needs
            `include_positive`.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

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
        include_positive: bool = False,
        smoothing: float = 0.0,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "proxy_nca_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        if smoothing and not include_positive:
            raise ValueError(
                "`smoothing` needs include_positive=True: without the own class there "
                f"are no probabilities to smooth. Received: smoothing={smoothing}."
            )
        self.scale = above_zero("scale", scale)
        self.include_positive = bool(include_positive)
        self.smoothing = fraction("smoothing", smoothing)

    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute L_i, `[B]`. See `ProxyLoss.proxy_loss`."""
        classes = similarities.shape[1]
        own = class_mask(labels, classes)
        logits = 2 * self.scale**2 * similarities
        if not self.include_positive:
            right = ops.sum(ops.where(own, logits, 0), axis=1)
            if classes == 1:
                return ops.zeros_like(right)
            return masked_logsumexp(logits, ops.logical_not(own)) - right
        loss = cross_entropy(logits, own)
        if not self.smoothing or classes == 1:
            return loss
        gaps = ops.sum(logits, axis=1) - classes * ops.sum(
            ops.where(own, logits, 0), axis=1
        )
        return loss - self.smoothing / (classes - 1) * gaps

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "scale": self.scale,
            "include_positive": self.include_positive,
            "smoothing": self.smoothing,
        }


@keras.saving.register_keras_serializable(package="tfdml")
class SoftTripleLoss(ProxyLoss):
    """SoftTriple loss: a softmax over classes that have several centers each.

        S_ic = sum_k q_k x_i . w_ck,   q = softmax_k(x_i . w_ck / gamma)
        L_i  = -log softmax over c of lambda (S_ic - delta [c = y_i]), at c = y_i

    with x and w at unit length. The penalty tau on superfluous centers
    is a function of the centers alone, which no loss can see: it belongs to the layer
    (`Proxies(n, K, regularizer=CenterRegularizer(tau))`), and Keras adds it.

    An anchor always has its centers; with a single class the loss is 0.

    Args:
        scale: lambda, above 0.
        temperature: gamma, above 0. The smaller, the more the nearest center decides.
        margin: delta, at least 0, in units of cosine similarity.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

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
        temperature: float = 0.1,
        margin: float = 0.01,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "soft_triple_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.scale = above_zero("scale", scale)
        self.temperature = above_zero("temperature", temperature)
        self.margin = at_least_zero("margin", margin)

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
        own = class_mask(labels, similarities.shape[1])
        logits = self.scale * ops.where(own, relaxed - self.margin, relaxed)
        return cross_entropy(logits, own)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "scale": self.scale,
            "temperature": self.temperature,
            "margin": self.margin,
        }
