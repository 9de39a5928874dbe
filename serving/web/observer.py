"""Log, count and trace the requests of any protocol."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from .log import RequestRecord, log_request
from .monitoring import Monitoring
from .status import StatusCode
from .tracing import Tracing, end_of, handing_on

_PREDICTIONS = {"predict", "classify", "regress"}


class Version(Protocol):
    """A version of a model that answers requests."""

    name: str
    version: int
    fingerprint: str | None


@dataclass
class Observed:
    """The facts of a request that become known while it is answered.

    Attributes:
        request_id: Goes back to the client.
        call: What is asked for, such as "predict".
        model: Name in the request, if any.
        version: Version that answers, if any does.
        status: How it ended.
        request_bytes: Length of its body or message.
        is_served: Whether there is such a model.
        fingerprint: Of the version that answers, if it is known.
    """

    request_id: str
    call: str = "unknown"
    model: str | None = None
    version: int | None = None
    status: StatusCode = StatusCode.OK
    request_bytes: int | None = None
    is_served: bool = False
    fingerprint: str | None = None

    def answered_by(self, version: Version) -> None:
        """Note the version that answers."""
        self.model, self.version = version.name, version.version
        self.is_served, self.fingerprint = True, version.fingerprint


class RequestObserver:
    """Logs, counts and traces the requests of a server.

    Args:
        monitoring: Counts predictions; None for no metrics of them.
        tracing: Records spans; None for none.
        count: Called with each request that has ended; None for nothing.
    """

    def __init__(
        self,
        monitoring: Monitoring | None = None,
        *,
        tracing: Tracing | None = None,
        count: Callable[[RequestRecord], None] | None = None,
    ) -> None:
        self.monitoring = monitoring
        self._tracing = tracing
        self._count = count

    @contextlib.contextmanager
    def observe(
        self,
        protocol: Literal["REST", "GRPC"],
        request_id: str,
        peer: str | None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[Observed]:
        """Log, count and trace the request that is answered in the block.

        Its id, and the place in its trace, are handed on to requests that are made in
        the block.

        Args:
            protocol: How it came.
            request_id: From `serving.web.log.request_id`.
            peer: Address of the client.
            headers: Of the request, or its metadata, with names in lower case.

        Yields:
            Takes what becomes known of it.
        """
        observed = Observed(request_id)
        start = time.perf_counter()
        with contextlib.ExitStack() as inside:
            inside.enter_context(handing_on({"x-request-id": request_id}))
            if self._tracing is not None:
                inside.enter_context(self._traced(protocol, observed, headers or {}))
            try:
                yield observed
            finally:
                seconds = time.perf_counter() - start
                self._ended(protocol, observed, peer, seconds)

    def _ended(
        self,
        protocol: Literal["REST", "GRPC"],
        observed: Observed,
        peer: str | None,
        seconds: float,
    ) -> None:
        if self.monitoring is not None and observed.call in _PREDICTIONS:
            self.monitoring.request(
                observed.model if observed.is_served else None,
                observed.call,
                protocol,
                observed.status,
                seconds,
            )
        record = RequestRecord(
            request_id=observed.request_id,
            protocol=protocol,
            call=observed.call,
            model=observed.model,
            version=observed.version,
            status=observed.status,
            seconds=seconds,
            request_bytes=observed.request_bytes,
            peer=peer,
        )
        if self._count is not None:
            self._count(record)
        log_request(record)

    @contextlib.contextmanager
    def _traced(
        self, protocol: str, observed: Observed, headers: Mapping[str, str]
    ) -> Iterator[None]:
        assert self._tracing is not None  # noqa: S101
        with self._tracing.request(protocol, headers) as span:
            try:
                yield
            finally:
                facts = {
                    "tfdml.protocol": protocol,
                    "tfdml.request_id": observed.request_id,
                    "tfdml.model": observed.model,
                    "tfdml.model_version": observed.version,
                    "tfdml.request_bytes": observed.request_bytes,
                }
                end_of(span, observed.call, observed.status, facts)
