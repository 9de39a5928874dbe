"""Compute the sub-center ArcFace loss: an angular margin and centers for noise."""

from keras import ops

from tfdml._core.tensors import Tensor
from tfdml.losses._arc_face import ArcFaceLoss


class SubCenterArcFaceLoss(ArcFaceLoss):
    """Sub-center ArcFace: ArcFace to the nearest of several centers of a class.

        cos theta_ic = max over k of x_i . w_ck,   L_i as in `ArcFaceLoss`

    with x and w at unit length. An image need be near one of the K centers of its class
    alone. In training most images gather at one dominant center, and those that are
    hard or wrongly labeled at the others, so they do not pull the class apart. When the
    embeddings are good, `dominant_centers` names the images that are far from the
    dominant center of their class: leave them out, and train `ArcFaceLoss` on the rest.

    The paper takes K = 3 (`Proxies(num_classes, 3)`). With one center per class it is
    `ArcFaceLoss`. Only the nearest center of a class gets a gradient; equally near ones
    share it.

    Args:
        scale: s, from 1e-4 to 1e4.
        margin: m, an angle in radians, at least 0 and at most pi / 2.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = SubCenterArcFaceLoss(scale=1.0, margin=0.0)
        >>> round(float(loss([0, 1], [[[1.0, -1.0], [0.0, -0.5]]] * 2)), 4)
        0.8133

    Reference:
        Deng, Guo, Liu, Gong and Zafeiriou, Sub-center ArcFace: Boosting Face
        Recognition by Large-scale Noisy Web Faces, ECCV 2020.
    """

    _ranks = (2, 3)
    _shape = "[batch, num_classes] or [batch, num_classes, centers_per_class]"

    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute L_i, `[B]`. See `ProxyLoss.proxy_loss`."""
        if len(similarities.shape) == 3:
            similarities = ops.max(similarities, axis=2)
        return super().proxy_loss(similarities, labels)
