"""Compute the SoftTriple loss: a softmax over several centers per class."""

import functools
from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero
from tfdml._core.tensors import Tensor
from tfdml.losses._proxy_base import ProxyLoss, class_mask, cross_entropy
from tfdml.losses._ranges import LARGEST, scale_of_exponents

_WRITTEN_OUT = 16
"""Up to this number of centers per class their sums are written out."""


class SoftTripleLoss(ProxyLoss):
    """SoftTriple loss: a softmax over classes with several centers each.

        S_ic = sum_k q_k x_i . w_ck,   q = softmax_k(x_i . w_ck / gamma)
        L_i  = -log softmax over c of lambda (S_ic - delta [c = y_i]), at c = y_i

    with x and w at unit length. The penalty tau on superfluous centers is a function of
    the centers alone, which a loss does not receive: it is a regularizer of the layer
    (`Proxies(n, K, regularizer=CenterRegularizer(tau))`), and Keras adds it.

    An anchor always has its centers; with a single class the loss is 0.

    Args:
        scale: lambda, from 1e-4 to 1e4.
        temperature: gamma, from 1e-4 to 1e4. The smaller, the larger the weight of
            the nearest center.
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
        self.scale: float = scale_of_exponents("scale", scale)
        self.temperature: float = scale_of_exponents("temperature", temperature)
        self.margin: float = at_least_zero("margin", margin, LARGEST)

    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute L_i, `[B]`. See `ProxyLoss.proxy_loss`."""
        relaxed = similarities
        if len(similarities.shape) == 3:
            relaxed = _relaxed(similarities, self.temperature)
        target = class_mask(labels, similarities.shape[1])
        logits = self.scale * ops.where(target, relaxed - self.margin, relaxed)
        return cross_entropy(logits, target)


def _relaxed(similarities: Tensor, temperature: float) -> Tensor:
    """Average the centers of each class by their softmax, `[B, C]`.

    Its own gradient, w_k (1 + (s_k - average) / temperature), and sums that are written
    out: one pass over the similarities forward and one backward. XLA on GPUs takes five
    for the sums over a short axis.
    """

    @ops.custom_gradient
    def relaxed(similarities: Tensor) -> Any:
        peaks, total, mean = _softmax_mean(similarities, temperature)

        def gradient(*args: Tensor, upstream: Tensor = None) -> Tensor:
            upstream = args[0] if upstream is None else upstream
            factors = [ops.expand_dims(x, 2) for x in (peaks, upstream / total, mean)]
            shares = ops.exp((similarities - factors[0]) / temperature) * factors[1]
            return shares * (1 + (similarities - factors[2]) / temperature)

        return mean, gradient

    return relaxed(similarities)


def _softmax_mean(
    similarities: Tensor, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the largest of each class, the sum of its shares and their mean."""
    if similarities.shape[2] > _WRITTEN_OUT:
        peaks = ops.max(similarities, axis=2)
        shares = ops.exp((similarities - ops.expand_dims(peaks, 2)) / temperature)
        total = ops.sum(shares, axis=2)
        return peaks, total, ops.sum(shares * similarities, axis=2) / total
    centers = [similarities[:, :, k] for k in range(similarities.shape[2])]
    peaks = functools.reduce(ops.maximum, centers)
    shares = [ops.exp((center - peaks) / temperature) for center in centers]
    products = [share * center for share, center in zip(shares, centers, strict=True)]
    total = sum(shares[1:], shares[0])
    return peaks, total, sum(products[1:], products[0]) / total
