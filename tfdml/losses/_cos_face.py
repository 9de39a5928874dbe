"""Compute the CosFace loss: a softmax with a cosine margin."""

from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero
from tfdml._core.tensors import Tensor
from tfdml.losses._proxy_base import ProxyLoss, class_mask, cross_entropy
from tfdml.losses._ranges import LARGEST, scale_of_exponents


class CosFaceLoss(ProxyLoss):
    """CosFace: a softmax over cosines, with a margin subtracted from the target cosine.

        L_i = -log softmax over c of s (cos theta_ic - m [c = y_i]), at c = y_i

    An anchor always has its proxy; with a single class the loss is 0.

    Args:
        scale: s, from 1e-4 to 1e4.
        margin: m, at least 0, in units of cosine similarity.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = CosFaceLoss(scale=1.0, margin=1.0)
        >>> round(float(loss([0, 1], [[1.0, 0.0], [0.0, 1.0]])), 4)  # log 2
        0.6931

    Reference:
        Wang et al., CosFace: Large Margin Cosine Loss for Deep Face Recognition, CVPR
        2018, Eq. 4.
    """

    def __init__(
        self, scale: float = 64.0, *, margin: float = 0.35, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.scale: float = scale_of_exponents("scale", scale)
        self.margin: float = at_least_zero("margin", margin, LARGEST)

    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute L_i, `[B]`. See `ProxyLoss.proxy_loss`."""
        target = class_mask(labels, similarities.shape[1])
        logits = ops.where(target, similarities - self.margin, similarities)
        return cross_entropy(self.scale * logits, target)
