"""Reduce the features of a backbone to one vector of an image."""

import math
from collections.abc import Callable

import keras
from keras import layers

from tfdml.layers import GeMPooling
from tfdml.messages import shown


def _average_and_max(name: str) -> Callable[[keras.KerasTensor], keras.KerasTensor]:
    average, largest = layers.GlobalAveragePooling2D(), layers.GlobalMaxPooling2D()
    return lambda x: layers.Add(name=name)([average(x), largest(x)])


_OF_MAPS = {
    "average": layers.GlobalAveragePooling2D,
    "max": layers.GlobalMaxPooling2D,
    "average_and_max": _average_and_max,
    "gem": GeMPooling,
    "flatten": layers.Flatten,
}

POOLINGS = (*_OF_MAPS, "token")


def pooled(
    x: keras.KerasTensor, pooling: str, backbone: str, leading_tokens: int | None = 0
) -> keras.KerasTensor:
    """Append the layers of a pooling, the last of which is named "pooling".

    Args:
        x: Feature map `[batch, height, width, channels]`, tokens `[batch, tokens,
            channels]`, or vectors `[batch, channels]`.
        pooling: One of `POOLINGS`.
        backbone: What messages call the network.
        leading_tokens: How many tokens stand before those of the patches, a class token
            first; None: it is not known, and all tokens are pooled.

    Returns:
        Vectors.

    Raises:
        ValueError: The features have no such pooling.
    """
    is_token = pooling == "token"
    if len(x.shape) == 2:
        if not is_token:
            raise _refused('be "token"', "which ends in vectors", pooling, backbone)
        return layers.Identity(name="pooling")(x)
    if len(x.shape) == 3:
        count, channels = x.shape[1:]
        if is_token:
            if leading_tokens == 0:
                what = "which has no class token"
                raise _refused("be another", what, pooling, backbone)
            x = layers.Cropping1D((0, count - 1), name="class_token")(x)
            return layers.Reshape((channels,), name="pooling")(x)
        if leading_tokens:
            x = layers.Cropping1D((leading_tokens, 0), name="patch_tokens")(x)
            count -= leading_tokens
        side = math.isqrt(count)
        sides = (side, side) if side * side == count else (count, 1)
        x = layers.Reshape((*sides, channels), name="feature_map")(x)
    elif is_token:
        what = "which ends in a feature map"
        raise _refused("be another", what, pooling, backbone)
    return _OF_MAPS[pooling](name="pooling")(x)


def _refused(rule: str, what: str, pooling: str, backbone: str) -> ValueError:
    return ValueError(
        f"`pooling` must {rule} with the backbone {shown(backbone)}, {what}. "
        f"Received: pooling={shown(pooling)}."
    )
