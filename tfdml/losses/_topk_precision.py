"""Compute the top-k precision loss."""

from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero, boolean, whole
from tfdml._core.row_order import ranks, row_counts
from tfdml._core.tensors import Tensor, at_least_float32
from tfdml.losses._base import PairLoss
from tfdml.losses._ranges import LARGEST
from tfdml.ops import top_scores


def precision_loss(
    scores: Tensor, positives: Tensor, negatives: Tensor, k: int
) -> Tensor:
    """Count the negatives among the k retrieved items: k times 1 - Precision@k.

    With at least k candidates, l_Prec@k is k * (1 - Precision@k). Exactly k items are
    retrieved, and on ties positives rank first. (Eq. 3 read literally, with >=,
    retrieves more than k on ties, and the theorems of the paper fail.)

    Args:
        scores: Float tensor `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        negatives: Boolean tensor `[A, G]`.
        k: Number of retrieved items, at least 1.

    Returns:
        int32 tensor `[A]` of values from 0 to `k`.

    Reference:
        Lu et al., Sampling Wisely, ICCV 2019, Eq. 3.
    """
    pos, has_pos = top_scores(scores, positives, k)
    neg, has_neg = top_scores(scores, negatives, k)
    # The q-th negative is retrieved unless k + 1 - q positives rank before it.
    is_beaten = ops.logical_and(has_pos, pos >= ops.flip(neg, axis=1))
    retrieved = ops.logical_and(ops.flip(has_neg, axis=1), ops.logical_not(is_beaten))
    return ops.sum(ops.cast(retrieved, "int32"), axis=1)


