"""Cluster embeddings by k-means, and compare clusters with classes."""

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import one_of, whole
from tfdml._core.embeddings import row_norms, unit_or_zero
from tfdml._core.labels import class_codes
from tfdml.metrics._task import RetrievalTask, embedded_rows

_SPREAD_START = 256  # clusters: above, k-means++ would take as long as the rest
_REMEDY = 'Clustering needs scikit-learn: pip install "tfdml[evaluation]".'


def cluster(
    embeddings: ArrayLike | RetrievalTask,
    count: int,
    *,
    metric: Literal["cosine", "squared_euclidean"] = "cosine",
    iterations: int = 20,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Group items by k-means with scikit-learn, Lloyd's algorithm in float32.

    Every item joins the center c of the least |x - c|^2, every center moves to the mean
    of its items, and again. `"cosine"` does this with the embeddings scaled to unit
    length, as they are compared elsewhere; the centers are plain means.

    Up to 256 clusters start from k-means++ (each next center is an item drawn in
    proportion to its squared distance from the centers so far), more of them from
    different items drawn at random, as in FAISS. A center that loses all its items
    moves to the item that is farthest from its own center. With fewer distinct items
    than clusters some numbers are left without an item.

    Args:
        embeddings: Float array `[N, dimension]`, finite, or a `RetrievalTask`. With
            `"cosine"` a row of zeros stays where it is.
        count: Clusters, from 1 to N.
        metric: `"cosine"` (default) or `"squared_euclidean"`.
        iterations: How often the centers move, at least 1. It ends before if no item
            changes its cluster.
        seed: Of the first centers. The same seed gives the same clusters on the same
            machine, as far as the rounding of its threads does not matter.

    Returns:
        The cluster of each item, int64 `[N]`, from 0 to `count - 1`.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: An argument is out of range, or an embedding is not finite.

    Example:
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [2.0, 0.1], [0.1, 3.0]]
        >>> clusters = cluster(embeddings, 2)
        >>> bool(clusters[0] == clusters[2]), bool(clusters[0] == clusters[1])
        (True, False)

    Reference:
        Lloyd, Least Squares Quantization in PCM, IEEE Transactions on Information
        Theory 1982. Arthur and Vassilvitskii, k-means++: The Advantages of Careful
        Seeding, SODA 2007.
    """
    rows = embedded_rows(embeddings)
    one_of("metric", metric, ("cosine", "squared_euclidean"))
    if whole("count", count) > len(rows):
        raise ValueError(
            f"`count` must be at most the number of items, {len(rows)}. "
            f"Received: count={count}."
        )
    count, iterations = int(count), whole("iterations", iterations)
    seed = whole("seed", seed, least=0)
    try:
        from sklearn import config_context
        from sklearn.cluster import KMeans, kmeans_plusplus
        from sklearn.exceptions import ConvergenceWarning
    except ImportError as error:
        raise ImportError(_REMEDY) from error
    rows = _centered(unit_or_zero(rows) if metric == "cosine" else rows)
    random = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed)))
    with config_context(assume_finite=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # documented above
        start: Any = "random"
        if count <= _SPREAD_START:
            # One trial per center, as published: scikit-learn's several took 30 times
            # as long for 256 centers of 20,000 x 128 (20 s of CPU, 0.7 s with one).
            start, _ = kmeans_plusplus(
                rows, count, random_state=random, n_local_trials=1
            )
        found = KMeans(
            count,
            init=start,
            n_init=1,
            max_iter=iterations,
            tol=0,
            random_state=random,
            copy_x=False,
        ).fit(rows)
    clusters: NDArray[np.int64] = found.labels_.astype(np.int64)
    return clusters


def _centered(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Move and scale all alike, which changes no cluster, to where float32 is sharp."""
    moved = np.empty_like(rows)
    with np.errstate(over="ignore"):  # reported below
        np.subtract(
            rows, rows.mean(axis=0, dtype=np.float64), out=moved, casting="same_kind"
        )
    farthest = row_norms(moved).max()
    if not np.isfinite(farthest):
        raise ValueError(
            "`embeddings` are too large for float32: scale them down. "
            f"Received: numbers up to {np.abs(rows).max()}."
        )
    if farthest > 0:
        np.divide(moved, farthest, out=moved, casting="same_kind")
    return moved


def clustering_metrics(clusters: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compare clusters with classes, whatever their names are.

    With H the entropy, I the mutual information, and over all pairs of different items
    "together" if both have the same cluster, "alike" if both have the same label:

    - `nmi_geometric`: I / sqrt(H(clusters) H(labels)), as scikit-learn had it until
      0.21, and Hong et al.
    - `nmi_arithmetic`: 2 I / (H(clusters) + H(labels)), as scikit-learn has it since
      0.22, and Song et al. and SoftTriple. It is never above the other.
    - `pairwise_f1`: the harmonic mean of the share of pairs together that are alike and
      of the share of pairs alike that are together.
    - `adjusted_rand`: the share of pairs on which both agree, moved and scaled so that
      random clusters of the same sizes get 0 in expectation and equal ones 1.

    If all items have one cluster and one label, the normalized informations are 1; if
    only the clusters or only the labels are all one, they are 0. With no pair both
    together and alike `pairwise_f1` is 0, also if every item is its own cluster and its
    own class.

    Args:
        clusters: Integers or strings `[N]`, N at least 1.
        labels: Integers or strings `[N]`.

    Returns:
        The metrics: 0 to 1, `adjusted_rand` from -0.5.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: The shapes or types do not fit.

    Example:
        >>> metrics = clustering_metrics([0, 0, 1, 1], ["a", "a", "a", "b"])
        >>> round(metrics["pairwise_f1"], 12), metrics["adjusted_rand"]
        (0.4, 0.0)

    Reference:
        Vinh, Epps and Bailey, Information Theoretic Measures for Clusterings
        Comparison, JMLR 2010. Hubert and Arabie, Comparing Partitions, Journal of
        Classification 1985. Hong, Park and Kim, Deep Metric Learning via Weighted
        Contrastive Loss. Song, Xiang, Jegelka and Savarese, Deep Metric Learning via
        Lifted Structured Feature Embedding, CVPR 2016.
    """
    group_of = class_codes("clusters", clusters)
    class_of = class_codes("labels", labels, len(group_of))
    if not len(group_of):
        raise ValueError("`clusters` must hold at least one item. Received: none.")
    try:
        from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
        from sklearn.metrics.cluster import pair_confusion_matrix
    except ImportError as error:
        raise ImportError(_REMEDY) from error
    results = {
        f"nmi_{mean}": normalized_mutual_info_score(
            class_of, group_of, average_method=mean
        )
        for mean in ("geometric", "arithmetic")
    }
    # Ordered pairs: alike and apart, together and not alike, both.
    (_, mixed), (apart, both) = pair_confusion_matrix(class_of, group_of).tolist()
    return {
        # Rounding may pass 1 by a bit or two.
        **{name: min(1.0, float(value)) for name, value in results.items()},
        "pairwise_f1": 2 * both / (2 * both + mixed + apart) if both else 0.0,
        "adjusted_rand": float(adjusted_rand_score(class_of, group_of)),
    }
