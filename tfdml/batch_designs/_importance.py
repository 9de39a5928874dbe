"""Compute weights that undo what a batch design favors, or balance the pairs.

All pairs of a data set would be compared alike; a batch design draws some pairs more
often than others. NumPy only. Every weight of a pair is a product of one number of
each of its classes, so the functions return a number a class, never a matrix of pairs.
"""

from collections.abc import Sequence

import numpy as np

from tfdml._core.arguments import at_least_zero
from tfdml._core.arrays import as_array

Counts = Sequence[int] | np.ndarray


def group_importance(
    class_counts: Counts, images_per_class: int, classes_per_batch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the importance weights W of the (m, n)-group design.

    With N images in L classes, N_c images of class c, and m images of each of n classes
    in a batch, the pair of two different images i, j weighs W = P_U / Q, the chance of
    the pair under uniform sampling over its chance in the design:

        positive:  L (mn - 1) N_c (N_c - 1) / ((m - 1) N (N - 1))
        negative:  L (L - 1) (mn - 1) N_c N_d / (m (n - 1) N (N - 1))

    A class of fewer than m images cannot be drawn: its weights are 0, and N and L leave
    it out. So are those of pairs that no batch holds: positives with m = 1, negatives
    with n = 1.

    Args:
        class_counts: Number of images of each class, `[C]`.
        images_per_class: m, at least 1.
        classes_per_batch: n, at least 1; m * n is at least 2.

    Returns:
        Two float64 arrays `[C]`, p and q: a positive pair of class c weighs p[c], a
        negative pair of the classes c and d weighs q[c] * q[d].

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> p, q = group_importance([5, 3, 7, 4], 2, 3)
        >>> print(round(p[0], 4), round(q[0] * q[1], 4))
        1.1696 0.6579

    Reference:
        Hong, Park and Kim, Deep Metric Learning via Weighted Contrastive Loss, Eqs. 9
        and 25.
    """
    for name, value in (
        ("images_per_class", images_per_class),
        ("classes_per_batch", classes_per_batch),
    ):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}.")
    batch = images_per_class * classes_per_batch
    if batch < 2:
        raise ValueError(
            "`images_per_class` * `classes_per_batch` must be at least 2. "
            f"Received: {batch}."
        )
    probability = (images_per_class - 1) / (batch - 1)
    return _importance(class_counts, probability, max(images_per_class, 1))


def random_pair_importance(
    class_counts: Counts, positive_probability: float
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the importance weights W of the p-random design.

    A pair is positive with probability p, and then any pair of a random class, else
    any pair of two random classes. With N images in L classes, N_c of class c:

        positive:  L N_c (N_c - 1) / (p N (N - 1))
        negative:  L (L - 1) N_c N_d / ((1 - p) N (N - 1))

    A class of fewer than 2 images is not used: its weights are 0, and N and L leave it
    out.

    Args:
        class_counts: Number of images of each class, `[C]`.
        positive_probability: p, from 0 to 1. (The paper calls it a ratio of positive to
            negative pairs, but uses it as this probability.)

    Returns:
        Two float64 arrays `[C]`, as `group_importance` returns them.

    Raises:
        ValueError: An argument is out of range.

    Reference:
        Hong, Park and Kim, Deep Metric Learning via Weighted Contrastive Loss, Eqs. 8
        and 24.
    """
    if not 0 <= positive_probability <= 1:
        raise ValueError(
            "`positive_probability` must be from 0 to 1. "
            f"Received: positive_probability={positive_probability}."
        )
    return _importance(class_counts, positive_probability, 2)


def balanced_eta(
    class_counts: Counts, balance: float = 256.0, smallest_class: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Compute eta, the weight of negative pairs in the balanced contrastive loss.

    With L classes and N_c images of class c, the negative pair of an anchor of class c
    and an item of class d weighs

        eta = (lambda / (L - 1)) (N_c - 1) / N_d

    which is not symmetric. An anchor whose class has one image has no positives to
    balance: eta is 0. Classes of fewer than `smallest_class` images are not used: their
    eta is 0, and L leaves them out.

    Args:
        class_counts: Number of images of each class, `[C]`.
        balance: lambda, at least 0.
        smallest_class: Images that a class must have to be used: m in the (m, n)-group
            design, 2 in the p-random design.

    Returns:
        Two float64 arrays `[C]`, a and b: eta = a[c] * b[d].

    Raises:
        ValueError: An argument is out of range.

    Reference:
        Hong, Park and Kim, Deep Metric Learning via Weighted Contrastive Loss, Eq. 16.
    """
    balance = at_least_zero("balance", balance)
    counts = _used(class_counts, max(smallest_class, 1))
    others = max(int(np.count_nonzero(counts)) - 1, 1)
    item = np.divide(1, counts, out=np.zeros_like(counts), where=counts > 0)
    return balance / others * np.maximum(counts - 1, 0), item


def _importance(
    class_counts: Counts, probability: float, smallest: int
) -> tuple[np.ndarray, np.ndarray]:
    """W for pairs that are positive with a probability (Eqs. 24 and 25 are alike)."""
    counts = _used(class_counts, smallest)
    classes, images = int(np.count_nonzero(counts)), float(counts.sum())
    pairs = images * max(images - 1, 1.0)
    if not pairs:
        return counts, counts
    positive = np.zeros_like(counts)
    if probability > 0:
        positive = counts * np.maximum(counts - 1, 0) * classes / (probability * pairs)
    negative = np.zeros_like(counts)
    if probability < 1:
        scale = classes * (classes - 1) / ((1 - probability) * pairs)
        negative = counts * np.sqrt(scale)
    return positive, negative


def _used(class_counts: Counts, smallest: int) -> np.ndarray:
    """Counts as floats, 0 for the classes that are too small."""
    counts = as_array("class_counts", class_counts)
    if counts.ndim != 1 or not np.issubdtype(counts.dtype, np.integer):
        raise ValueError(
            "`class_counts` must be whole numbers of shape [classes]. "
            f"Received: shape={counts.shape}, dtype={counts.dtype}."
        )
    if np.any(counts < 0):
        raise ValueError(
            "`class_counts` must be at least 0. "
            f"Received: {counts[counts < 0][0]} for a class."
        )
    return np.where(counts >= smallest, counts, 0).astype("float64")
