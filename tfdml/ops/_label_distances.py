"""Compute distances between continuous labels: poses, segmentations, captions."""

import math

import keras
from keras import ops

from tfdml._core.tensors import Tensor
from tfdml.ops._pairs import unit_rows

_WRITTEN_OUT = 64
"""Up to this number of coordinates of labels they are compared without a loop."""

_COORDINATES = 8
"""Number of coordinates of labels that are compared in one step of the loop."""


@keras.saving.register_keras_serializable(package="tfdml")
def squared_label_distance(labels: Tensor, others: Tensor) -> Tensor:
    """Compute the squared Euclidean distances of label vectors, such as poses.

        D(y, z) = sum_l (y_l - z_l)^2

    It is a sum of squared differences, not computed from products: equal labels have a
    distance of exactly 0, and distances of near labels stay precise, as needed for the
    logarithm of a distance.

    Args:
        labels: Float tensor `[A, ...]`; the axes after the first are one vector.
        others: Float tensor `[B, ...]`, of the same axes.

    Returns:
        Float tensor `[A, B]`.

    Raises:
        ValueError: The axes after the first differ.

    Example:
        >>> distances = squared_label_distance(np.array([1.0, 3.0]), np.array([0.0]))
        >>> np.asarray(distances).tolist()
        [[1.0], [9.0]]
    """
    labels, others = ops.convert_to_tensor(labels), ops.convert_to_tensor(others)
    shapes = tuple(labels.shape[1:]), tuple(others.shape[1:])
    if None not in (*shapes[0], *shapes[1]) and shapes[0] != shapes[1]:
        raise ValueError(
            "`labels` and `others` must have the same axes after the first. "
            f"Received: shapes {tuple(labels.shape)} and {tuple(others.shape)}."
        )
    if "int" in keras.backend.standardize_dtype(labels.dtype):
        # Differences are exact, and small; floats would merge large numbers.
        origin = labels[:1]
        labels, others = labels - origin, ops.cast(others, origin.dtype) - origin
    labels, others = _columns(labels), _columns(others)
    # Several coordinates per step: each step reads and writes the whole matrix.
    if labels.shape[0] and labels.shape[0] <= _WRITTEN_OUT:
        # One pass over the matrix once it is compiled.
        squares = [
            ops.square(ops.expand_dims(labels[i], 1) - ops.expand_dims(others[i], 0))
            for i in range(labels.shape[0])
        ]
        return sum(squares[1:], squares[0])
    steps = -(-ops.shape(labels)[0] // _COORDINATES)
    fill = [[0, steps * _COORDINATES - ops.shape(labels)[0]], [0, 0]]
    labels, others = ops.pad(labels, fill), ops.pad(others, fill)

    def add(step: Tensor, total: Tensor) -> Tensor:
        for coordinate in range(_COORDINATES):
            row = step * _COORDINATES + coordinate
            left = ops.expand_dims(ops.take(labels, row, axis=0), 1)
            right = ops.expand_dims(ops.take(others, row, axis=0), 0)
            total = total + ops.square(left - right)
        return total

    zeros = ops.zeros((ops.shape(labels)[1], ops.shape(others)[1]), labels.dtype)
    return ops.fori_loop(0, steps, add, zeros)


@keras.saving.register_keras_serializable(package="tfdml")
def segmentation_distance(labels: Tensor, others: Tensor) -> Tensor:
    """Compute 1 - mean intersection over union, as between layouts of two rooms.

        D(y, z) = 1 - mean over c of |y_c and z_c| / |y_c or z_c|

    where y_c are the pixels of class c. The mean is over the classes that are in at
    least one of the two. Equal segmentations have a distance of exactly 0; two without
    any labeled pixel count as equal.

    Args:
        labels: One-hot tensor `[A, ..., classes]`: 1 where a pixel is of the class,
            as `keras.ops.one_hot` makes it from class numbers. An unlabeled pixel is 0
            in all classes. A coarse grid is sufficient.
        others: One-hot tensor `[B, ..., classes]`, of the same axes.

    Returns:
        Float tensor `[A, B]` of values from 0 to 1.

    Example:
        >>> left = ops.one_hot(np.array([[0, 0, 1, 1]]), 2)
        >>> right = ops.one_hot(np.array([[0, 1, 1, 1]]), 2)
        >>> round(float(segmentation_distance(left, right)[0, 0]), 4)
        0.4167

    Reference:
        Kim, Seo, Laptev, Cho and Kwak, Deep Metric Learning Beyond Binary Supervision,
        CVPR 2019, room layouts.
    """
    classes = labels.shape[-1]
    left, right = _maps(labels), _maps(others)
    total, present = 0.0, 0.0
    for c in range(classes):
        one, other = left[:, :, c], right[:, :, c]
        both = ops.matmul(one, ops.transpose(other))
        sizes = ops.expand_dims(ops.sum(one, axis=1), 1) + ops.sum(other, axis=1)
        either = sizes - both
        total += both / ops.maximum(either, 1)
        present += ops.cast(either > 0, both.dtype)
    return ops.where(present > 0, 1 - total / ops.maximum(present, 1), 0)


@keras.saving.register_keras_serializable(package="tfdml")
def caption_distance(labels: Tensor, others: Tensor) -> Tensor:
    """Compute distances of images by their captions, each a sentence embedding.

        D(Y, Z) = sum_{y in Y} min_{z in Z} d(y, z) + sum_{z in Z} min_{y in Y} d(y, z)

    with Y and Z the captions of two images and d = 1 - cosine similarity. In the paper
    d is the word mover's distance of sentences; here it is the distance of sentence
    embeddings, which you compute beforehand. A d below 1e-6, the rounding error of
    float32, counts as 0, so that equal captions have the distance 0.

    Args:
        labels: Float tensor `[A, captions, dimension]`, or `[A, dimension]` with one
            caption per image.
        others: Float tensor `[B, captions, dimension]` or `[B, dimension]`.

    Returns:
        Float tensor `[A, B]`, at least 0.

    Example:
        >>> distances = caption_distance(np.eye(2), np.eye(2))
        >>> np.asarray(distances).tolist()
        [[0.0, 2.0], [2.0, 0.0]]

    Reference:
        Kim, Seo, Laptev, Cho and Kwak, Deep Metric Learning Beyond Binary Supervision,
        CVPR 2019, image captions.
    """
    left, right = _captions(labels), _captions(others)
    rows: list[Tensor] = [None] * left.shape[1]
    columns: list[Tensor] = [None] * right.shape[1]
    for i in range(left.shape[1]):
        for j in range(right.shape[1]):
            products = ops.matmul(left[:, i], ops.transpose(right[:, j]))
            distances = ops.where(products > 1 - 1e-6, 0, 1 - products)
            rows[i] = distances if j == 0 else ops.minimum(rows[i], distances)
            columns[j] = distances if i == 0 else ops.minimum(columns[j], distances)
    return sum(rows[1:], rows[0]) + sum(columns[1:], columns[0])


def _columns(labels: Tensor) -> Tensor:
    """Return labels `[A, ...]` as floats `[coordinates, A]`."""
    labels = _floats(labels)
    # TensorFlow does not infer it where the number of rows is unknown.
    sides = labels.shape[1:]
    columns = -1 if None in sides else math.prod(sides)
    return ops.transpose(ops.reshape(labels, (ops.shape(labels)[0], columns)))


def _maps(labels: Tensor) -> Tensor:
    """Return one-hot maps `[A, ..., classes]` as floats `[A, pixels, classes]`."""
    labels = _floats(labels)
    if len(labels.shape) < 2 or labels.shape[-1] is None:
        raise ValueError(
            "Segmentations must be one-hot, of the shape [batch, ..., classes]. "
            f"Received: shape={tuple(labels.shape)}."
        )
    return ops.reshape(labels, (ops.shape(labels)[0], -1, labels.shape[-1]))


def _captions(labels: Tensor) -> Tensor:
    """Return sentence embeddings as unit rows `[A, captions, dimension]`."""
    labels = _floats(labels)
    if len(labels.shape) == 2:
        labels = ops.expand_dims(labels, 1)
    if len(labels.shape) != 3 or labels.shape[1] is None:
        raise ValueError(
            "Captions must be sentence embeddings [batch, captions, dimension], with "
            f"a known number of captions. Received: shape={tuple(labels.shape)}."
        )
    return unit_rows(labels)


def _floats(labels: Tensor) -> Tensor:
    """Return labels in float64 if they are, else in float32."""
    labels = ops.convert_to_tensor(labels)
    kind = keras.backend.standardize_dtype(labels.dtype)
    return labels if kind == "float64" else ops.cast(labels, "float32")
