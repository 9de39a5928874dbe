"""Apply a loss to prefixes of an embedding, so that each of them can be searched."""

from collections.abc import Sequence

from keras import ops

from tfdml._core.arguments import at_least_zero
from tfdml._core.marks import PROXIES, mark, require_mark
from tfdml._core.prefixes import of_prefixes, refuse_another_end, rising_dimensions
from tfdml._core.tensors import Tensor
from tfdml.losses._abe import ABELoss
from tfdml.losses._base import MetricLoss
from tfdml.losses._bier import BIERLoss
from tfdml.losses._compatible import CompatibleLoss
from tfdml.losses._horde import HORDELoss
from tfdml.losses._learned_margin import LearnedMarginLoss
from tfdml.losses._learned_pairwise_sigmoid import LearnedPairwiseSigmoidLoss
from tfdml.losses._proxy_base import ProxyLoss
from tfdml.losses._ranges import LARGEST_WEIGHT
from tfdml.messages import shown


class MatryoshkaLoss(MetricLoss):
    """Matryoshka: one embedding whose first components are an embedding, too.

    With z_1:m the first m components of the embeddings and c_m the weight of m,

        L = sum over m in dimensions of c_m loss(labels, z_1:m)

    A search can then take as many components as it has memory and time for; the
    embedder is trained once. A prefix is compared as the loss compares an embedding:
    most losses scale it to unit length, as a search by cosine similarity does. A loss
    with `normalize=False` compares it as it is.

    **Proxies.** With a loss on proxies the model ends in
    `tfdml.layers.Proxies(num_classes, dimensions=dimensions)`, and a prefix is compared
    with the same prefix of each proxy (the paper's MRL-E, where dimensions share one
    weight matrix). So the layer is no larger, and a proxy can be searched in any
    dimension, as an image can.

    Args:
        loss: A loss of `tfdml.losses` over embeddings or proxies, which also sets
            reduction and type. It also checks the labels.
        dimensions: The numbers of components m, rising. The last is the dimension of
            the embeddings, so that no component stays untrained.
        weights: c_m of each dimension, from 0 to 1e6, not all 0. By default 1, as in
            the paper.
        name: Name of the loss.

    Raises:
        TypeError: `loss` is no such loss.
        ValueError: `dimensions` or `weights` are out of range, or the output of the
            model does not fit them.

    Example:
        >>> from tfdml.losses import ContrastiveLoss
        >>> loss = MatryoshkaLoss(ContrastiveLoss(), dimensions=(2, 3))
        >>> embeddings = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        >>> round(float(loss([7, 7], embeddings)), 4)  # 2 + 2
        4.0

    Reference:
        Kusupati et al., Matryoshka Representation Learning, NeurIPS 2022.
    """

    def __init__(
        self,
        loss: MetricLoss,
        *,
        dimensions: Sequence[int] = (32, 64, 128),
        weights: Sequence[float] | None = None,
        name: str | None = "matryoshka_loss",
    ) -> None:
        lengths = rising_dimensions(dimensions)
        numbers = _checked(weights, lengths)
        # What these take is no embedding, or one that is divided already.
        others = (
            ABELoss,
            BIERLoss,
            CompatibleLoss,
            HORDELoss,
            LearnedMarginLoss,
            LearnedPairwiseSigmoidLoss,
            MatryoshkaLoss,
        )
        if not isinstance(loss, MetricLoss) or isinstance(loss, others):
            raise TypeError(
                "`loss` must be a loss of tfdml.losses over embeddings or proxies. "
                f"Received: {shown(loss)}."
            )
        super().__init__(reduction=loss.reduction, name=name, dtype=loss.dtype)
        self.loss = loss
        self.dimensions: tuple[int, ...] = lengths
        self.weights: tuple[float, ...] | None = numbers
        self.needs_positives = loss.needs_positives

    @property
    def compares_lengths(self) -> bool:
        """Whether the lengths of embeddings count. See `MetricLoss`."""
        return self.loss.compares_lengths

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check a batch as the loss does. See `MetricLoss.checked`."""
        if isinstance(self.loss, ProxyLoss):
            return self._checked_similarities(y_true, y_pred)
        labels, embeddings = self.loss.checked(y_true, y_pred)
        refuse_another_end(self.dimensions, embeddings.shape[1])
        return labels, embeddings

    def _checked_similarities(
        self, y_true: Tensor, y_pred: Tensor
    ) -> tuple[Tensor, Tensor]:
        count = len(self.dimensions)
        remedy = (
            f"End the model with `Proxies(num_classes, dimensions={self.dimensions})`."
        )
        require_mark(type(self).__name__, y_pred, of_prefixes(self.dimensions), remedy)
        similarities = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        shape = tuple(similarities.shape)
        if len(shape) not in (3, 4) or shape[2] != count:
            raise ValueError(
                f"The output (`y_pred`) for {type(self).__name__} must be similarities "
                f"of the shape [batch, num_classes, {count}], or with centers behind. "
                f"{remedy} Received: shape={shape}."
            )
        first = mark(similarities[:, :, 0], PROXIES)
        return self.loss.checked(y_true, first)[0], similarities

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the loss of each anchor, `[B]`."""
        if isinstance(self.loss, ProxyLoss):
            parts = [embeddings[:, :, m] for m in range(len(self.dimensions))]
        else:
            parts = [embeddings[:, :length] for length in self.dimensions]
        weights = self.weights or (1.0,) * len(parts)
        values = [
            weight * self.loss.call(labels, part)
            for weight, part in zip(weights, parts, strict=True)
        ]
        return sum(values[1:], values[0])


def _checked(
    weights: Sequence[float] | None, dimensions: tuple[int, ...]
) -> tuple[float, ...] | None:
    """Return the weights of the dimensions, or refuse them."""
    if weights is None:
        return None
    is_list = isinstance(weights, Sequence) and not isinstance(weights, str)
    if not is_list or len(weights) != len(dimensions):
        raise ValueError(
            f"`weights` must be one number for each of the {len(dimensions)} "
            f"dimensions. Received: weights={shown(weights)}."
        )
    numbers = tuple(at_least_zero("weights", x, LARGEST_WEIGHT) for x in weights)
    if not any(numbers):
        raise ValueError(
            "`weights` must not all be 0, or nothing is trained. "
            f"Received: weights={shown(weights)}."
        )
    return numbers
