"""Find exact nearest neighbors by comparing every query with every gallery row."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.embeddings import as_embeddings
from tfdml._core.exact_search import (
    USUAL_LIMITS,
    Metric,
    PreparedGallery,
    SearchLimits,
    nearest_in,
)
from tfdml.neighbors._checks import check_exclude, check_k, checked_queries


def nearest_neighbors(
    queries: ArrayLike,
    gallery: ArrayLike,
    k: int,
    *,
    metric: Metric = "cosine",
    exclude: ArrayLike | None = None,
    zero_rows: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the `k` nearest gallery rows of every query, by comparing with all.

    With a query `q` and a gallery row `g`:

    - `"cosine"`: `sum(q * g) / (|q| |g|)`, the highest first
    - `"dot_product"`: `sum(q * g)`, the highest first
    - `"squared_euclidean"`: `sum((q - g)^2)`, the lowest first

    Inputs are read as float32. Each score is computed in float64 and rounded to
    float32; rows whose rounded scores are equal come in the order of their index.
    The answer to a query depends neither on the other queries nor on the position of
    a row in the gallery.

    Memory, beside the inputs: a copy of the gallery in float32, one in float64 once
    many scores nearly tie, and a few blocks of about 64 MiB, or of 64 rows of scores
    if that is more. All cores work.

    Large searches run on the GPU of the Keras backend where Keras has been imported and
    its backend has one (TensorFlow, JAX or PyTorch). The GPU compares in float32, TF32
    switched off, and finds the rows that may be among the nearest, whatever the
    rounding; these are scored in float64 there, too, or on the CPU where the order of
    the additions could change the score. So the answers are the same with and without
    it. Its memory holds two copies of the gallery and at most 4 GiB of scores and what
    follows from them. With room for one copy, the CPU scores; with less, it searches,
    with a warning.

    Args:
        queries: Embeddings `[Q, D]`, real and finite. `Q` may be 0.
        gallery: Embeddings `[N, D]`, real and finite.
        k: How many rows to return, from 1 to the number of rows allowed.
        metric: `"cosine"` (default), `"dot_product"` or `"squared_euclidean"`.
        exclude: Integers `[Q]` or `[Q, m]`: the gallery rows that each query must never
            return, such as the query itself; -1 for none. Default: none at all.
        zero_rows: Whether rows of zeros are allowed with `"cosine"`: their similarity
            with all others is then 0. Default: they are refused.

    Returns:
        Indices into the gallery, int64 `[Q, k]`, and their scores (distances for
        `"squared_euclidean"`), float32 `[Q, k]`.

    Raises:
        ValueError: A shape, value or dtype is wrong; `k` is below 1 or above the
            number of gallery rows allowed; a zero vector with `"cosine"`; a score
            that float32 cannot hold.
        TypeError: `k` is not an integer.

    Example:
        >>> import numpy as np
        >>> from tfdml.neighbors import nearest_neighbors
        >>> gallery = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
        >>> indices, scores = nearest_neighbors([[3.0, 0.0]], gallery, k=2)
        >>> indices.tolist(), scores.tolist()
        ([[0, 2]], [[1.0, 1.0]])
    """
    searcher = ExactSearcher(gallery, metric, zero_rows=zero_rows)
    return searcher.nearest(queries, k, exclude)


class ExactSearcher:
    """Find nearest neighbors in a gallery made ready once for many calls.

    Args:
        gallery: As in `nearest_neighbors`. A float32 array is not copied, and must not
            be changed afterwards.
        metric: As in `nearest_neighbors`.
        zero_rows: As in `nearest_neighbors`.
        limits: How much is computed at once; the answers do not depend on it.

    Raises:
        ValueError: As `nearest_neighbors`.

    Example:
        >>> searcher = ExactSearcher([[1.0, 0.0], [0.0, 1.0]], "cosine")
        >>> searcher.nearest([[3.0, 1.0]], 1)[0].tolist()
        [[0]]
    """

    def __init__(
        self,
        gallery: ArrayLike,
        metric: Metric,
        *,
        zero_rows: bool = False,
        limits: SearchLimits = USUAL_LIMITS,
    ) -> None:
        is_cosine = isinstance(metric, str) and metric == "cosine"
        self._unit = is_cosine and not zero_rows
        rows = as_embeddings("gallery", gallery, unit=self._unit)
        self._prepared = PreparedGallery(rows, metric, limits)

    @property
    def gallery(self) -> NDArray[np.float32]:
        """The gallery, `[N, D]`."""
        return self._prepared.gallery

    def nearest(
        self, queries: ArrayLike, k: int, exclude: ArrayLike | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Answer like `nearest_neighbors`, whose arguments these are."""
        gallery = self._prepared
        rows = checked_queries(queries, self.gallery.shape[1], unit=self._unit)
        left_out = check_exclude(exclude, len(rows), len(gallery))
        # A row that is named twice is left out once.
        ordered = np.sort(left_out, axis=1)
        is_new = np.diff(ordered, axis=1, prepend=-2) > 0
        most = int((is_new & (ordered >= 0)).sum(axis=1).max(initial=0))
        check_k(k, len(gallery) - most)
        return nearest_in(gallery, rows, k, left_out)
