"""The HTTP protocol of a connection: the head of a request must come in time."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["PromptH11Protocol"]

_HEAD_SECONDS = 10.0


class PromptH11Protocol(H11Protocol):
    """Closes a connection on which a request does not begin, or its head does not end.

    uvicorn 0.54 waits for it without end, so that a client could hold any number of
    connections with a few bytes each.
    """

    _too_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the head of a request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read on, and wait for a head if none is complete."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._too_late is None:
            self._too_late = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._too_late = None
        if not self.transport.is_closing():
            self.transport.close()

    def _forget(self) -> None:
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None
