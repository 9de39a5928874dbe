"""Check and weigh the learners of an ensemble, and cut embeddings into their parts."""

from collections.abc import Sequence
from typing import Any

from tfdml._core.arguments import whole
from tfdml._core.tensors import Tensor
from tfdml.messages import shown


def learners_of(learners: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths of the learners' parts of an embedding, or refuse them."""
    is_list = isinstance(learners, Sequence) and not isinstance(learners, str)
    if not is_list or not learners:
        raise ValueError(
            "`learners` must be the lengths of the learners' parts of an embedding, "
            f"such as (96, 160, 256). Received: learners={shown(learners)}."
        )
    return tuple(whole("learners", length) for length in learners)


def learning_rates(count: int) -> list[float]:
    """Return eta_m = 2 / (m + 1) of the learners m = 1 ... M, the steps of boosting."""
    return [2 / (m + 1) for m in range(1, count + 1)]


def learner_weights(count: int) -> list[float]:
    """Return a_m = 2 m / (M (M + 1)), the weights that the steps of boosting give."""
    return [2 * m / (count * (count + 1)) for m in range(1, count + 1)]


def parts_of(embeddings: Tensor, learners: Sequence[int]) -> list[Any]:
    """Cut columns `[rows, sum of learners]` into those of each learner."""
    parts, start = [], 0
    for length in learners:
        parts.append(embeddings[:, start : start + length])
        start += length
    return parts
