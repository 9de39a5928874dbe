"""Compute the log-ratio loss on continuous labels."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from tfdml._core.arguments import at_least_zero
from tfdml._core.devices import has_gpu
from tfdml._core.tensors import Tensor, count
from tfdml.losses._continuous_base import ContinuousLoss, other_items
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._ranges import LARGEST


class LogRatioLoss(ContinuousLoss):
    """Log-ratio loss: ratios of distances between embeddings equal those of labels.

        l(a, i, j) = { log D(f_a, f_i) / D(f_a, f_j) - log D(y_a, y_i) / D(y_a, y_j) }^2

    with D the squared Euclidean distance and f embeddings of any length. The loss of an
    anchor a is the mean over all pairs {i, j} of the other items (dense triplets), and
    the loss of the batch is the mean over the anchors that have a pair.

    With u_i = log D(f_a, f_i) - log D(y_a, y_i) the mean over pairs is twice the sample
    variance of u, so that no triplet is formed: memory is O(B^2). The centered form is
    used, as the difference of two large sums loses digits. The ratios are those of
    distances, so labels and embeddings may be of any scale, the embeddings down to
    `epsilon`.

    Labels are continuous, and every item of the batch is an anchor and in the gallery.
    An item at label distance 0 from an anchor (a duplicate) is left out for that
    anchor, as the target ratio is undefined. An anchor with fewer than two others adds
    0. NaN in a label or an embedding makes the loss NaN.

    Args:
        label_distance: D between labels. `"squared_euclidean"` takes `y_true` as
            vectors `[B]` or `[B, ...]`. `"precomputed"` takes `y_true` as the matrix of
            distances `[B, B]`; row a belongs to anchor a, and the diagonal does not
            count. A function of (labels, labels) returns that matrix, for example
            `segmentation_distance` or `caption_distance` of `tfdml.ops`. Distances must
            not be negative.
        epsilon: Number added to D(f_a, f_i) before the logarithm, at least 0. With 0,
            an item whose embedding equals the anchor's is left out, which makes the
            loss discontinuous.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range, or a matrix of label distances is not
            `[B, B]`, or, where values are known, negative. Inside a compiled function
            a negative distance makes the loss NaN.

    Example:
        >>> loss = LogRatioLoss(epsilon=0.0)
        >>> poses = np.array([[0.0], [1.0], [3.0]])
        >>> float(loss(poses, 5 * poses)) < 1e-9  # equal ratios
        True

    The authors' code differs from their paper: it uses unsquared distances, which
    gives a quarter of the loss, adds 1e-6 to label distances too, so that one duplicate
    outweighs the batch, and uses the first item of a batch as the only anchor
    (`reduction=None` gives the anchors one by one).

    Reference:
        Kim, Seo, Laptev, Cho and Kwak, Deep Metric Learning Beyond Binary Supervision,
        CVPR 2019, Eq. 3 and 5.
    """

    def __init__(
        self,
        label_distance: str | Callable[[Tensor, Tensor], Tensor] = "squared_euclidean",
        *,
        epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(label_distance, **kwargs)
        self.epsilon: float = at_least_zero("epsilon", epsilon, LARGEST)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the loss of each anchor, times B / (anchors that have a pair)."""
        # A factor changes no ratio.
        targets, _ = self.label_distances(labels, embeddings)
        distances = self._shifted_distances(embeddings)
        # NaN is unequal to 0, so it is not left out.
        is_used = ops.logical_and(
            ops.not_equal(targets, 0), ops.not_equal(distances, 0)
        )
        is_used = ops.logical_and(other_items(embeddings), is_used)
        targets = ops.log(ops.where(is_used, targets, ops.ones_like(targets)))
        logs = ops.log(ops.where(is_used, distances, ops.ones_like(distances)))
        u = logs - ops.cast(targets, logs.dtype)
        number = ops.cast(count(is_used, u.dtype, axis=1), u.dtype)
        mean = ops.expand_dims(ops.sum(u, axis=1) / ops.maximum(number, 1), 1)
        squares = ops.where(is_used, ops.square(u - mean), ops.zeros_like(u))
        values = 2 * ops.sum(squares, axis=1) / ops.maximum(number - 1, 1)
        has_pair = number >= 2
        values = ops.cast(has_pair, values.dtype) * values
        return scale_to_mean(values, count(has_pair, values.dtype))

    def _shifted_distances(self, embeddings: Tensor) -> Tensor:
        """Compute D(f_a, f_i) + epsilon, `[B, B]`, up to a factor."""
        root = self.epsilon**0.5
        scale = ops.maximum(ops.stop_gradient(ops.max(ops.abs(embeddings))), root)
        scale = ops.where(ops.equal(scale, 0), ops.ones_like(scale), scale)
        rows = embeddings / scale
        # Distances do not change, and lose fewer digits near the origin.
        rows = rows - ops.stop_gradient(ops.mean(rows, axis=0, keepdims=True))
        return ops.relu(_own_distances(rows)) + ops.square(root / scale)


def _own_distances(rows: Tensor) -> Tensor:
    """Compute the squared distances of all rows, `[B, B]`, in full float32 precision.

    By default NVIDIA GPUs round the factors of a float32 product to 11 bits (TF32), and
    the logarithm of a small distance would be that of the rounding error. On them the
    rows are split into 11 bits and the rest, as TensorFlow's switch for the whole
    process does not apply to a compiled step. One product of longer rows takes fewer
    passes over the matrix than the sum of three products.
    """
    if not has_gpu() or keras.backend.standardize_dtype(rows.dtype) != "float32":
        return _distances(ops.matmul(rows, ops.transpose(rows)))

    @ops.custom_gradient
    def distances(rows: Tensor) -> Any:
        high = _rounded(rows)
        low = rows - high
        left = ops.concatenate([high, high, low], axis=1)
        right = ops.concatenate([high, low, high], axis=1)

        def gradient(*args: Tensor, upstream: Tensor = None) -> Tensor:
            upstream = args[0] if upstream is None else upstream
            # The same rounded weights in sum and product: their error is then that of
            # a difference of rows, not that of the rows.
            weights = _rounded(upstream + ops.transpose(upstream))
            total = ops.sum(weights, axis=1, keepdims=True)
            sums = ops.matmul(weights, ops.concatenate([high, low], axis=1))
            columns = rows.shape[1]
            return 2 * (total * rows - sums[:, :columns] - sums[:, columns:])

        return _distances(ops.matmul(left, ops.transpose(right))), gradient

    return distances(rows)


def _distances(products: Tensor) -> Tensor:
    """Return ||x||^2 + ||y||^2 - 2 x.y, given the products of all rows, `[B, B]`."""
    # Squared lengths out of the same product: so equal rows are at distance 0.
    lengths = ops.diagonal(products)
    return ops.expand_dims(lengths, 1) + lengths - 2 * products


def _rounded(x: Tensor) -> Tensor:
    """Round to 11 significant bits."""
    many = (2.0**13 + 1) * x
    return many - (many - x)
