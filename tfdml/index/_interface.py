"""Define the one interface of all indexes, and what its methods return."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml.index._filters import Where
from tfdml.index.rows import Ids

Metric = Literal["cosine", "dot_product", "squared_euclidean"]

Embed = Callable[[Sequence[Any]], ArrayLike]
"""Makes embeddings `[Q, D]` of Q images, such as `EndpointClient.embed`."""


class SearchResult(NamedTuple):
    """What `search` returns: the nearest items of each query, best first.

    Attributes:
        ids: Their ids, `[Q, k]`, strings or int64, as in `Index.ids`.
        scores: Cosines, dot products or minus squared Euclidean distances, float32
            `[Q, k]`; higher is nearer.
    """

    ids: NDArray[Any]
    scores: NDArray[np.float32]


class Items(NamedTuple):
    """What `get` returns: items of the gallery, in the order asked for.

    Attributes:
        ids: Their ids, `[N]`, strings or int64, as in `Index.ids`.
        embeddings: float32 `[N, D]`, as they were given.
        attributes: The attributes of each, without those that have no value.
    """

    ids: NDArray[Any]
    embeddings: NDArray[np.float32]
    attributes: list[dict[str, str | int | float | bool]]


@dataclass(frozen=True)
class IndexStats:
    """The properties of an index.

    Attributes:
        kind: The class, such as `"LocalIndex"`.
        count: Items that can be found.
        dimension: Numbers in an embedding.
        metric: `"cosine"`, `"dot_product"` or `"squared_euclidean"`.
        model_fingerprint: Of the model that made the embeddings, or "".
        attributes: The kind of each attribute: string, integer, number or boolean.
        details: More about this kind of index, in JSON types.
    """

    kind: str
    count: int
    dimension: int
    metric: Metric
    model_fingerprint: str
    attributes: Mapping[str, str]
    details: Mapping[str, Any] = field(default_factory=dict)


class Index(ABC):
    """A gallery of embeddings with ids and attributes that can be searched and changed.

    Any number of threads may call any method at once; a search sees the gallery as it
    was at one moment. An index is a context manager: at the end, `close` is called.

    Attributes:
        embed: The function that `search_images` embeds with; None until it is set.
        notes: Values of the caller in JSON types, which `save` writes and `load`
            restores.
    """

    embed: Embed | None = None
    notes: dict[str, Any]
    _dimension: int
    _embedding_dimension: int | None = None  # if it is another one
    _metric: Metric
    _model_fingerprint: str

    @property
    def dimension(self) -> int:
        """The number of columns of the gallery and of queries."""
        return self._dimension

    @property
    def embedding_dimension(self) -> int:
        """The number of columns of the embeddings that the index was built of.

        It is above `dimension` where the index keeps only the first numbers of each
        (`dimensions` of `build`). Rows and queries of either number of columns are
        taken; the longer ones are cut.
        """
        return self._embedding_dimension or self._dimension

    @property
    def metric(self) -> Metric:
        """`"cosine"`, `"dot_product"` or `"squared_euclidean"`."""
        return self._metric

    @property
    def model_fingerprint(self) -> str:
        """The fingerprint given to `build`, or an empty string."""
        return self._model_fingerprint

    @abstractmethod
    def add(
        self,
        embeddings: ArrayLike,
        ids: Ids,
        attributes: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Add items, all of them or, on an error, none.

        Args:
            embeddings: `[N, D]`, real and finite, of the dimension of the index; read
                as float32 and copied. `N` may be 0.
            ids: One per row, of the same kind as those in the index, none of which may
                be in the index already. Strings have at most 1,024 characters; in
                memory and on disk, each takes as much space as it is long.
            attributes: The values of all rows by the name of the attribute, each a
                string, integer, float or boolean, or None for no value. All values of
                an attribute are of one kind; if no item has a value any more, the next
                value may be of another kind. Integers become floats with the first
                float, if all are below 2**53 and the index is in memory. Strings,
                including ids and names, are valid Unicode without NUL; integers fit
                into int64, and floats are finite.

        Raises:
            ValueError: A shape, dtype, value or id is not as stated above.
        """

    @abstractmethod
    def update(
        self,
        ids: Ids,
        embeddings: ArrayLike | None = None,
        attributes: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Replace embeddings, attributes, or both, of existing items.

        Attributes that are not named stay; None as a value removes one.

        Args:
            ids: Those of the items, without repetition.
            embeddings: `[N, D]`, as in `add`. Default: they stay.
            attributes: As in `add`. Default: they stay.

        Raises:
            KeyError: An id is not in the index; nothing was changed.
            ValueError: As `add`, or there is nothing to replace.
        """

    @abstractmethod
    def remove(self, ids: Ids) -> None:
        """Remove items, all of them or, on an error, none.

        Args:
            ids: Those of the items, without repetition.

        Raises:
            KeyError: An id is not in the index; nothing was removed.
            ValueError: An id is repeated or of another kind.
        """

    @abstractmethod
    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        where: Where | None = None,
        exclude: Ids | Sequence[Ids] | None = None,
    ) -> SearchResult:
        """Find the `k` nearest items of every query.

        Args:
            queries: Embeddings `[Q, D]`, real and finite; `Q` may be 0. Pass a single
                one as `embedding[None, :]`. They are cut as the gallery was.
            k: How many items to return, at least 1.
            where: Return only items whose attributes are as stated, see
                `tfdml.index`. Default: all.
            exclude: Ids that must not be returned, either for all queries or as one
                sequence of ids per query. They may repeat; those not in the index are
                ignored.

        Returns:
            A `SearchResult` with `k` different items per query; fewer columns if the
            index holds fewer, or `where` and `exclude` leave fewer for any query.

        Raises:
            ValueError: A shape, dtype, value or attribute is not as stated above, or a
                score is too large for float32.
        """

    def search_images(
        self,
        images: Sequence[Any],
        k: int = 10,
        *,
        where: Where | None = None,
        exclude: Ids | Sequence[Ids] | None = None,
    ) -> SearchResult:
        """Embed images with `embed` and find the `k` nearest items of each.

        Args:
            images: What `embed` takes, such as paths and encoded images.
            k: As in `search`.
            where: As in `search`.
            exclude: As in `search`.

        Returns:
            As `search`.

        Raises:
            ValueError: `embed` is not set, or as `search`.
        """
        if self.embed is None:
            raise ValueError(
                "`embed` must be set before images can be searched for, for example: "
                "index.embed = EndpointClient(...).embed."
            )
        queries = self.embed(images)
        return self.search(queries, k, where=where, exclude=exclude)

    @property
    @abstractmethod
    def ids(self) -> NDArray[Any]:
        """The ids of all items, `[N]`, a copy: int64, or strings of fixed width.

        If a few long strings would make the array take 1 GiB more than all of them
        need, they are Python strings in an array of objects. The order is that of the
        index. It changes only with the items.
        """

    @abstractmethod
    def ids_where(self, where: Where) -> NDArray[Any]:
        """Return the ids of the items that pass a filter.

        Args:
            where: As in `search`.

        Returns:
            Ids in the order of `ids`, `[N]`.

        Raises:
            ValueError: As `count`.
        """

    @abstractmethod
    def get(self, ids: Ids) -> Items:
        """Return items by their ids, which may repeat.

        Raises:
            KeyError: An id is not in the index.
            ValueError: An id is of another kind than the index has.
        """

    @abstractmethod
    def count(self, where: Where | None = None) -> int:
        """Return the number of items, or of those that pass a filter."""

    @abstractmethod
    def stats(self) -> IndexStats:
        """Return the properties of the index."""

    @abstractmethod
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the index to a folder, from which `load` restores it.

        Args:
            folder: Created if missing. Otherwise it must be empty or hold an index,
                which is replaced as a whole.

        Raises:
            IndexFileError: The folder holds something else.
            OSError: The files cannot be written.
        """

    @abstractmethod
    def close(self) -> None:
        """Release files, locks and connections; do not use the index afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self.count()

    @abstractmethod
    def __contains__(self, item: object) -> bool:
        """Return whether an id is in the index."""
