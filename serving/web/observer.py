"""Log and count the requests of any protocol."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from .log import RequestRecord, log_request
from .monitoring import Monitoring
from .status import StatusCode

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
    """Logs and counts the requests of a server.

    Args:
        monitoring: Counts them; None for no metrics.
    """

    def __init__(self, monitoring: Monitoring | None = None) -> None:
        self.monitoring = monitoring

    @contextlib.contextmanager
    def observe(
        self, protocol: Literal["REST", "GRPC"], request_id: str, peer: str | None
    ) -> Iterator[Observed]:
        """Log and count the request that is answered in the block.

        Args:
            protocol: How it came.
            request_id: From `serving.web.log.request_id`.
            peer: Address of the client.

        Yields:
            Takes what becomes known of it.
        """
        observed = Observed(request_id)
        start = time.perf_counter()
        try:
            yield observed
        finally:
            seconds = time.perf_counter() - start
            if self.monitoring is not None and observed.call in _PREDICTIONS:
                self.monitoring.request(
                    observed.model if observed.is_served else None,
                    observed.call,
                    protocol,
                    observed.status,
                    seconds,
                )
            log_request(
                RequestRecord(
                    request_id=request_id,
                    protocol=protocol,
                    call=observed.call,
                    model=observed.model,
                    version=observed.version,
                    status=observed.status,
                    seconds=seconds,
                    request_bytes=observed.request_bytes,
                    peer=peer,
                )
            )
