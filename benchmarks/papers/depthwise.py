"""Compute depthwise convolutions as sums of shifted products.

XLA computes the gradients of a depthwise convolution like those of a dense one on GPUs
(https://github.com/jax-ml/jax/issues/13800), and slowly on CPUs. Of products and sums
it makes few loops.
"""

from typing import Any

import keras
from keras import ops


def shifted_products(
    images: Any, kernel: Any, strides: tuple[int, int], padding: str
) -> Any:
    """Convolve each channel with a kernel of its own.

    Args:
        images: `[batch, height, width, channels]`.
        kernel: `[rows, columns, channels, 1]`.
        strides: Vertically and horizontally.
        padding: `"valid"` or `"same"`, as Keras' layers have it.

    Returns:
        `[batch, new_height, new_width, channels]`.
    """
    sides = images.shape[1:3]
    kernel_size = kernel.shape[:2]
    if padding == "same":
        missing = [
            max((-(-side // stride) - 1) * stride + size - side, 0)
            for side, stride, size in zip(sides, strides, kernel_size, strict=True)
        ]
        around = [[total // 2, total - total // 2] for total in missing]
        images = ops.pad(images, [[0, 0], *around, [0, 0]])
        sides = images.shape[1:3]
    # Up to where the first row and column of the kernel comes.
    ends = [side - size + 1 for side, size in zip(sides, kernel_size, strict=True)]
    products = [
        images[
            :,
            row : row + ends[0] : strides[0],
            column : column + ends[1] : strides[1],
        ]
        * kernel[row, column, :, 0]
        for row in range(kernel_size[0])
        for column in range(kernel_size[1])
    ]
    return sum(products[1:], products[0])


class ShiftedDepthwiseConv2D(keras.layers.DepthwiseConv2D):
    """A depthwise convolution without bias as a sum of shifted products."""

    def call(self, inputs: Any) -> Any:
        """Convolve."""
        return shifted_products(inputs, self.kernel, self.strides, self.padding)


def with_shifted_products(model: keras.Model) -> keras.Model:
    """Copy a model, its depthwise convolutions as sums of shifted products.

    Args:
        model: A model made of layers, with models among them or not.

    Returns:
        The copy, with weights of its own. Convolutions that do more than
        `ShiftedDepthwiseConv2D` are as they were.
    """
    copy = keras.models.clone_model(model, clone_function=_copy, recursive=True)
    for weight, known in zip(copy.weights, model.weights, strict=True):
        weight.assign(known)
        weight.trainable = known.trainable  # single variables may be frozen
    return copy


def _copy(layer: keras.layers.Layer) -> keras.layers.Layer:
    return _class_of(layer).from_config(layer.get_config())


def _class_of(layer: keras.layers.Layer) -> type[keras.layers.Layer]:
    if isinstance(layer, keras.layers.DepthwiseConv2D) and (
        not layer.use_bias
        and layer.activation is keras.activations.linear
        and layer.depth_multiplier == 1
        and tuple(layer.dilation_rate) == (1, 1)
        and layer.data_format == "channels_last"
    ):
        return ShiftedDepthwiseConv2D
    return type(layer)
