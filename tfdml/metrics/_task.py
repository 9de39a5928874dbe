"""Check embeddings with their classes, roles and groups once for all metrics."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.embeddings import DIVERGED, as_embeddings
from tfdml._core.exact_search import USUAL_LIMITS as USUAL_SEARCH_LIMITS
from tfdml._core.exact_search import Metric, PreparedGallery, SearchLimits, nearest_in
from tfdml.messages import shown
from tfdml.metrics._comparisons import Comparisons


@dataclass(frozen=True)
class MetricLimits:
    """How much a metric computes at once; the results do not depend on it.

    Args:
        excluded: Gallery rows that a block of queries leaves out.
        ranks: Ranks of a block of queries: a class of thousands has as many for each.
        pairs: Pairs of items: by default 64 MiB of scores and 64 MiB of bins.
        label_distances: Label distances: by default 32 MiB.
        first: Neighbors in which the nearest of another class is looked for first.
        search: What a search computes at once, and when it uses a GPU.
    """

    excluded: int = 2**20
    ranks: int = 2**18
    pairs: int = 2**23
    label_distances: int = 2**22
    first: int = 32
    search: SearchLimits = USUAL_SEARCH_LIMITS


USUAL_LIMITS = MetricLimits()


class RetrievalTask(Comparisons):
    """Embeddings with their classes, roles and groups, checked once for many metrics.

    Metrics take it in the place of these five arguments.

    Args:
        embeddings: Real finite numbers `[N, dimension]`; or another task, whose
            embeddings are taken as they are.
        labels: As in `Comparisons`, and so are the others.
        is_query: Which items are queries.
        is_gallery: Which items are searched.
        groups: Which items are not compared with each other.
        limits: How much metrics compute at once.

    Attributes:
        embeddings: float32 `[N, dimension]`.
        gallery: Those of the gallery, `[G, dimension]`.

    Raises:
        ValueError: A shape or type does not fit, or a number is not finite.

    Example:
        >>> task = RetrievalTask([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], [7, 7, 8])
        >>> task.nearest(task.queries, 1)[0].tolist()
        [[1], [0], [1]]
    """

    def __init__(
        self,
        embeddings: "ArrayLike | RetrievalTask",
        labels: ArrayLike | None = None,
        *,
        is_query: ArrayLike | None = None,
        is_gallery: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        limits: MetricLimits = USUAL_LIMITS,
    ) -> None:
        self.embeddings = embedded_rows(embeddings)
        self.limits = limits
        super().__init__(
            len(self.embeddings),
            labels,
            is_query=is_query,
            is_gallery=is_gallery,
            groups=groups,
        )

    @classmethod
    def of(
        cls,
        embeddings: "ArrayLike | RetrievalTask",
        labels: ArrayLike | None,
        *,
        is_query: ArrayLike | None,
        is_gallery: ArrayLike | None,
        groups: ArrayLike | None,
    ) -> "RetrievalTask":
        """Return the task that a metric was given, or make one of its arguments.

        Raises:
            ValueError: As the constructor; or something is given beside a task.
        """
        if not isinstance(embeddings, RetrievalTask):
            if labels is None:
                raise ValueError("`labels` must be given. Received: None.")
            return cls(
                embeddings,
                labels,
                is_query=is_query,
                is_gallery=is_gallery,
                groups=groups,
            )
        for name, value in {
            "labels": labels,
            "is_query": is_query,
            "is_gallery": is_gallery,
            "groups": groups,
        }.items():
            if value is not None:
                raise ValueError(
                    f"`{name}` must not be given beside a `RetrievalTask`, which holds "
                    f"it. Received: {name}={shown(value)}."
                )
        return embeddings

    @property
    def gallery(self) -> NDArray[np.float32]:
        """The embeddings of the gallery, `[G, dimension]`."""
        if len(self.searched) == len(self):
            return self.embeddings
        return self.embeddings[self.searched]

    def nearest(
        self, items: NDArray[np.int64], k: int, metric: Metric = "cosine"
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find the nearest items that each query is compared with, by exact search.

        Args:
            items: Which items search, int64 `[Q]`.
            k: How many items to find, at least 1.
            metric: As in `tfdml.neighbors.nearest_neighbors`.

        Returns:
            Items, int64 `[Q, k]`, the nearest first, and their scores, float32
            `[Q, k]`; -1 and -inf after the last one.
        """
        found = np.full((len(items), k), -1, np.int64)
        scores = np.full((len(items), k), -np.inf, np.float32)
        if not len(self.searched):
            return found, scores
        gallery = PreparedGallery(self.gallery, metric, self.limits.search)
        for block, exclude in self.blocks(items, self.limits.excluded):
            allowed = len(self.searched) - (exclude >= 0).sum(axis=1)
            depths = np.minimum(allowed, k)
            for depth in np.unique(depths):  # one, but in a very small gallery
                some = depths == depth
                queries = self.embeddings[items[block[some]]]
                rows, values = nearest_in(gallery, queries, depth, exclude[some])
                found[block[some], :depth] = self.searched[rows]
                scores[block[some], :depth] = values
        return found, scores


def embedded_rows(embeddings: ArrayLike | RetrievalTask) -> NDArray[np.float32]:
    """Return the embeddings of a task, or check them, float32 `[N, dimension]`."""
    if isinstance(embeddings, RetrievalTask):
        return embeddings.embeddings
    return as_embeddings("embeddings", embeddings, unit=False, remedy=DIVERGED)
