"""Mix items of one class: virtual items, on the line between two."""

from keras import ops

from tfdml._core.tensors import Tensor, at_least_float32
from tfdml.losses._class_mates import ClassMates, encoded_rows
from tfdml.ops import unit_rows


def with_mixtures(
    labels: Tensor, embeddings: Tensor, number: int
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Add to a batch the mixtures of each item with the next ones of its class.

    The n items of a class stand in a circle, in the order of the batch. The one in
    place p, counted from 0, is mixed with the m-th after it, with the weights alpha and
    1 - alpha for alpha = (p + 1/2) / n. A pair that is across the circle occurs once,
    with alpha = (p + 1/2) / m, so with a number of at least n / 2 each pair of a class
    has one mixture.

    Args:
        labels: Class ids `[B]`.
        embeddings: Embeddings `[B, dimension]`, which are divided by their length
            before they are mixed. A mixture keeps its own length, so that its scores
            are the mixtures of the scores.
        number: How many following items each is mixed with, N.

    Returns:
        Items and mixtures, `[(1 + N) B, dimension]`, and the masks of positives and
        negatives, `[(1 + N) B, (1 + N) B]`. Mixtures that do not exist, as the class is
        too small, are in neither mask.
    """
    rows = at_least_float32(unit_rows(embeddings))
    everything = ops.ones_like(labels, dtype="bool")
    mates = ClassMates.of(encoded_rows(labels, everything, everything, rows.dtype))
    items, exist = [rows], [everything]
    for after in range(1, number + 1):
        place = mates.before + (mates.rank + after) % mates.size
        mate = ops.take(rows, ops.take(mates.order, place), axis=0)
        is_across = ops.equal(mates.size, 2 * after)
        once = ops.logical_and(is_across, mates.rank < after)
        exist.append(ops.logical_or(mates.size > 2 * after, once))
        steps = ops.cast(ops.where(is_across, after, mates.size), rows.dtype)
        weight = ops.expand_dims((ops.cast(mates.rank, rows.dtype) + 0.5) / steps, 1)
        # Beyond 1 where the pair is not a new one.
        weight = ops.where(weight > 1, 1, weight)
        items.append(weight * rows + (1 - weight) * mate)
    there = ops.concatenate(exist)
    there = ops.logical_and(ops.expand_dims(there, 1), ops.expand_dims(there, 0))
    same = ops.tile(mates.same, (1 + number, 1 + number))
    position = ops.arange(ops.shape(same)[0], dtype="int32")
    itself = ops.equal(ops.expand_dims(position, 1), ops.expand_dims(position, 0))
    positives = ops.logical_and(same, ops.logical_not(itself))
    negatives = ops.logical_not(same)
    masks = ops.logical_and(positives, there), ops.logical_and(negatives, there)
    return ops.concatenate(items), masks
