"""Penalize superfluous centers of a class."""

from typing import Any

import keras
from keras import ops

from tfdml._core.arguments import at_least_zero
from tfdml._core.tensors import Tensor
from tfdml.ops import unit_rows


@keras.saving.register_keras_serializable(package="tfdml")
class CenterRegularizer(keras.regularizers.Regularizer):
    """SoftTriple's penalty on superfluous centers: pulls those of a class together.

        R = tau sum_c sum_{s < t} sqrt(2 + eps - 2 w_cs . w_ct) / (C K (K - 1))

    with w the centers at unit length and eps = 1e-5. The square root makes it a group
    lasso: centers merge until a class has as many as it needs. With one center per
    class it is 0.

    Args:
        strength: tau, at least 0.

    Raises:
        ValueError: `strength` is out of range.

    Example:
        >>> float(CenterRegularizer(1.0)(np.array([[[1.0, 0.0], [1.0, 0.0]]]))) < 0.01
        True

    Reference:
        Qian, Shang, Sun, Hu, Li and Jin, SoftTriple Loss: Deep Metric Learning Without
        Triplet Sampling, ICCV 2019.
    """

    def __init__(self, strength: float = 0.2) -> None:
        self.strength: float = at_least_zero("strength", strength)

    def __call__(self, proxies: Tensor) -> Tensor:
        """Compute R of centers `[C, K, dimension]`, or `[C, dimension]`: a scalar."""
        classes, centers = proxies.shape[0], proxies.shape[1]
        if len(proxies.shape) == 2 or centers == 1:
            return 0.0 * ops.sum(proxies)
        unit = unit_rows(proxies)
        products = ops.matmul(unit, ops.transpose(unit, (0, 2, 1)))
        # In TF32 or bfloat16 the product of a center with itself may exceed 1.
        distances = ops.sqrt(ops.relu(2.0 - 2.0 * products) + 1e-5)
        pairs = ops.triu(ops.ones_like(distances), k=1)
        total = ops.sum(pairs * distances)
        return self.strength * total / (classes * centers * (centers - 1))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"strength": self.strength}
