"""Decide who is compared with whom and what counts as found, for every metric.

A query is compared with the items of the gallery outside of its own group. Its
positives are those of them that have its class.
"""

import copy
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import whole
from tfdml._core.labels import as_labels, as_role, numbered
from tfdml.messages import shown


class Comparisons:
    """Which items search which others, and which of those are positives.

    Args:
        count: The number of items, N.
        labels: Class of each, integers or strings `[N]`; `None` where there are none.
        is_query: Bool array `[N]`; `None`: all are queries.
        is_gallery: Bool array `[N]`; `None`: all are in the gallery.
        groups: Integers or strings `[N]`: items of the query's own group are neither
            searched nor positives, such as the other frames of its clip. `None` leaves
            out the query alone, so that its duplicates are found.

    Attributes:
        labels: The classes as given, `[N]`, or `None`.
        groups: The groups as given, `[N]`, or `None`.
        group_of: The group of each item as a number, int64 `[N]`.
        is_query: Bool array `[N]`.
        queries: The items that are queries, int64 `[Q]`.
        searched: The items of the gallery, int64 `[G]`. A gallery row is a place in it.
        has_roles: Whether `is_query` or `is_gallery` was given.

    Raises:
        ValueError: A shape or type does not fit.

    Example:
        >>> compared = Comparisons(3, ["cat", "cat", "dog"])
        >>> compared.has_positive.tolist()
        [True, True, False]
    """

    def __init__(
        self,
        count: int,
        labels: ArrayLike | None = None,
        *,
        is_query: ArrayLike | None = None,
        is_gallery: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> None:
        self.labels = None if labels is None else as_labels("labels", labels, count)
        self.groups = None if groups is None else as_labels("groups", groups, count)
        self._class_of = None if self.labels is None else numbered(self.labels)
        self.group_of = np.arange(count)
        if self.groups is not None:
            self.group_of = numbered(self.groups)
        self.has_roles = is_query is not None or is_gallery is not None
        self.is_query = as_role("is_query", is_query, count)
        self.queries = np.flatnonzero(self.is_query)
        self._search(np.flatnonzero(as_role("is_gallery", is_gallery, count)))

    def _search(self, searched: NDArray[np.int64]) -> None:
        self.searched = searched
        self._by_group = _Places(self.group_of[searched])
        if self._class_of is not None:
            self._by_class = _Places(self._class_of[searched])

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.group_of)

    def __str__(self) -> str:
        """Count classes, items, queries and gallery in a phrase."""
        classes = "" if self._class_of is None else f"{self.class_count} classes of "
        return (
            f"{classes}{len(self)} items, {len(self.queries)} queries, "
            f"{len(self.searched)} in the gallery"
        )

    def among(self, searched: NDArray[np.int64]) -> Self:
        """Return these comparisons with another gallery: items, `[G]`, rising."""
        other = copy.copy(self)
        other._search(searched)
        return other

    @property
    def class_of(self) -> NDArray[np.int64]:
        """The class of each item, numbered in the order of the labels, int64 `[N]`."""
        if self._class_of is None:
            raise ValueError("`labels` must be given for this metric. Received: None.")
        return self._class_of

    @property
    def class_count(self) -> int:
        """The number of classes."""
        return int(self.class_of.max(initial=-1)) + 1

    @property
    def positive_counts(self) -> NDArray[np.int64]:
        """How many positives each item has, or would have as a query, int64 `[N]`."""
        class_of, group_of = self.class_of, self.group_of
        both = class_of * (group_of.max(initial=0) + 1) + group_of
        of_own_group = _Places(both[self.searched]).counts(both)
        return self._by_class.counts(class_of) - of_own_group

    @property
    def compared_counts(self) -> NDArray[np.int64]:
        """How many items each item is compared with as a query, int64 `[N]`."""
        return len(self.searched) - self._by_group.counts(self.group_of)

    @property
    def has_positive(self) -> NDArray[np.bool_]:
        """Whether each item is a query with a positive, bool `[N]`."""
        return self.is_query & (self.positive_counts > 0)

    def excluded(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the gallery rows that items must not find as queries.

        Args:
            items: int64 `[Q]`.

        Returns:
            int64 `[Q, m]`, rising, -1 after the last one.
        """
        return self._by_group.padded(self.group_of[items])

    def positives(self, items: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the positives of each item as gallery rows, int64 `[R]`, rising."""
        owners, rows = self._by_class.ragged(self.class_of[items])
        kept = self.group_of[self.searched[rows]] != self.group_of[items[owners]]
        owners, rows = owners[kept], rows[kept]
        ends = np.searchsorted(owners, np.arange(len(items) + 1))
        return [rows[start:end] for start, end in pairwise(ends)]

    def blocks(
        self, items: NDArray[np.int64], numbers: int, each: int = 1
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield blocks of queries with the gallery rows that they must not find.

        Queries of groups of like size come together, the smallest first, so that little
        is padded. Those that are compared with nothing are left out.

        Args:
            items: Which items search, int64 `[Q]`.
            numbers: How many numbers a block may hold; one query may hold more.
            each: How many numbers a query takes beside the rows that it excludes.

        Yields:
            Places in `items`, int64 `[B]`, and what `excluded` returns for them.
        """
        sizes = self._by_group.counts(self.group_of[items])
        order = np.argsort(sizes, kind="stable")
        order = order[sizes[order] < len(self.searched)]
        step = max(1, numbers // max(1, each, int(sizes[order].max(initial=0))))
        for start in range(0, len(order), step):
            block = order[start : start + step]
            yield block, self.excluded(items[block])

    def checked_ks(self, ks: Sequence[int]) -> list[int]:
        """Check the k of retrieval metrics and return them.

        Raises:
            ValueError: No query has a positive, or a k is not a whole number from 1 to
                the number of items that every query is compared with.
        """
        has_positive = self.has_positive
        if not has_positive.any():
            raise ValueError(self.why_no_positive())
        allowed = int(self.compared_counts[has_positive].min())
        numbers = checked_ks(ks)
        if max(numbers) > allowed:
            raise ValueError(
                f"`ks` must be from 1 to {allowed}, the number of items in the gallery "
                f"minus the query. Received: {shown(numbers)}."
            )
        return numbers

    def why_no_positive(self) -> str:
        """Explain which argument leaves no query a positive."""
        if not len(self):
            return "`embeddings` must hold items. Received: none."
        if not len(self.queries):
            rule = "`is_query` must name a query"
        elif not len(self.searched):
            rule = "`is_gallery` must name an item to search"
        elif grouped := int(self._positives_without_groups().sum()):
            rule = (
                "`groups` must leave a query some item of its class: "
                f"{grouped} queries have one in their own group alone"
            )
        elif self.class_count == len(self):
            rule = "`labels` must hold some label twice: each class has one item"
        else:
            rule = "`is_gallery` must hold an item of a query's class beside the query"
        return f"{rule}. Received: {self}."

    def _positives_without_groups(self) -> NDArray[np.bool_]:
        is_searched = np.isin(self.queries, self.searched)
        counts: NDArray[np.int64] = self._by_class.counts(self.class_of[self.queries])
        return counts > is_searched


def checked_ks(ks: Sequence[int]) -> list[int]:
    """Check the k of metrics and return them as whole numbers.

    Raises:
        ValueError: There is none, or one is not a whole number of at least 1.
    """
    if isinstance(ks, str) or not np.iterable(ks):
        raise ValueError(
            f"`ks` must be a sequence of whole numbers. Received: {shown(ks)}."
        )
    numbers = [whole("ks", k) for k in ks]
    if not numbers:
        raise ValueError("`ks` must hold at least one number. Received: none.")
    return numbers


class _Places:
    """The places of each code in an array, found by bisection."""

    def __init__(self, codes: NDArray[np.int64]) -> None:
        self._order = np.argsort(codes, kind="stable")
        self._ordered = codes[self._order]

    def _ends(self, codes: Any) -> tuple[Any, Any]:
        first = np.searchsorted(self._ordered, codes)
        return first, np.searchsorted(self._ordered, codes, "right")

    def counts(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how often each of some codes occurs."""
        first, last = self._ends(codes)
        counts: NDArray[np.int64] = last - first
        return counts

    def ragged(
        self, codes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the places of some codes, those of each rising, and whose they are."""
        first, last = self._ends(codes)
        owners = np.repeat(np.arange(len(codes)), last - first)
        before = np.cumsum(last - first) - last
        return owners, self._order[np.arange(len(owners)) - before[owners]]

    def padded(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of some codes `[Q, m]`, rising, -1 after the last one."""
        first, last = self._ends(codes)
        most = int((last - first).max(initial=0))
        places = first[:, np.newaxis] + np.arange(most)
        inside = places < last[:, np.newaxis]
        if not most:
            return np.empty((len(codes), 0), np.int64)
        return np.where(inside, self._order[np.where(inside, places, 0)], -1)