class TopKPrecisionLoss(PairLoss):
    """Top-k precision loss: how far negatives rank before positives in the top k.

    Each item of the batch is a query in turn, and all others are its candidates. With
    s^ = s + gamma for negatives and s^ = s for positives, let K be the k candidates
    with the largest s^. N are the misplaced negatives (in K, where a positive should
    be), and P are equally many misplaced positives (outside K):

        l_k = sum_{i in N} s^_i - sum_{i in P} s^_i

    (Eq. 5). It is computed in an equivalent form without sets: with p the k best
    positives and n the k best negatives plus gamma, both in descending order,

        l_k = sum_{q=1..k} max(0, n_{k+1-q} - p_q)

    where a missing positive counts as +infinity and a missing negative as -infinity.
    The number of terms above 0 is |P| = |N|: see `misplaced_pairs`.

    A query without positives or without negatives adds 0, and so does one with fewer
    than k candidates, if they are too few to displace a positive. On ties positives
    rank first. The published Algorithm 1 sums over the queries (`reduction="sum"`);
    the default is the mean.

    With `rank_weights`, RSTopK, misplaced items weigh the more, the farther they are
    from the k-th rank. With r_i the rank of i among all candidates by s^,

        l = 3 / |N| (sum_{i in N} beta_i s^_i - sum_{i in P} beta_i s^_i)
        beta_i = 1 - 1 / (1 + d_i),  d_i = k + 1 - r_i in N,  r_i - k in P

    No gradient passes through the ranks. This value can be below 0.

    Args:
        k: Number of retrieved items, at least 1. If a query has only P < k positives,
            its k - P nearest negatives cost nothing, so choose k well below the number
            of positives per query in a batch.
        margin: gamma, by how much a positive must be more similar than a negative, at
            least 0, in units of cosine similarity; 0.05 to 0.2 in the paper's code.
        rank_weights: Whether misplaced items have the weights of RSTopK.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = TopKPrecisionLoss(k=1, margin=0.1)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> float(loss([7, 7, 9], embeddings))  # (1.1 + 0.1 + 0) / 3
        0.4000000059604645

    Reference:
        Lu, Xu, Zhang, Duan and Mei, Sampling Wisely: Deep Image Embedding by Top-k
        Precision Optimization, ICCV 2019. The authors' published code optimizes
        another function (see docs/losses/top-k-precision.md).

        `rank_weights`: Muramoto and Yu, Deep Metric Learning Based on Rank-sensitive
        Optimization of Top-k Precision, CIKM 2020. The weights are those of the
        authors' code, which compares negated Euclidean distances.
    """

    def __init__(
        self,
        k: int = 5,
        *,
        margin: float = 0.1,
        rank_weights: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.k: int = whole("k", k)
        self.margin: float = at_least_zero("margin", margin, LARGEST)
        self.rank_weights: bool = boolean("rank_weights", rank_weights)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute l_k of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        if self.rank_weights:
            return self._weighted(scores, positives, negatives)
        return ops.sum(ops.relu(self._gaps(scores, positives, negatives)), axis=1)

    def misplaced_pairs(
        self, scores: Tensor, positives: Tensor, negatives: Tensor
    ) -> Tensor:
        """Count |P| = |N| of each anchor: the pairs that the gradient moves.

        Args and shapes are those of `pair_loss`.

        Returns:
            int32 tensor `[A]` of values from 0 to `k`.
        """
        gaps = self._gaps(scores, positives, negatives)
        return ops.sum(ops.cast(gaps > 0, "int32"), axis=1)

    def misplaced_masks(
        self, scores: Tensor, positives: Tensor, negatives: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mark the pairs of P and of N: those that the gradient moves.

        `BoundarySampledLoss` hands them to another loss. Among equal scores the choice
        is arbitrary; both masks have `misplaced_pairs` entries in each row.

        Args and shapes are those of `pair_loss`.

        Returns:
            Two boolean tensors `[A, G]`: the misplaced positives, which rank behind the
            first k, and the misplaced negatives, which take their places.
        """
        count = ops.expand_dims(self.misplaced_pairs(scores, positives, negatives), 1)
        # Of so many positives the last ones are misplaced, of the negatives those that
        # come after the ones for which there is no positive.
        places = ops.sum(ops.cast(positives, "int32"), axis=1, keepdims=True)
        places = ops.cast(ops.minimum(places, self.k), "int32")
        rank = _ranks(scores, positives)
        pos = ops.logical_and(rank > places - count, rank <= places)
        rank = _ranks(scores, negatives)
        free = self.k - places
        neg = ops.logical_and(rank > free, rank <= free + count)
        return ops.logical_and(positives, pos), ops.logical_and(negatives, neg)

    def _weighted(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of RSTopK of each anchor, `[A]`."""
        wide = at_least_float32(scores)
        pos, neg = self.misplaced_masks(wide, positives, negatives)
        still = ops.stop_gradient(wide)
        # Positives rank first on ties.
        rows = ops.sort(ops.where(positives, still, float("inf")), axis=1)
        ahead = ops.cast(ranks(rows, still + self.margin), wide.dtype)
        ahead = row_counts(positives, wide.dtype) - ahead
        inside = self.k + 1 - ahead - ops.cast(_ranks(wide, negatives), wide.dtype)
        rows = ops.sort(ops.where(negatives, still, float("inf")), axis=1)
        ahead = ops.cast(ranks(rows, still - self.margin, ties=True), wide.dtype)
        ahead = row_counts(negatives, wide.dtype) - ahead
        beyond = ahead + ops.cast(_ranks(wide, positives), wide.dtype) - self.k
        # The rounding of a large margin may shift a rank. (Keras 3.15 on torch computes
        # `maximum` and `minimum` with a number in float32.)
        weights = [1 - 1 / (1 + ops.where(x > 1, x, 1)) for x in (inside, beyond)]
        costs = ops.where(neg, weights[0] * (wide + self.margin), 0)
        costs = costs - ops.where(pos, weights[1] * wide, 0)
        number = ops.maximum(row_counts(neg, wide.dtype), 1)
        return ops.cast(3 * ops.sum(costs / number, axis=1), scores.dtype)

    def _gaps(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute n_{k+1-q} - p_q for q = 1..k, and 0 where either is missing."""
        pos, has_pos = top_scores(scores, positives, self.k)
        neg, has_neg = top_scores(scores, negatives, self.k)
        has_both = ops.logical_and(has_pos, ops.flip(has_neg, axis=1))
        # Masked before the difference: (-inf) - (-inf) would be NaN.
        neg = ops.where(has_both, ops.flip(neg, axis=1), 0)
        gaps = neg - ops.where(has_both, pos, 0)
        # A large margin hides the digits of scores that it is added to.
        return ops.where(has_both, gaps + self.margin, 0)


def _ranks(scores: Tensor, mask: Tensor) -> Tensor:
    """Number the masked scores of each row from 1, the largest first, `[A, G]`."""
    scores = ops.where(mask, -ops.stop_gradient(scores), float("inf"))
    order = ops.argsort(scores, axis=1)
    return ops.cast(ops.argsort(order, axis=1), "int32") + 1
