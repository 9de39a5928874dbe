"""Who is searched with, in what, and what counts as found."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfdml._arguments import whole

_RANKS_AT_ONCE = 2**18  # a class of thousands has as many ranks for each query


class RetrievalTask(NamedTuple):
    """Who is compared with whom."""

    queries: NDArray[np.int64]
    """Which items are queries with a positive."""
    without_positive: NDArray[np.int64]
    searched: NDArray[np.int64]
    """Which items are the gallery."""
    members: list[NDArray[np.int64]]
    """By class: which gallery rows it has."""
    class_of: NDArray[np.int64]
    """Of each item."""
    banned: list[NDArray[np.int64]]
    """By group: which gallery rows its queries must not be compared with."""
    group_of: NDArray[np.int64]
    sizes: NDArray[np.int64]
    """How many positives each query has."""
    allowed: NDArray[np.int64]
    """How many items each query is compared with."""
    has_groups: bool

    @classmethod
    def of(
        cls,
        labels: NDArray[Any],
        is_query: NDArray[np.bool_],
        is_gallery: NDArray[np.bool_],
        groups: NDArray[Any] | None,
    ) -> "RetrievalTask":
        """Work out who is compared; the arguments are those of `query_metrics`."""
        count = len(labels)
        searched = np.flatnonzero(is_gallery)
        names, class_of = np.unique(labels, return_inverse=True)
        group_of = np.arange(count)
        if groups is not None:
            group_of = np.unique(groups, return_inverse=True)[1]
        # The positives are the gallery's items of the class less those of the group.
        pairs = class_of * count + group_of
        kinds, kind_of = np.unique(pairs, return_inverse=True)
        both = np.bincount(kind_of[searched], minlength=len(kinds))[kind_of]
        members = _rows_by(class_of[searched], len(names))
        banned = _rows_by(group_of[searched], count)
        sizes = np.array([len(rows) for rows in members])[class_of] - both
        queries = np.flatnonzero(is_query & (sizes > 0))
        left_out = np.array([len(rows) for rows in banned])[group_of]
        return cls(
            queries=queries,
            without_positive=np.flatnonzero(is_query & (sizes <= 0)),
            searched=searched,
            members=members,
            class_of=class_of,
            banned=banned,
            group_of=group_of,
            sizes=sizes[queries],
            allowed=len(searched) - left_out[queries],
            has_groups=groups is not None,
        )

    def checked_ks(self, ks: Sequence[int]) -> list[int]:
        """Return the k of the metrics.

        Raises:
            ValueError: No query has a positive, or a k is no whole number from 1 to the
                number of items that every query is compared with.
        """
        if not len(self.queries):
            raise ValueError(self._why_nothing())
        allowed = int(self.allowed.min())
        numbers = checked_ks(ks)
        if max(numbers) > allowed:
            raise ValueError(
                f"`ks` must be from 1 to {allowed}, the number of items in the gallery "
                f"less the query. Received: {numbers}."
            )
        return numbers

    def _why_nothing(self) -> str:
        """Say why no query has a positive."""
        queries, searched = len(self.without_positive), len(self.searched)
        if not queries:
            return "`is_query` must name a query. Received: none."
        if not searched:
            return "`is_gallery` must name an item to search. Received: none."
        if self.has_groups:
            return (
                "No query has a positive outside of its own group: `labels` and "
                f"`groups` must let some. Received: {queries} queries, {searched} "
                "items in the gallery."
            )
        return (
            "`labels` must hold some label twice: no query has a positive. Received: "
            f"{queries} queries, {searched} items in the gallery."
        )

    def blocks(self, most: int) -> Iterator[slice]:
        """Yield slices of the queries with a bounded number of positives each."""
        start = 0
        until = np.cumsum(self.sizes)
        while start < len(self.queries):
            before = until[start - 1] if start else 0
            stop = int(np.searchsorted(until, before + _RANKS_AT_ONCE, "right"))
            stop = min(max(stop, start + 1), start + most)
            yield slice(start, stop)
            start = stop

    def compared(
        self, block: slice
    ) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        """Return the gallery rows that each query leaves out, and its positives."""
        queries = self.queries[block]
        lists = [self.banned[group] for group in self.group_of[queries]]
        exclude = np.full((len(queries), max(map(len, lists))), -1, np.int64)
        positives = []
        for row, (query, banned) in enumerate(zip(queries, lists, strict=True)):
            exclude[row, : len(banned)] = banned
            members = self.members[self.class_of[query]]
            groups = self.group_of[self.searched[members]]
            positives.append(members[groups != self.group_of[query]])
        return exclude, positives


def checked_ks(ks: Sequence[int]) -> list[int]:
    """Return the k of metrics as whole numbers.

    Raises:
        ValueError: There is none, or one is no whole number of at least 1.
    """
    if isinstance(ks, str) or not np.iterable(ks):
        raise ValueError(f"`ks` must be a sequence of whole numbers. Received: {ks!r}.")
    numbers = [whole("ks", k) for k in ks]
    if not numbers:
        raise ValueError("`ks` must hold at least one number. Received: none.")
    return numbers


def _rows_by(of: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """List the positions at which each of 0 to `count` - 1 stands."""
    order = np.argsort(of, kind="stable")
    return np.split(order, np.cumsum(np.bincount(of, minlength=count))[:-1])
