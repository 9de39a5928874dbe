"""Give a loss only the pairs that decide the top-k precision."""

from typing import Any

from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss
from tfdml.losses._query_gallery import check_pairwise
from tfdml.losses._topk_precision import TopKPrecisionLoss
from tfdml.ops import cosine_similarities, label_masks


class BoundarySampledLoss(PairLoss):
    """Another loss on the pairs at the boundary of the first k alone.

    Top-k precision is a loss and a way to sample: of the candidates of a query it uses
    the misplaced positives P, which should be among the k most similar candidates and
    are not, and as many misplaced negatives N, which take their places. Here another
    loss gets these pairs in place of all:

        L_i = loss(S_i, P_i, N_i)

    With `TripletLoss` that compares sampling at the boundary with uniform, semi-hard,
    hard and distance weighted sampling for one and the same loss. P and N are found by
    cosine similarity, whatever the loss compares; no gradient passes through the
    choice.

    A query whose first k are as they should be has no pairs, and the value that the
    loss gives to an anchor without any, usually 0. So has a query without positives or
    without negatives.

    Args:
        loss: A loss that is a function of the scores of pairs alone, see
            `check_pairwise`. Its own `reduction` and `dtype` are not used.
        k: Number of retrieved items, at least 1, as in `TopKPrecisionLoss`.
        margin: gamma, by how much a positive must be more similar than a negative, at
            least 0, in units of cosine similarity.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        TypeError: `loss` is not a function of the scores of pairs alone.
        ValueError: `k` or `margin` is out of range.

    Example:
        >>> from tfdml.losses import TripletLoss
        >>> loss = BoundarySampledLoss(TripletLoss(margin=0.5), k=1)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> float(loss([7, 7, 9], embeddings))  # (2 - 0 + 0.5 + 2 - 2 + 0.5) / 2
        1.5

    Reference:
        Lu, Xu, Zhang, Duan and Mei, Sampling Wisely: Deep Image Embedding by Top-k
        Precision Optimization, ICCV 2019, sections 3.3 and 4.2. The paper proposes the
        sampling as a part of its own loss.
    """

    def __init__(
        self, loss: PairLoss, *, k: int = 5, margin: float = 0.1, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._top_k = TopKPrecisionLoss(k, margin=margin, dtype=self.dtype)
        self.k: int = self._top_k.k
        self.margin: float = self._top_k.margin
        check_pairwise(loss)
        self.loss: PairLoss = loss
        # Of scores alone it is known only of cosines what they say of the first k.
        self.is_pairwise = type(loss).scores is PairLoss.scores

    @property
    def compares_lengths(self) -> bool:
        """Whether the lengths of embeddings count for the loss."""
        return self.loss.compares_lengths

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the loss of each anchor on its sampled pairs, `[B]`."""
        similarities = cosine_similarities(embeddings, embeddings)
        sampled = self._top_k.misplaced_masks(similarities, *label_masks(labels))
        return self.loss.pair_loss(self.scores(embeddings, embeddings), *sampled)

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compute the scores that the loss compares, `[A, G]`."""
        return self.loss.scores(anchors, gallery)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor, `[A]`. See `PairLoss.pair_loss`.

        Raises:
            ValueError: The loss compares something else than cosine similarities.
        """
        if not self.is_pairwise:
            raise ValueError(
                "`loss` must compare cosine similarities if only scores are known, as "
                f"pairs are sampled by these. Received: {type(self.loss).__name__}."
            )
        sampled = self._top_k.misplaced_masks(scores, positives, negatives)
        return self.loss.pair_loss(scores, *sampled)
