"""Compute the loss of neighborhood component analysis."""

from typing import Any

from keras import ops

from tfdml._core.arguments import boolean
from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss
from tfdml.losses._ranges import scale_of_exponents
from tfdml.ops import cosine_similarities, masked_logsumexp, softplus, squared_distances


class NCALoss(PairLoss):
    """Neighborhood component analysis: the probability of a same-class neighbor.

    Let an anchor i choose a neighbor k with a probability proportional to e^(s S_ik),
    s a scale and S the cosine similarity. The loss of the anchor is minus the logarithm
    of the probability that the neighbor is of its class:

        -log(sum over positives k of e^(s S_ik) / sum over k != i of e^(s S_ik))

    The published value is the sum over anchors (`reduction="sum"`); the default is the
    mean. An anchor without positives adds 0, and so does one without negatives.

    Eq. 1 of Wang et al. lacks the minus sign and includes k = i; NCA does neither.
    Goldberger et al. use minus the squared Euclidean distance instead of S, see
    `euclidean`; on unit vectors that is this loss with twice the scale.

    Args:
        scale: s, from 1e-4 to 1e4. 1 in the papers; on cosine similarities larger
            ones separate better.
        euclidean: Whether S is minus the squared Euclidean distance of the embeddings,
            which are not normalized; components beyond 1e12 in size are refused, and
            make the loss NaN in a compiled function.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `scale` is out of range.

    Example:
        >>> loss = NCALoss()
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # (log(1 + e) + log 2) / 3
        0.6688

    Reference:
        Goldberger, Roweis, Hinton and Salakhutdinov, Neighbourhood Components
        Analysis, NIPS 2004, with the logarithm of their Eq. 6; on similarities as in
        Wang, Han et al., CVPR 2019, supplement, Eq. 1.
    """

    def __init__(
        self, scale: float = 1.0, *, euclidean: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.scale: float = scale_of_exponents("scale", scale)
        self.euclidean: bool = boolean("euclidean", euclidean)

    @property
    def compares_lengths(self) -> bool:
        """Whether embeddings are compared as they are."""
        return self.euclidean

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compute similarities `[A, G]`."""
        if self.euclidean:
            return -squared_distances(anchors, gallery)
        return cosine_similarities(anchors, gallery)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        pos = masked_logsumexp(self.scale * scores, positives)
        neg = masked_logsumexp(self.scale * scores, negatives)
        # -log(e^pos / (e^pos + e^neg)) = log(1 + e^(neg - pos)), exact near 0.
        has_positive = ops.any(positives, axis=1)
        loss = softplus(neg - ops.where(has_positive, pos, 0))
        return ops.where(has_positive, loss, 0)
