"""Compute the loss of ProxyNCA++."""

from typing import Any

from tfdml._core.tensors import Tensor
from tfdml.losses._proxy_base import ProxyLoss, class_mask, cross_entropy
from tfdml.losses._ranges import scale_of_exponents


class ProxyNCAPlusPlusLoss(ProxyLoss):
    """ProxyNCA++: the probability that an embedding is assigned to its own proxy.

        P_i = e^(-D(x_i, p_y) / T) / sum over all c of e^(-D(x_i, p_c) / T)
        L_i = -log P_i

    with D the squared Euclidean distance at unit length, 2 (1 - S). Unlike
    `ProxyNCALoss`, the sum includes the own proxy, so P_i is a probability and L_i at
    least 0, and T is low. It is `ProxyNCALoss(T**-0.5, include_positive=True)`.

    The paper's other changes are to the model and the batches: global max pooling,
    proxies that learn much faster than the network, and batches with several images of
    each class; see the page on proxies.

    An anchor always has its proxy; with a single class the loss is 0.

    Args:
        temperature: T, from 1e-4 to 1e4. In the paper 1/9.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `temperature` is out of range.

    Example:
        >>> loss = ProxyNCAPlusPlusLoss(temperature=2.0)
        >>> round(float(loss([0, 1], [[1.0, 0.0], [0.0, 1.0]])), 4)  # log(1 + 1/e)
        0.3133

    Reference:
        Teh, DeVries and Taylor, ProxyNCA++: Revisiting and Revitalizing Proxy
        Neighborhood Component Analysis, ECCV 2020.
    """

    def __init__(self, temperature: float = 1 / 9, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature: float = scale_of_exponents("temperature", temperature)

    def proxy_loss(self, similarities: Tensor, labels: Tensor) -> Tensor:
        """Compute L_i, `[B]`. See `ProxyLoss.proxy_loss`."""
        target = class_mask(labels, similarities.shape[1])
        return cross_entropy(2 / self.temperature * similarities, target)
