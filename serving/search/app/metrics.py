"""Count what the search service does, for Prometheus."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from ...web.log import RequestRecord
from ...web.tracing import Tracing
from ..gallery.image_search import ImageSearch
from ..gallery.items import Hit
from .recall_watch import RecallWatch

_OF_INDEX = "tfdml_search_index_"
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# 1 millisecond to half a minute, which is how long a request waits for its result.
_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)


class SearchMetrics:
    """Counts what one service does. All methods may be called from any thread.

    The labels are names of calls, stages and galleries: no client can add to them.

    Args:
        searches: The galleries by name.

    Attributes:
        recall: Measures the recall of recent searches.
    """

    def __init__(self, searches: Mapping[str, ImageSearch]) -> None:
        self.recall = RecallWatch(searches)
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "tfdml_search_requests",
            "Requests that have ended, by call and status.",
            ["call", "status"],
            registry=self._registry,
        )
        self._request_seconds = Histogram(
            "tfdml_search_request_seconds",
            "Time from a request to its reply.",
            ["call"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._stage_seconds = Histogram(
            "tfdml_search_stage_seconds",
            "Time of the parts of a search: fetch, decode, embed (by the endpoint), "
            "index.",
            ["stage"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._answers = Counter(
            "tfdml_search_answers",
            "Searches by what the first hit is: match, no_match, or unknown where the "
            "gallery has no calibration or nothing was found.",
            ["index", "answer"],
            registry=self._registry,
        )
        self._thumbnails = Counter(
            "tfdml_search_thumbnails",
            "Thumbnails that were asked for, by whether they were in memory: hit, "
            "miss.",
            ["cache"],
            registry=self._registry,
        )
        self._registry.register(_Galleries(searches, self.recall))
        ProcessCollector(registry=self._registry)

    def count(self, request: RequestRecord) -> None:
        """Count a request that has ended."""
        self._requests.labels(request.call, request.status.name).inc()
        self._request_seconds.labels(request.call).observe(request.seconds)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Take the time of the block, whatever its end."""
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self._stage_seconds.labels(name).observe(seconds)

    def answered(self, index: str, hits: Iterable[Hit]) -> None:
        """Count a search by its first hit."""
        is_match = next((hit.is_match for hit in hits), None)
        answer = {True: "match", False: "no_match", None: "unknown"}[is_match]
        self._answers.labels(index, answer).inc()

    def thumbnail(self, was_kept: bool) -> None:
        """Count a thumbnail that was asked for."""
        self._thumbnails.labels("hit" if was_kept else "miss").inc()

    def text(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        return generate_latest(self._registry)

    async def exposition(self, request: Request) -> Response:
        """Answer with all metrics."""
        return Response(self.text(), headers={"content-type": _CONTENT_TYPE})


def stages_of(
    metrics: SearchMetrics | None, tracing: Tracing | None
) -> Callable[[str], contextlib.AbstractContextManager[None]]:
    """Return what takes note of a part of a search."""
    wanted = [each.stage for each in (metrics, tracing) if each is not None]

    @contextlib.contextmanager
    def stage(name: str) -> Iterator[None]:
        with contextlib.ExitStack() as inside:
            for each in wanted:
                inside.enter_context(each(name))
            yield

    return stage


class _Galleries(Collector):
    """Reads the state of the galleries when it is asked for."""

    def __init__(
        self, searches: Mapping[str, ImageSearch], recall: RecallWatch
    ) -> None:
        self._searches = searches
        self._recall = recall

    def describe(self) -> Iterable[Metric]:
        return []  # which keeps the registry from collecting at once

    def collect(self) -> Iterator[Metric]:
        """Yield each gauge, with a sample for each gallery."""
        gauges = {
            name: GaugeMetricFamily(f"{_OF_INDEX}{name}", text, labels=["index"])
            for name, text in {
                "images": "Images in the gallery.",
                "added": "Images that were added since the index was built; they are "
                "compared one by one.",
                "removed": "Images that were removed since the index was built; they "
                "still take memory.",
                "log_bytes": "Size of the changes that a start has to read.",
                "recall": "Recall@10 that was measured when the index was built.",
                "recall_now": "Recall@10 of the last searches, compared with all "
                "items at intervals of ten minutes.",
            }.items()
        }
        recalls = self._recall.recalls
        for name, search in self._searches.items():
            stats = search.index.stats()
            known = {**stats.details, "images": stats.count}
            recall = known.get("recall")
            known["recall"] = recall["value"] if recall else None
            known["recall_now"] = recalls.get(name)
            for key, gauge in gauges.items():
                if known.get(key) is not None:
                    gauge.add_metric([name], known[key])
        yield from gauges.values()
