"""Search an index twice: the second time with queries moved toward what was found."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import at_least_zero, whole
from tfdml._core.embeddings import as_embeddings, unit_or_zero
from tfdml._core.expansion import moved, weights_of
from tfdml.index._filters import Where
from tfdml.index._interface import IndexStats, Items, SearchResult
from tfdml.index.rows import Ids
from tfdml.messages import shown
from tfdml.neighbors import first_dimensions


class _Gallery(Protocol):
    """The methods needed of a `tfdml.index.Index`."""

    def get(self, ids: Ids) -> Items: ...

    def stats(self) -> IndexStats: ...

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        where: Where | None = None,
        exclude: Ids | Sequence[Ids] | None = None,
    ) -> SearchResult: ...


def expanded_search(
    index: _Gallery,
    queries: ArrayLike,
    k: int = 10,
    *,
    neighbors: int = 10,
    alpha: float = 3.0,
    where: Where | None = None,
    exclude: Ids | Sequence[Ids] | None = None,
) -> SearchResult:
    """Find the `k` nearest items of every query after query expansion (alpha-QE).

    Each query is moved toward its nearest items as by
    `tfdml.neighbors.expand_queries`, and the index is searched again.

    Args:
        index: Any `tfdml.index.Index` that compares by cosine.
        queries: As in `Index.search`.
        k: How many items to return, at least 1.
        neighbors: How many items a query is moved toward, at least 1; fewer if fewer
            may be returned.
        alpha: How fast their weight falls with the similarity, at least 0.
        where: As in `Index.search`, in both searches.
        exclude: As in `Index.search`, in both searches.

    Returns:
        As `Index.search`. Scores are those of the moved queries: a threshold that was
        calibrated for plain ones does not apply to them.

    Raises:
        KeyError: An item was removed between the searches.
        ValueError: As `Index.search`, or the index compares otherwise.

    Reference:
        Radenović et al., Fine-tuning CNN Image Retrieval with No Human Annotation,
        TPAMI 2019.

    Example:
        >>> from tfdml.index import ExactIndex
        >>> index = ExactIndex.build([[1.0, 0.2], [0.6, 0.8], [0.8, -0.6]])
        >>> expanded_search(index, [[1.0, 0.0]], k=3, neighbors=1).ids.tolist()
        [[0, 2, 1]]
    """
    neighbors, alpha = whole("neighbors", neighbors), at_least_zero("alpha", alpha)
    stats = index.stats()
    if stats.metric != "cosine":
        raise ValueError(
            "`index` must compare by cosine for query expansion. Received: metric="
            f"{shown(stats.metric)}."
        )
    rows = as_embeddings("queries", queries, unit=True)
    options = {"where": where, "exclude": exclude}
    found = index.search(rows, neighbors, **options)  # type: ignore[arg-type]
    if found.ids.shape[1]:
        rows = _moved(index, rows, found, stats.dimension, alpha)
    return index.search(rows, k, **options)  # type: ignore[arg-type]


def _moved(
    index: _Gallery,
    rows: NDArray[np.float32],
    found: SearchResult,
    dimension: int,
    alpha: float,
) -> NDArray[np.float32]:
    if rows.shape[1] > dimension:  # of embeddings that the index has cut
        rows = first_dimensions(rows, dimension)
    distinct, places = np.unique(found.ids.ravel(), return_inverse=True)
    near = index.get(distinct.tolist()).embeddings
    weights = weights_of(found.scores, alpha)
    return unit_or_zero(moved(rows, near, places.reshape(found.ids.shape), weights))
