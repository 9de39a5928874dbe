"""A pair-based loss between two different sets: queries and a gallery."""

import keras
from keras import ops

from tfdml.losses._base import PairLoss
from tfdml.ops import Tensor, checked_labels, same_labels


def query_gallery_loss(
    loss: PairLoss,
    query_labels: Tensor,
    query_embeddings: Tensor,
    gallery_labels: Tensor,
    gallery_embeddings: Tensor,
) -> Tensor:
    """Compute a pair-based loss of queries against a gallery, one value a query.

    L_i is `loss.pair_loss` with the queries as anchors and the gallery as their
    candidates: positives are the gallery items of the query's class, negatives all
    others. The sets are taken to be different, so nothing is left out: a query whose
    copy stands in the gallery has it as a positive. Gradients reach both sets; for a
    gallery that stays fixed apply `keras.ops.stop_gradient` to it first.

    Uses: two views or two networks (photos against packshots, a student against a
    teacher), a validation set against its gallery, a memory of past embeddings.

    A query with no positive or no negative in the gallery adds what the loss says of
    such an anchor, mostly 0.

    Args:
        loss: Any `PairLoss`. Its `reduction` plays no part.
        query_labels: Class ids `[Q]` or `[Q, 1]`.
        query_embeddings: Embeddings `[Q, dimension]`.
        gallery_labels: Class ids `[G]` or `[G, 1]`.
        gallery_embeddings: Embeddings `[G, dimension]`.

    Returns:
        Float tensor `[Q]`; `keras.ops.mean` of it is the loss.

    Raises:
        TypeError: The loss is not defined by pairs alone: see `check_pairwise`.
        ValueError: The shapes do not fit, or a label is no whole number.

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
            "`query_embeddings` and `gallery_embeddings` must have one dimension. "
            f"Received: {dimensions[0]} and {dimensions[1]}."
        )
    masks = gallery_masks(query_labels, gallery_labels)
    return loss.pair_loss(loss.scores(queries, gallery), *masks)


def check_pairwise(loss: PairLoss) -> None:
    """Refuse a loss that is more than a function of the scores of pairs.

    A `PairLoss` may add in `call` what `pair_loss` does not know: a term on the lengths
    of embeddings, a choice among the pairs of a batch, boundaries that the model
    learns. Outside of `call` that would be lost in silence. Such a subclass can say by
    `is_pairwise` whether `pair_loss` is the whole loss all the same.

    Args:
        loss: The loss to check.

    Raises:
        TypeError: The loss is no `PairLoss`, or overrides `call` and is not pairwise.
    """
    if not isinstance(loss, PairLoss):
        raise TypeError(
            "`loss` must be a PairLoss, a function of the scores of pairs; others "
            f"compare one batch with itself. Received: {type(loss).__name__}."
        )
    if not loss.is_pairwise:
        raise TypeError(
            "`loss` must be defined by `pair_loss` alone, and this one does more in "
            f"`call`. Received: {type(loss).__name__}."
        )


def gallery_masks(
    labels: Tensor, gallery_labels: Tensor, position: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Say which gallery items are positives and which are negatives of each anchor.

    Args:
        labels: Labels of the anchors, `[A]`.
        gallery_labels: Labels of the gallery, `[G]`.
        position: Where each anchor itself stands in the gallery, int `[A]`: neither a
            positive nor a negative there. None if the anchors are not in it.

    Returns:
        Two boolean tensors `[A, G]`: positives and negatives.

    Raises:
        ValueError: The types of the labels differ and have no whole type in common.
    """
    types = {keras.backend.standardize_dtype(x.dtype) for x in (labels, gallery_labels)}
    if len(types) > 1 and "int" not in keras.backend.result_type(*types):
        raise ValueError(
            "The labels of queries and gallery must have a whole type in common; "
            f"otherwise large class ids merge. Received: {', '.join(sorted(types))}."
        )
    same = same_labels(labels, gallery_labels)
    if position is None:
        return same, ops.logical_not(same)
    places = ops.arange(ops.shape(gallery_labels)[0], dtype=position.dtype)
    itself = same_labels(position, places)
    return ops.logical_and(same, ops.logical_not(itself)), ops.logical_not(same)


def _checked_set(
    name: str, labels: Tensor, embeddings: Tensor, loss: PairLoss
) -> tuple[Tensor, Tensor]:
    """Check labels and embeddings as a loss does, but let one row be enough."""
    embeddings = ops.convert_to_tensor(embeddings, dtype=loss.dtype)
    if len(embeddings.shape) != 2:
        raise ValueError(
            f"`{name}_embeddings` must have the shape [items, dimension]. "
            f"Received: shape={tuple(embeddings.shape)}."
        )
    try:
        return checked_labels(labels, embeddings.shape[0]), embeddings
    except ValueError as error:
        raise ValueError(f"In the {name} set: {error}") from error
