"""Compute the surrogate loss of Recall@k, with similarity mixup."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from tfdml._core.arguments import whole, within
from tfdml._core.tensors import Tensor, at_least_float32, count, products
from tfdml.losses._base import PairLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._counts_before import counts_before, sigmoid_step
from tfdml.losses._ranges import scale_of_exponents
from tfdml.losses._similarity_mixup import with_mixtures
from tfdml.messages import shown


class RecallAtKLoss(PairLoss):
    """Recall@k surrogate: 1 - the share of positives in the first k, smoothly counted.

    With S the cosine similarities of an anchor to its positives P and to all its
    candidates, and G_t(x) = 1 / (1 + e^(-x / t)):

        r_i = 1 + sum over candidates j != i of G_tau2(S_j - S_i)
        R_k = min(k, sum over i in P of G_tau1(k - r_i)) / min(k, |P|)
        L_a = 1 - mean of R_k over the values of k

    and the loss is the mean over the anchors that have positives; the others add 0. An
    anchor without negatives still has a loss, as its positives cannot all be first.

    Similarity mixup (SiMix) adds virtual items, on a line between two items x and z of
    one class: S(mixture, y) = alpha S(x, y) + (1 - alpha) S(z, y) for every y. They are
    anchors, positives and negatives like the others. Each image is mixed with the next
    `simix` images of its class in the batch, so with `simix=2` classes of 4 have 6
    mixtures, one for each pair. The authors draw alpha uniformly from 0 to 1 for each
    pair; here the values of a class are spread evenly from 0 to 1, and the order of
    the batch says which pair gets which, as a loss has no random state.

    Positives are visited one at a time, forward and backward: O(B^2 P) operations for P
    positives per anchor, O(B^2) memory. With SiMix, B is (1 + simix) times the batch.

    Args:
        k: The values of k, at least 1, ascending. 1, 2, 4, 8 and 16 in the paper's
            code for fine-grained classes.
        temperature: tau2, from 1e-4 to 1e4, in units of cosine similarity.
        rank_temperature: tau1, from 0.1 to 1e4, in ranks.
        simix: With how many following images of its class each image is mixed; 0: no
            mixup. Half the images per class are all pairs.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = RecallAtKLoss(k=[1], rank_temperature=1.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # ranks of 2 and 1.5
        0.677

    Reference:
        Patel, Tolias and Matas, Recall@k Surrogate Loss with Large Batches and
        Similarity Mixup, CVPR 2022. The formula is that of the authors' code, but there
        an anchor is a candidate of itself, which adds 1 to each rank.
    """

    def __init__(
        self,
        k: Sequence[int] = (1, 2, 4, 8, 16),
        *,
        temperature: float = 0.01,
        rank_temperature: float = 1.0,
        simix: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.k: tuple[int, ...] = _cutoffs(k)
        self.temperature: float = scale_of_exponents("temperature", temperature)
        self.rank_temperature: float = within(
            "rank_temperature", rank_temperature, 0.1, 1e4
        )
        self.simix: int = whole("simix", simix, least=0)
        # Which items are of one class, and where they are, is more than the scores say.
        self.is_pairwise = self.simix == 0

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compare the batch, with its mixtures, with itself; returns `[B]`."""
        if not self.simix:
            return super().call(labels, embeddings)
        rows, masks = with_mixtures(labels, embeddings, self.simix)
        values = self.pair_loss(products(rows, rows), *masks)
        # The mean over all anchors is that over the images of the mean of each image
        # and its mixtures.
        values = ops.reshape(values, (1 + self.simix, ops.shape(embeddings)[0]))
        # Keras 3.15 on JAX computes `mean` in float32, whatever its input.
        return ops.sum(values, axis=0) / (1 + self.simix)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        wide = at_least_float32(scores)
        candidates = ops.logical_or(positives, negatives)
        step = sigmoid_step(self.temperature)
        places = 1 + counts_before(wide, positives, candidates, step)
        number = count(positives, wide.dtype, axis=1)
        recall = ops.zeros_like(number)
        for k in self.k:
            hits = ops.sigmoid((k - places) / self.rank_temperature)
            hits = ops.sum(ops.where(positives, hits, 0), axis=1)
            most = ops.maximum(ops.minimum(number, k), 1)
            recall = recall + ops.where(hits > k, k, hits) / most
        values = ops.where(number > 0, 1 - recall / len(self.k), 0)
        values = scale_to_mean(values, count(number > 0, values.dtype))
        return ops.cast(values, scores.dtype)


def _cutoffs(k: Sequence[int]) -> tuple[int, ...]:
    """Return the values of k, checked."""
    if isinstance(k, str) or not isinstance(k, Sequence) or not k:
        raise ValueError(
            "`k` must be a sequence of whole numbers of at least 1, such as (1, 2, 4). "
            f"Received: k={shown(k)}."
        )
    cutoffs = tuple(whole("k", one) for one in k)
    if list(cutoffs) != sorted(set(cutoffs)):
        raise ValueError(
            f"`k` must rise from each to the next. Received: k={shown(k)}."
        )
    return cutoffs
