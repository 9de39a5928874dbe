"""Compute the loss of an ensemble that divides the embedding: BIER."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from tfdml._core.ensembles import learners_of, learning_rates, parts_of
from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._base import MetricLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._ranges import scale_of_exponents, threshold_of_scores
from tfdml.messages import shown
from tfdml.ops import cosine_similarities, label_masks, softplus


class BIERLoss(MetricLoss):
    """Boosting Independent Embeddings Robustly: each learner sees what others missed.

    The columns of the embedding are divided among M learners, as `DividedEmbedding`
    does. With S_m the cosine similarity of a pair in the part of learner m,

        u(S) = alpha (S - lambda) for a positive pair, beta (lambda - S) for a negative
        l(S) = log(1 + e^-u(S))                               (binomial deviance)
        s_0 = 0,  s_m = (1 - eta_m) s_{m-1} + eta_m S_m,  eta_m = 2 / (m + 1)
        w_1 = 1,  w_{m+1} = -dl/du at s_m = 1 / (1 + e^u(s_m))

        L = 1/M sum_m ( mean over positive pairs of w_m l(S_m)
                        + mean over negative pairs of w_m l(S_m) )

    So learner m + 1 is trained most on the pairs that the first m get wrong together.
    The weights are constants to the gradient. Means are over all pairs of the batch. A
    batch without positive pairs has no first term, one without negative pairs no
    second. With one learner it is `BinomialDevianceLoss(per_anchor=False)`.

    Args:
        learners: Lengths of the learners' parts, each at least 1, as in
            `DividedEmbedding`. Their sum is the dimension of the embedding.
        positive_scale: alpha, from 1e-4 to 1e4. 2 in the paper.
        negative_scale: beta, from 1e-4 to 1e4. 50 in the paper: its C of 25 times
            alpha.
        threshold: lambda, the similarity that separates positives from negatives.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range, or the embeddings have another
            dimension.

    Example:
        >>> loss = BIERLoss([1, 1], threshold=0.0)
        >>> value = loss([7, 7], [[1.0, 1.0], [1.0, -1.0]])
        >>> round(float(value), 4)  # (log(1 + e^-2) + log(1 + e^2) / (1 + e^2)) / 2
        0.1902

    Reference:
        Opitz, Waltner, Possegger and Bischof, BIER: Boosting Independent Embeddings
        Robustly, ICCV 2017, Algorithm 1. The weight is the derivative with respect to u
        instead of S, as in the authors' code: the scales would enter twice.
    """

    needs_positives = True

    def __init__(
        self,
        learners: Sequence[int],
        *,
        positive_scale: float = 2.0,
        negative_scale: float = 50.0,
        threshold: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.learners = learners_of(learners)
        self.positive_scale: float = scale_of_exponents(
            "positive_scale", positive_scale
        )
        self.negative_scale: float = scale_of_exponents(
            "negative_scale", negative_scale
        )
        self.threshold: float = threshold_of_scores("threshold", threshold)

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check a batch and the dimension. See `MetricLoss.checked`."""
        labels, embeddings = super().checked(y_true, y_pred)
        dimension = embeddings.shape[1]
        if dimension not in (None, sum(self.learners)):
            raise ValueError(
                "`learners` must add up to the dimension of the embeddings, "
                f"{dimension}. Received: learners={shown(self.learners)}."
            )
        return labels, embeddings

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        positives, negatives = label_masks(labels)
        parts = parts_of(embeddings, self.learners)
        together: Tensor = 0.0
        weights: Tensor = 1.0
        costs: Tensor = 0.0
        for rate, part in zip(learning_rates(len(parts)), parts, strict=True):
            scores = at_least_float32(cosine_similarities(part, part))
            costs = costs + weights * softplus(self._exponents(scores, positives))
            together = (1 - rate) * together + rate * ops.stop_gradient(scores)
            weights = ops.sigmoid(self._exponents(together, positives))
        pos = ops.sum(ops.where(positives, costs, 0), axis=1)
        neg = ops.sum(ops.where(negatives, costs, 0), axis=1)
        values = scale_to_mean(pos, count(positives, pos.dtype))
        values = values + scale_to_mean(neg, count(negatives, neg.dtype))
        return ops.cast(values / len(parts), embeddings.dtype)

    def _exponents(self, scores: Tensor, positives: Tensor) -> Tensor:
        """Return -u of each pair."""
        return ops.where(
            positives,
            self.positive_scale * (self.threshold - scores),
            self.negative_scale * (scores - self.threshold),
        )
