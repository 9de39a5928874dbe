"""A softmax with a margin for the own class: ArcFace and CosFace."""

import math
from typing import Any

import keras
from keras import ops

from tfdml._arguments import above_zero, at_least_zero
from tfdml.losses._proxy import (
    ProxyLoss,
    class_mask,
    cross_entropy,
)
from tfdml.ops import Tensor


@keras.saving.register_keras_serializable(package="tfdml")
class ArcFaceLoss(ProxyLoss):
    """ArcFace: a softmax over cosines, the angle to the own proxy enlarged by a margin.

        L_i = -log softmax over c of s cos(theta_ic + m [c = y_i]), at c = y_i

    with theta_ic the angle between embedding and proxy. cos(theta + m) is computed as
    cos theta cos m - sin theta sin m, without an arc cosine, whose gradient is infinite
    at an embedding equal to its proxy; there the gradient of sin theta counts as 0, and
    value and gradient are finite.

    Beyond theta = pi - m the formula would fall again, and reward an embedding for
    moving away from its proxy. As in the authors' code, cos theta - m sin m stands
    there instead; where they meet the cosine falls by a step of m sin m + cos m - 1.

    An anchor always has its proxy; with a single class the loss is 0.

    Args:
        scale: s, above 0.
        margin: m, an angle in radians, at least 0 and at most pi / 2.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

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
        self,
        scale: float = 64.0,
        margin: float = 0.5,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "arc_face_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        if not 0 <= margin <= math.pi / 2:
            raise ValueError(
                "`margin` must be an angle of 0 to pi / 2 in radians. "
                f"Received: margin={margin}."
            )
        self.scale = above_zero("scale", scale)
        self.margin = float(margin)

    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute L_i, `[B]`. See `ProxyLoss.proxy_loss`."""
        own = class_mask(labels, similarities.shape[1])
        cosine = ops.sum(ops.where(own, similarities, 0), axis=1, keepdims=True)
        squared_sine = 1 - ops.square(cosine)
        # Rounding puts a cosine beyond 1, and sqrt has an infinite gradient at 0.
        is_flat = squared_sine <= 0
        sine = ops.sqrt(ops.where(is_flat, ops.ones_like(cosine), squared_sine))
        sine = ops.where(is_flat, ops.zeros_like(sine), sine)
        shifted = cosine * math.cos(self.margin) - sine * math.sin(self.margin)
        beyond = cosine - self.margin * math.sin(self.margin)
        target = ops.where(cosine > -math.cos(self.margin), shifted, beyond)
        return cross_entropy(self.scale * ops.where(own, target, similarities), own)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "scale": self.scale, "margin": self.margin}


@keras.saving.register_keras_serializable(package="tfdml")
class CosFaceLoss(ProxyLoss):
    """CosFace: a softmax over cosines, that of the own class lowered by a margin.

        L_i = -log softmax over c of s (cos theta_ic - m [c = y_i]), at c = y_i

    An anchor always has its proxy; with a single class the loss is 0.

    Args:
        scale: s, above 0.
        margin: m, at least 0, in units of cosine similarity.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

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
        self,
        scale: float = 64.0,
        margin: float = 0.35,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "cos_face_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.scale = above_zero("scale", scale)
        self.margin = at_least_zero("margin", margin)

    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute L_i, `[B]`. See `ProxyLoss.proxy_loss`."""
        own = class_mask(labels, similarities.shape[1])
        logits = self.scale * ops.where(own, similarities - self.margin, similarities)
        return cross_entropy(logits, own)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "scale": self.scale, "margin": self.margin}
