"""Choose settings of an engine that reach a recall, by measuring.

Items of the gallery, themselves left out, are searched for exactly and then with one
setting after the other. The fastest setting that reaches the target is measured again,
with other items, and that is what an index says of itself.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfdml.index._recall import MeasuredRecall, RecallTarget
from tfdml.index.engines._coded import CodedSearcher
from tfdml.index.engines._exact import ExactRows
from tfdml.index.engines._prepared import PreparedRows
from tfdml.index.engines._samples import (
    FEW,
    K,
    Sample,
    Searcher,
    draw_samples,
    has_reached,
    may_reach,
    measured,
    recalls_of,
)
from tfdml.index.engines._settings import (
    IndexSettings,
    exact_settings,
    hashing_settings,
    tree_settings,
)

_REORDERS = (800, 400, 200, 140, 100, 80, 65, 50, 40)
_ALONE = 20  # queries that are timed one at a time
_ROUNDS = 4
_MOST_LEAVES = 0.5  # share of a tree; searching more of it saves little
_TOO_SLOW = 1.5  # times the fastest: a setting that cannot become the fastest
_LITTLE = 0.02  # of what is missed: more leaves do not help


Costs = Callable[[Sequence[Searcher], NDArray[np.float32], int], list[float]]
"""Returns what a query costs each searcher, measured in some rounds."""

Recalls = Callable[[Searcher, Sample], NDArray[np.float64]]
"""Returns the recall of each query of a sample."""


class _Tried(NamedTuple):
    """What became of a setting: its recall, and its CPU seconds for a query."""

    reached: bool
    recall: float
    seconds: float


def searcher_for_target(
    gallery: NDArray[np.float32],
    *,
    unit: bool,
    target: RecallTarget,
    engine: type[CodedSearcher],
    costs: "Costs | None" = None,
    recalls: "Recalls | None" = None,
    reorders: Sequence[int] = _REORDERS,
) -> Searcher:
    """Build the fastest searcher that reaches a recall.

    Args:
        gallery: Embeddings `[N, D]`, finite, with more than 20 rows; not modified.
        unit: Whether to search by cosine. If not, by inner product.
        target: What is to be reached.
        engine: What to build with.
        costs: Measures what searches cost. Default: `cpu_seconds`.
        recalls: Measures the recall of each query. Default: `recalls_of`.
        reorders: How many rows to try to score again exactly, in falling order.

    Returns:
        The searcher; `settings.reason` says why it is as it is, `recall` what was
        measured. It is exact where no setting reaches the target.
    """
    measures = costs or cpu_seconds, recalls or recalls_of
    return _Tuning(gallery, unit, target, engine, *measures, reorders).result()


def cpu_seconds(
    searchers: Sequence[Searcher], queries: NDArray[np.float32], rounds: int
) -> list[float]:
    """Return the CPU seconds of a query for each, the mean of in a batch and alone.

    One thread works, and its own time counts; exact search has threads, and the time of
    the process counts. They take turns, and the least of the rounds counts: whatever
    else the machine does changes little.
    """
    few, alone = queries[:FEW], queries[:_ALONE]
    times = np.full((rounds, len(searchers), 2), np.inf)
    for number in range(rounds):
        for place, searcher in enumerate(searchers):
            one_thread = searcher.using(searcher.settings, threads=1)
            is_exact = isinstance(searcher, ExactRows)
            clock = time.process_time if is_exact else time.thread_time
            start = clock()
            one_thread.nearest(few, K)
            middle = clock()
            for query in alone:
                one_thread.nearest(query[None, :], K)
            end = clock()
            times[number, place] = (
                (middle - start) / len(few),
                (end - middle) / len(alone),
            )
    costs: list[float] = times.min(axis=0).mean(axis=1).tolist()
    return costs


def _leaves_to_try(leaves: int) -> list[int]:
    """List numbers of leaves to search, each 1.4 times the one before; 0 for none."""
    if not leaves:
        return [0]
    steps = {math.ceil(leaves / 2 ** (i / 2)) for i in range(2 * leaves.bit_length())}
    return sorted(steps)


class _Tuning:
    """One build for a target: the samples, and what was tried."""

    def __init__(
        self,
        gallery: NDArray[np.float32],
        unit: bool,
        target: RecallTarget,
        engine: type[CodedSearcher],
        costs: "Costs",
        recalls: "Recalls",
        reorders: Sequence[int],
    ) -> None:
        self._costs, self._recalls, self._reorders = costs, recalls, reorders
        self._gallery = gallery
        self._unit = unit
        self._target = target
        self._engine = engine
        self._prepared = PreparedRows(gallery, unit=unit)
        self._exact = ExactRows(
            gallery, exact_settings(""), metric="cosine" if unit else "dot_product"
        )
        self._choosing, self._measuring = draw_samples(gallery, self._exact, target)
        self._most: dict[str, float] = {}

    def result(self) -> Searcher:
        """Build, choose and measure."""
        rows = len(self._gallery)
        name = self._engine.engine
        tree = tree_settings(rows, "", unit=self._unit, engine=name)
        found = self._reaching(tree)
        used = [one.settings.leaves_to_search / one.settings.leaves for one in found]
        if min(used, default=1) > _MOST_LEAVES:  # without a tree it may be faster
            found += self._reaching(hashing_settings("", name))
        costs = self._costs(found, self._choosing.queries, _ROUNDS)
        (exact,) = self._costs([self._exact], self._choosing.queries, 1)
        for place in np.argsort(costs, kind="stable"):
            searcher, cost = found[place], costs[place]
            recalls = self._recalls(searcher, self._measuring)
            if recalls.mean() < self._target.value or cost >= exact:
                continue
            reason = self._success(searcher.settings, recalls, cost / exact)
            settings = replace(searcher.settings, reason=reason)
            return searcher.using(settings, recall=measured(recalls, self._target))
        found_all = MeasuredRecall.of_exact(self._target)
        return self._exact.using(exact_settings(self._failure()), recall=found_all)

    def _reaching(self, settings: IndexSettings) -> list[CodedSearcher]:
        """Build, and find the settings that reach the target with the first sample.

        For each number of rows that are scored again it is that with the fewest
        leaves, and one a step more careful should the other sample need it.
        """
        built = self._engine.of_rows(self._prepared, settings)
        rows, steps = len(self._gallery), _leaves_to_try(settings.leaves)
        first, fastest = 0, math.inf
        found: list[tuple[float, IndexSettings]] = []
        for reorder in self._reorders:
            asked = replace(settings, leaves_to_search=1, reorder=reorder)
            least = asked.leaves_for(K, rows)  # the leaves must hold so many
            before = -math.inf
            for number in range(first, len(steps)):
                if steps[number] < min(least, settings.leaves):
                    continue
                asked = replace(asked, leaves_to_search=steps[number])
                tried = self._try(built.using(asked, threads=1))
                if tried.reached:
                    fastest = min(fastest, tried.seconds)
                    found += [
                        (tried.seconds, replace(asked, leaves_to_search=leaves))
                        for leaves in steps[number : number + 2]
                    ]
                    break
                # Nor will so few leaves do where fewer rows are scored again.
                first = number + 1
                gain, before = tried.recall - before, tried.recall
                if tried.seconds > _TOO_SLOW * fastest or (
                    found and gain < _LITTLE * (1 - tried.recall)
                ):
                    break  # it would be slow, or the codes are what fails
            if not found:  # nor will it with fewer
                break
        return [
            built.using(asked)
            for seconds, asked in found
            if seconds <= _TOO_SLOW * fastest
        ]

    def _try(self, searcher: Searcher) -> _Tried:
        """Measure with the queries that choose, or few where these show it to fail."""
        method = searcher.settings.method
        sample, start = self._choosing, time.thread_time()
        recalls = self._recalls(searcher, sample.part(slice(FEW)))
        seconds = (time.thread_time() - start) / len(recalls)
        rest = sample.part(slice(FEW, None))
        if len(rest.queries) and may_reach(recalls, self._target.value):
            recalls = np.concatenate([recalls, self._recalls(searcher, rest)])
        recall = float(recalls.mean())
        self._most[method] = max(self._most.get(method, 0.0), recall)
        reached = has_reached(recalls, self._target.value)
        return _Tried(reached, recall, seconds)

    def _success(
        self, settings: IndexSettings, recalls: NDArray[np.float64], share: float
    ) -> str:
        how = f"scoring {settings.reorder} items exactly"
        if settings.method == "tree":
            part = f"{settings.leaves_to_search} of {settings.leaves} leaves"
            how = f"searching {part} and {how}"
        return (
            f"Of the settings that reach recall@{K} {self._target.value:g} it is the "
            f"fastest: {how} found {recalls.mean():.4f} of the neighbors, and takes "
            f"{share:.2g} of the time of comparing with all {len(self._gallery)} items."
        )

    def _failure(self) -> str:
        reached = ", ".join(f"{most:.3f} by {m}" for m, most in self._most.items())
        return (
            f"No setting reached recall@{K} {self._target.value:g} in less time than "
            f"comparing with all {len(self._gallery)} items takes. The most that was "
            f"reached: {reached}."
        )
