"""Compare every query with every item."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml.index._interface import Embed, Metric
from tfdml.index.local._index import MemoryIndex
from tfdml.index.rows import Ids, RowSearcher


class ExactIndex(MemoryIndex):
    """An index that compares every query with every item.

    Its answers equal those of `tfdml.neighbors.nearest_neighbors` to the last bit:
    items of equal score come in the order of the gallery. It needs NumPy alone.

    Example:
        >>> import numpy as np
        >>> from tfdml.index import ExactIndex
        >>> gallery = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
        >>> index = ExactIndex.build(gallery, ids=["right", "up", "between"])
        >>> ids, scores = index.search(np.array([[2.0, 0.0]]), k=2)
        >>> ids.tolist(), scores.round(3).tolist()
        ([['right', 'between']], [[1.0, 0.6000000238418579]])
        >>> index.remove(["right"])
        >>> index.search(np.array([[2.0, 0.0]]), k=1).ids.tolist()
        [['between']]
    """

    @classmethod
    def build(
        cls,
        embeddings: ArrayLike,
        ids: Ids | None = None,
        attributes: Mapping[str, Sequence[Any]] | None = None,
        *,
        metric: Metric = "cosine",
        model_fingerprint: str = "",
        embed: Embed | None = None,
        dimensions: int | None = None,
    ) -> Self:
        """Build an index of a gallery.

        Args:
            embeddings: The gallery, `[N, D]` with `D` at least 1, real and finite, of
                any float or integer dtype; read as float32 and copied. `N` may be 0.
            ids: One per row, all strings or all integers, without repetition. Default:
                0 to N - 1.
            attributes: See `Index.add`. Default: none.
            metric: `"cosine"` (default; lengths do not matter, rows of zeros raise),
                `"dot_product"`, or `"squared_euclidean"`, for embeddings of any length:
                its scores are minus the squared distances.
            model_fingerprint: Identifies the model that made the embeddings. It is
                saved with the index, so that `load` can reject another model's.
            embed: See `Index`.
            dimensions: Keep only the first numbers of each embedding, so many, scaled
                to length 1 again with `"cosine"`: see
                `tfdml.neighbors.first_dimensions`. Rows that are added and queries may
                have all numbers, and are cut in the same way. Default: all.

        Returns:
            The index.

        Raises:
            ValueError: A shape, dtype, value, id or attribute is not as stated above.
        """
        return cls._from_rows(
            embeddings, ids, attributes, metric, model_fingerprint, embed, dimensions
        )

    @classmethod
    def _build(
        cls, gallery: NDArray[np.float32], metric: Metric, **options: Any
    ) -> RowSearcher:
        return RowSearcher(gallery, metric)

    def _build_again(self, gallery: NDArray[np.float32], searcher: Any) -> RowSearcher:
        return self._build(gallery, self._metric)

    def _write(self, searcher: Any, data: Path) -> None:
        """Write nothing: the embeddings are all it has."""

    @classmethod
    def _read(
        cls, manifest: dict[str, Any], data: Path, embeddings: NDArray[np.float32]
    ) -> RowSearcher:
        return RowSearcher(embeddings, manifest["metric"])
