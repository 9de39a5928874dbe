"""Compute the ArcFace loss: a softmax with an angular margin."""

import math
from typing import Any

from keras import ops

from tfdml._core.tensors import Tensor
from tfdml.losses._proxy_base import ProxyLoss, class_mask, cross_entropy
from tfdml.losses._ranges import scale_of_exponents


class ArcFaceLoss(ProxyLoss):
    """ArcFace: a softmax over cosines, with a margin added to the target angle.

        L_i = -log softmax over c of s cos(theta_ic + m [c = y_i]), at c = y_i

    with theta_ic the angle between embedding and proxy. cos(theta + m) is computed as
    cos theta cos m - sin theta sin m, without an arc cosine, whose gradient is infinite
    at an embedding equal to its proxy; there the gradient of sin theta counts as 0, and
    value and gradient are finite.

    Beyond theta = pi - m the formula would decrease again and reward an embedding for
    moving away from its proxy. As in the authors' code, cos theta - m sin m replaces it
    there, with a step of m sin m + cos m - 1 at theta = pi - m.

    An anchor always has its proxy; with a single class the loss is 0.

    Args:
        scale: s, from 1e-4 to 1e4.
        margin: m, an angle in radians, at least 0 and at most pi / 2.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = ArcFaceLoss(scale=1.0, margin=0.0)
        >>> round(float(loss([0, 1], [[1.0, 0.0], [0.0, 1.0]])), 4)
        0.3133

    Reference:
        Deng, Guo, Xue and Zafeiriou, ArcFace: Additive Angular Margin Loss for Deep
        Face Recognition, CVPR 2019, Eq. 3.
    """

    def __init__(
        self, scale: float = 64.0, *, margin: float = 0.5, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not 0 <= margin <= math.pi / 2:
            raise ValueError(
                "`margin` must be an angle of 0 to pi / 2 in radians. "
                f"Received: margin={margin}."
            )
        self.scale: float = scale_of_exponents("scale", scale)
        self.margin: float = float(margin)

    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute L_i, `[B]`. See `ProxyLoss.proxy_loss`."""
        target = class_mask(labels, similarities.shape[1])
        cosine = ops.sum(ops.where(target, similarities, 0), axis=1, keepdims=True)
        squared_sine = 1 - ops.square(cosine)
        # Rounding may give a cosine above 1, and sqrt has an infinite gradient at 0.
        is_flat = squared_sine <= 0
        sine = ops.sqrt(ops.where(is_flat, ops.ones_like(cosine), squared_sine))
        sine = ops.where(is_flat, ops.zeros_like(sine), sine)
        shifted = cosine * math.cos(self.margin) - sine * math.sin(self.margin)
        beyond = cosine - self.margin * math.sin(self.margin)
        shifted = ops.where(cosine > -math.cos(self.margin), shifted, beyond)
        logits = self.scale * ops.where(target, shifted, similarities)
        return cross_entropy(logits, target)
