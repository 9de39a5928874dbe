"""How well clusters match the classes."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._labels import class_codes


def clustering_metrics(clusters: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compare clusters with classes; the names of neither matter.

    With H the entropy, I the mutual information, and over all pairs of different items
    "together" where both have the same cluster, "alike" where both have the same label:

    - `nmi_geometric`: I / sqrt(H(clusters) H(labels)), as scikit-learn had it until
      0.21, and Hong et al.
    - `nmi_arithmetic`: 2 I / (H(clusters) + H(labels)), as scikit-learn has it since
      0.22, and Song et al. and SoftTriple. It is never above the other.
    - `pairwise_f1`: the harmonic mean of the share of pairs together that are alike and
      of the share of pairs alike that are together.
    - `adjusted_rand`: the share of pairs on which both agree, moved and scaled so that
      random clusters of the same sizes get 0 in expectation and equal ones 1.

    Where all items have one cluster and one label the normalized informations are 1;
    where only one of both says nothing they are 0. With no pair both together and alike
    `pairwise_f1` is 0, also where every item is its own cluster and its own class.

    Args:
        clusters: Integers or strings `[N]`, N at least 1.
        labels: Integers or strings `[N]`.

    Returns:
        The metrics: 0 to 1, `adjusted_rand` from -0.5.

    Raises:
        ValueError: The shapes or types do not fit.

    Example:
        >>> metrics = clustering_metrics([0, 0, 1, 1], ["a", "a", "a", "b"])
        >>> round(metrics["pairwise_f1"], 12), metrics["adjusted_rand"]
        (0.4, 0.0)

    Reference:
        Vinh, Epps and Bailey, Information Theoretic Measures for Clusterings
        Comparison, JMLR 2010. Hubert and Arabie, Comparing Partitions, Journal of
        Classification 1985. Hong, Choi and Han, Deep Metric Learning via Weighted
        Contrastive Loss. Song, Xiang, Jegelka and Savarese, Deep Metric Learning via
        Lifted Structured Feature Embedding, CVPR 2016.
    """
    group_of = class_codes("clusters", clusters)
    class_of = class_codes("labels", labels, len(group_of))
    if not len(group_of):
        raise ValueError("`clusters` must hold at least one item. Received: none.")
    groups, classes = np.bincount(group_of), np.bincount(class_of)
    cells, both = np.unique(group_of * len(classes) + class_of, return_counts=True)
    group, name = np.divmod(cells, len(classes))
    return _information(groups, classes, both, group, name) | _pair_counting(
        groups, classes, both
    )


def _information(
    groups: NDArray[np.int64],
    classes: NDArray[np.int64],
    both: NDArray[np.int64],
    group: NDArray[np.int64],
    name: NDArray[np.int64],
) -> dict[str, float]:
    total = both.sum()
    if len(groups) == len(classes) == 1:
        return {"nmi_geometric": 1.0, "nmi_arithmetic": 1.0}
    if len(groups) == 1 or len(classes) == 1:
        return {"nmi_geometric": 0.0, "nmi_arithmetic": 0.0}
    entropies = [
        float((sizes / total * -np.log(sizes / total)).sum())
        for sizes in (groups, classes)
    ]
    ratios = both / groups[group] * (total / classes[name])
    shared = max(0.0, float((both / total * np.log(ratios)).sum()))
    product, mean = np.sqrt(entropies[0] * entropies[1]), np.mean(entropies)
    # Rounding may pass 1 by a bit or two.
    return {
        "nmi_geometric": min(1.0, shared / float(product)),
        "nmi_arithmetic": min(1.0, shared / float(mean)),
    }


def _pair_counting(
    groups: NDArray[np.int64], classes: NDArray[np.int64], both: NDArray[np.int64]
) -> dict[str, float]:
    # Python's integers: products of pair counts pass 2**63 from 80,000 items on.
    together, alike, agreed = (
        int((sizes * (sizes - 1) // 2).sum()) for sizes in (groups, classes, both)
    )
    items = int(groups.sum())
    pairs = items * (items - 1) // 2
    # Hubert and Arabie's index times `pairs`, above and below the line.
    above = 2 * (agreed * pairs - together * alike)
    below = (together + alike) * pairs - 2 * together * alike
    return {
        "pairwise_f1": 2 * agreed / (together + alike) if agreed else 0.0,
        "adjusted_rand": above / below if below else 1.0,
    }
