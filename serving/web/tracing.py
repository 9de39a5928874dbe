"""Record what a request does, in traces that reach through all processes.

The header `traceparent` (W3C Trace Context) hands a trace on, `X-Request-Id` the id of
a request: a service names both to those that it asks.
"""

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from tfdml import __version__
from tfdml.messages import shown

from .status import StatusCode

_outgoing: ContextVar[Mapping[str, str] | None] = ContextVar("outgoing", default=None)
_EXPORT_SECONDS = 2.0


def outgoing_headers() -> dict[str, str]:
    """Return the headers of a request that is made for the one that is answered.

    Returns:
        `x-request-id` and, where it is traced, `traceparent`; nothing outside of a
        request.
    """
    return dict(_outgoing.get() or {})


@contextlib.contextmanager
def handing_on(headers: Mapping[str, str]) -> Iterator[None]:
    """Add headers to those that are handed on in the block."""
    token = _outgoing.set({**outgoing_headers(), **headers})
    try:
        yield
    finally:
        _outgoing.reset(token)


class Tracing:
    """Records the spans of one service, and sends them to a collector.

    They are sent by a thread of their own. A collector that is away or slow holds
    nothing up: spans that it does not take are lost.

    Args:
        service: Name of the service in the traces.
        trace_to: Address of a collector that takes OTLP over HTTP, such as
            `http://127.0.0.1:4318`. Without a path, `/v1/traces` is added, as by other
            senders.
        seconds: How long the collector may take, and the end of the service waits for
            it, above 0.

    Raises:
        ValueError: `trace_to` is not an address of http or https.
        MissingPackageError: OpenTelemetry is not installed.
    """

    def __init__(
        self, service: str, trace_to: str, *, seconds: float = _EXPORT_SECONDS
    ) -> None:
        address = _collector(trace_to)
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import (
            TraceContextTextMapPropagator,
        )

        about = {"service.name": service, "service.version": __version__}
        # Its own, not the one of the process: a program may have both.
        self._seconds = seconds
        self._provider = TracerProvider(resource=Resource.create(about))
        exporter = OTLPSpanExporter(endpoint=address, timeout=seconds)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("tfdml", __version__)
        self._propagator = TraceContextTextMapPropagator()

    @contextlib.contextmanager
    def request(self, name: str, headers: Mapping[str, str]) -> Iterator[Any]:
        """Record the block, which answers a request.

        Args:
            name: Of the span until `end_of` gives it another.
            headers: Of the request, in lower case. With `traceparent` among them the
                span belongs to the trace of the client.

        Yields:
            The span, for `end_of`.
        """
        from opentelemetry.trace import SpanKind

        parent = self._propagator.extract(headers)
        with (
            self._tracer.start_as_current_span(
                name, context=parent, kind=SpanKind.SERVER
            ) as span,
            self._handing_on(),
        ):
            yield span

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Record the block as a part of the request that is answered."""
        with self._tracer.start_as_current_span(name), self._handing_on():
            yield

    def _handing_on(self) -> contextlib.AbstractContextManager[None]:
        headers: dict[str, str] = {}
        self._propagator.inject(headers)
        return handing_on(headers)

    def close(self) -> None:
        """Send what has not been sent; wait no longer than the collector may take."""
        self._provider.force_flush(int(self._seconds * 1000))
        self._provider.shutdown()


def end_of(span: Any, name: str, status: StatusCode, facts: Mapping[str, Any]) -> None:
    """Write on a span how its request ended.

    Args:
        span: The span.
        name: Its name from now on.
        status: How the request ended.
        facts: What is known of it; values that are None are left out.
    """
    from opentelemetry.trace import Status
    from opentelemetry.trace import StatusCode as SpanStatus

    span.update_name(name)
    for key, value in facts.items():
        if value is not None:
            span.set_attribute(key, value)
    span.set_attribute("tfdml.status", status.name)
    if status.is_failure:
        span.set_status(Status(SpanStatus.ERROR, status.name))


def _collector(url: str) -> str:
    """Return the address that spans are sent to."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError(
            "`trace_to` must be the address of a collector that takes OTLP over HTTP, "
            f"such as http://127.0.0.1:4318. Received: {shown(url)}."
        )
    return url if parts.path.strip("/") else f"{url.rstrip('/')}/v1/traces"
