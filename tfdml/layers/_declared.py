"""Declare what a layer of one's own, or a function, has computed for a loss."""

from tfdml._core.marks import BOUNDARIES, PROXIES, mark
from tfdml._core.tensors import Tensor


def as_similarities(similarities: Tensor) -> Tensor:
    """Declare that a tensor holds similarities with proxies, and return it.

    A proxy loss takes the output of `tfdml.layers.Proxies` and refuses other tensors,
    because an embedding looks alike: it would train on nonsense. A layer of your own
    that compares embeddings with proxies declares its output at the end of its `call`.
    A layer that only passes the output of `Proxies` on, such as an activation, loses
    the declaration too.

    Args:
        similarities: Float tensor `[batch, num_classes]`, or
            `[batch, num_classes, centers_per_class]`.

    Returns:
        The same tensor.

    Example:
        >>> import keras
        >>> class MyProxies(keras.layers.Dense):
        ...     def call(self, embeddings):
        ...         return as_similarities(super().call(embeddings))
    """
    return mark(similarities, PROXIES)


def as_embeddings_with_boundaries(outputs: Tensor) -> Tensor:
    """Declare that a tensor holds embeddings followed by boundaries, and return it.

    `LearnedMarginLoss` takes the output of `tfdml.layers.ClassBoundaries` and refuses
    other tensors: the last components of an embedding would be taken for boundaries.

    Args:
        outputs: Float tensor `[batch, dimension + num_classes]`.

    Returns:
        The same tensor.

    Example:
        >>> import keras
        >>> rows = keras.ops.ones((2, 3 + 4))  # 3 components, 4 boundaries
        >>> tuple(as_embeddings_with_boundaries(rows).shape)
        (2, 7)
    """
    return mark(outputs, BOUNDARIES)
