"""Move embeddings toward their neighbors: query expansion, gallery augmentation."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import at_least_zero
from tfdml._core.embeddings import as_embeddings, unit_or_zero
from tfdml._core.expansion import moved, weights_of
from tfdml.neighbors._checks import checked_queries
from tfdml.neighbors._exact import ExactSearcher


def expand_queries(
    queries: ArrayLike,
    gallery: ArrayLike,
    *,
    k: int = 10,
    alpha: float = 3.0,
    exclude: ArrayLike | None = None,
) -> NDArray[np.float32]:
    """Move each query toward its nearest gallery rows, for a second search (alpha-QE).

    With rows at length 1, a query `q`, its `k` nearest gallery rows `g_i` and their
    cosines `s_i`:

        q' = q + sum_i w_i g_i, scaled to length 1; w_i = s_i^alpha if s_i > 0, else 0

    `alpha=0` is average query expansion. The gallery stays as it is, so that any index
    of it can be searched again with the result.

    Args:
        queries: Embeddings `[Q, D]`, real and finite, none of zeros.
        gallery: Embeddings `[N, D]`, real and finite, none of zeros.
        k: How many neighbors count, from 1 to the number of rows allowed.
        alpha: How fast the weight falls with the similarity, at least 0.
        exclude: As in `nearest_neighbors`: the rows that each query must not see.

    Returns:
        float32 `[Q, D]`, rows of length 1.

    Raises:
        ValueError: As `nearest_neighbors`, or `alpha` is below 0.
        TypeError: `k` is not an integer.

    Reference:
        Radenović et al., Fine-tuning CNN Image Retrieval with No Human Annotation,
        TPAMI 2019.

    Example:
        >>> from tfdml.neighbors import expand_queries
        >>> gallery = [[0.6, 0.8], [-1.0, 0.0]]
        >>> expand_queries([[1.0, 0.0]], gallery, k=2, alpha=1).round(3).tolist()
        [[0.9430000185966492, 0.3330000042915344]]
    """
    alpha = at_least_zero("alpha", alpha)
    searcher = ExactSearcher(gallery, "cosine")
    rows = checked_queries(queries, searcher.gallery.shape[1], unit=True)
    found, scores = searcher.nearest(rows, k, exclude)
    weights = weights_of(scores, alpha)
    return unit_or_zero(moved(rows, searcher.gallery, found, weights))


def augment_gallery(
    gallery: ArrayLike, *, k: int = 10, alpha: float = 3.0
) -> NDArray[np.float32]:
    """Move each gallery row toward its nearest others (database augmentation).

    It is `expand_queries` with the gallery's own rows, each without itself. It is done
    once, before the index is built; queries stay as they are.

    Args:
        gallery: Embeddings `[N, D]`, real and finite, none of zeros.
        k: How many neighbors count, from 1 to `N - 1`.
        alpha: As in `expand_queries`.

    Returns:
        float32 `[N, D]`, rows of length 1.

    Raises:
        ValueError: As `expand_queries`.
        TypeError: `k` is not an integer.

    Reference:
        Arandjelović and Zisserman, Three things everyone should know to improve object
        retrieval, CVPR 2012, for the augmentation; the weights are those of
        `expand_queries`.

    Example:
        >>> from tfdml.neighbors import augment_gallery
        >>> gallery = [[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]]
        >>> augment_gallery(gallery, k=1, alpha=1)[0].round(3).tolist()
        [0.9430000185966492, 0.3330000042915344]
    """
    alpha = at_least_zero("alpha", alpha)
    rows = as_embeddings("gallery", gallery, unit=True)
    searcher = ExactSearcher(rows, "cosine")
    found, scores = searcher.nearest(rows, k, np.arange(len(rows)))
    weights = weights_of(scores, alpha)
    return unit_or_zero(moved(rows, rows, found, weights))
