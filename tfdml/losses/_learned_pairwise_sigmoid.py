"""Compute the pairwise sigmoid loss, with a learned scale and bias."""

from keras import ops

from tfdml._core.batches import checked_batch
from tfdml._core.marks import SCALED, require_mark
from tfdml._core.tensors import Tensor, at_least_float32
from tfdml.losses._base import MetricLoss
from tfdml.losses._pairwise_sigmoid import sigmoid_costs
from tfdml.ops import cosine_similarities, label_masks


class LearnedPairwiseSigmoidLoss(MetricLoss):
    """Pairwise sigmoid (SigLIP) with a scale and a bias that are learned.

    As `PairwiseSigmoidLoss`, with t and b from the layer `tfdml.layers.ScaleAndBias` at
    the end of the trained model: `fit` does not train the variables of a loss.

    After training -b / t is the similarity from which a pair is rather of one class:

        threshold = -layer.bias / layer.scale

    (of the pairs of a batch; choose the threshold of a search by
    `tfdml.metrics.calibrate`).

    Args:
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: The output of the model is not that of `ScaleAndBias`.

    Example:
        >>> import keras
        >>> from tfdml.layers import ScaleAndBias
        >>> inputs = keras.Input((8,))
        >>> embeddings = keras.layers.Dense(4)(inputs)
        >>> model = keras.Model(inputs, ScaleAndBias()(embeddings))
        >>> model.compile("adam", loss=LearnedPairwiseSigmoidLoss())
        >>> embedder = keras.Model(inputs, embeddings)  # for the search

    Reference:
        Zhai, Mustafa, Kolesnikov and Beyer, Sigmoid Loss for Language Image
        Pre-Training, ICCV 2023.
    """

    needs_positives = True

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check labels and the layer's output. See `MetricLoss.checked`."""
        remedy = "End the model with `ScaleAndBias()`."
        require_mark(type(self).__name__, y_pred, SCALED, remedy)
        labels, outputs = checked_batch(y_true, y_pred, self.dtype)
        if outputs.shape[1] is not None and outputs.shape[1] < 3:
            raise ValueError(
                "The model must end with `ScaleAndBias()`, which appends two columns "
                f"to the embeddings. Received: outputs of {outputs.shape[1]} columns."
            )
        return labels, outputs

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Split the model's output and compare the embeddings, `[B]`."""
        rows = embeddings[:, :-2]
        log_scale, bias = embeddings[:, -2:-1], embeddings[:, -1:]
        scores = at_least_float32(cosine_similarities(rows, rows))
        scale = ops.exp(at_least_float32(log_scale))
        logits = scale * scores + at_least_float32(bias)
        costs = sigmoid_costs(logits, *label_masks(labels))
        return ops.cast(costs, embeddings.dtype)
