"""Compute a pair-based loss between two sets: queries and a gallery."""

from keras import ops

from tfdml._core.batches import checked_labels, gallery_masks, refuse_long
from tfdml._core.control_flow import without_autograph
from tfdml._core.marks import refuse_marks
from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss


@without_autograph
def query_gallery_loss(
    loss: PairLoss,
    query_labels: Tensor,
    query_embeddings: Tensor,
    gallery_labels: Tensor,
    gallery_embeddings: Tensor,
) -> Tensor:
    """Compute a pair-based loss of queries against a gallery, one value per query.

    L_i is `loss.pair_loss` with the queries as anchors and the gallery as their
    candidates: positives are the gallery items of the query's class, negatives all
    others. The sets are assumed to be different, so no pair is left out: a copy of a
    query in the gallery is a positive. Gradients reach both sets; for a fixed gallery
    apply `keras.ops.stop_gradient` to it first.

    Uses: two views or two networks (photos against packshots, a student against a
    teacher), a validation set against its gallery, a memory of past embeddings.

    A query without positives or without negatives in the gallery has the value that the
    loss defines for such an anchor, usually 0.

    Args:
        loss: Any `PairLoss`. Its `reduction` is not used.
        query_labels: Class ids `[Q]` or `[Q, 1]`.
        query_embeddings: Embeddings `[Q, dimension]`.
        gallery_labels: Class ids `[G]` or `[G, 1]`.
        gallery_embeddings: Embeddings `[G, dimension]`.

    Returns:
        Float tensor `[Q]`; `keras.ops.mean` of it is the loss.

    Raises:
        TypeError: The loss is not defined by pairs alone: see `check_pairwise`.
        ValueError: The shapes do not fit, a label is not a whole number, or embeddings
            are too long for their type.

    Example:
        >>> from tfdml.losses import TopKPrecisionLoss
        >>> values = query_gallery_loss(
        ...     TopKPrecisionLoss(k=1, margin=0.5),
        ...     [7], [[1.0, 0.0]],
        ...     [7, 9], [[0.0, 1.0], [1.0, 0.0]],
        ... )
        >>> [float(value) for value in values]
        [1.5]
    """
    check_pairwise(loss)
    query_labels, queries = _checked_set("query", query_labels, query_embeddings, loss)
    gallery_labels, gallery = _checked_set(
        "gallery", gallery_labels, gallery_embeddings, loss
    )
    dimensions = queries.shape[1], gallery.shape[1]
    if None not in dimensions and dimensions[0] != dimensions[1]:
        raise ValueError(
            "`query_embeddings` and `gallery_embeddings` must have equal dimensions. "
            f"Received: {dimensions[0]} and {dimensions[1]}."
        )
    masks = gallery_masks(query_labels, gallery_labels)
    return loss.pair_loss(loss.scores(queries, gallery), *masks)


def check_pairwise(loss: PairLoss) -> None:
    """Refuse a loss that is more than a function of the scores of pairs.

    A `PairLoss` may add in `call` what `pair_loss` does not receive, such as a term on
    the lengths of embeddings or a selection among the pairs of a batch. Without `call`
    that would be lost silently. Such a subclass can set `is_pairwise` if `pair_loss` is
    the whole loss nevertheless.

    Args:
        loss: The loss to check.

    Raises:
        TypeError: The loss is not a `PairLoss`, or is not pairwise.
    """
    if not isinstance(loss, PairLoss):
        raise TypeError(
            "`loss` must be a PairLoss, a function of the scores of pairs; other "
            f"losses compare a batch with itself. Received: {type(loss).__name__}."
        )
    if not loss.is_pairwise:
        raise TypeError(
            "`loss` must be defined by `pair_loss` alone, but adds to it in `call`. "
            f"Received: {type(loss).__name__}."
        )


def _checked_set(
    name: str, labels: Tensor, embeddings: Tensor, loss: PairLoss
) -> tuple[Tensor, Tensor]:
    """Check labels and embeddings as a loss does, but accept a single row."""
    refuse_marks(embeddings)
    embeddings = ops.convert_to_tensor(embeddings, dtype=loss.dtype)
    if len(embeddings.shape) != 2:
        raise ValueError(
            f"`{name}_embeddings` must have the shape [items, dimension]. "
            f"Received: shape={tuple(embeddings.shape)}."
        )
    try:
        if loss.compares_lengths:
            embeddings = refuse_long(embeddings)
        return checked_labels(labels, embeddings.shape[0]), embeddings
    except ValueError as error:
        raise ValueError(f"In the {name} set: {error}") from error
