"""A collector of traces in this process, which takes OTLP over HTTP."""

import contextlib
import gzip

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from tests.support.running_server import running


class Collected:
    """The spans that came, each with the name of its service."""

    def __init__(self):
        self.spans = []

    async def take(self, request):
        body = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(about["service.name"], span) for span in scope.spans]
        return Response()

    def named(self, name):
        """Return the spans of that name."""
        return [span for _, span in self.spans if span.name == name]

    def names(self, service):
        """Return the names of the spans of a service, each once, in order."""
        return sorted({span.name for owner, span in self.spans if owner == service})


@contextlib.contextmanager
def collecting():
    """Run a collector; yields its address, and what it has collected."""
    collected = Collected()
    app = Starlette(routes=[Route("/v1/traces", collected.take, methods=["POST"])])
    with running(app) as url:
        yield url, collected
