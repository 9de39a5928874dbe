"""Limit the time that a client of HTTP may hold up its connection."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class PromptH11Protocol(H11Protocol):
    """A connection of HTTP that ends if its client holds it up.

    uvicorn 0.54 waits without end for the head of a request, for the rest of a body
    that was answered before all of it came, and for a client that does not read its
    reply, so that a few bytes could hold any number of connections, and the replies
    that wait in them. Here each of these has a limit.

    Attributes:
        head_seconds: For the head, and for the rest of an answered body.
        write_seconds: For the client to read.
    """

    head_seconds = 10.0
    write_seconds = 60.0

    _late: asyncio.TimerHandle | None = None
    _awaited: object = None  # a state of h11
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the head of a request."""
        super().connection_made(transport)
        # From the first byte on that the client does not take, and to the last one,
        # writing counts as paused.
        transport.set_write_buffer_limits(high=1, low=0)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read on, and wait for what is not complete."""
        super().data_received(data)
        self._watch()
        self._watch_end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._wait_for(None)
        self._forget_unread()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._limit_unread()

    def resume_writing(self) -> None:
        """Wait no longer: the client has read all."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._forget_unread()

    def on_response_complete(self) -> None:
        """Close the connection, or keep it for the next request."""
        super().on_response_complete()
        self._watch_end()

    def shutdown(self) -> None:
        """Close the connection, after the reply that is under way if there is one."""
        super().shutdown()
        self._watch_end()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, since no further request came."""
        super().timeout_keep_alive_handler()
        self._watch_end()

    def _watch(self) -> None:
        state = self.conn.their_state
        is_rest = (
            state is h11.SEND_BODY
            and self.cycle is not None
            and self.cycle.response_complete
        )
        self._wait_for(state if state is h11.IDLE or is_rest else None)

    def _wait_for(self, state: object) -> None:
        """Give the client time to leave a state; None if it is not waited for."""
        if state is self._awaited:
            return
        self._awaited = state
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if state is not None:
            self._late = self.loop.call_later(self.head_seconds, self._give_up)

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
        self._watch_end()

    def _watch_end(self) -> None:
        # A transport that closes still waits for the client to read. Under TLS nothing
        # else shows that bytes are left: asyncio of Python 3.11 hides those that are
        # encrypted.
        if self.transport.is_closing():
            self._limit_unread()

    def _limit_unread(self) -> None:
        if self._unread is None:
            self._unread = self.loop.call_later(
                self.write_seconds, self.transport.abort
            )

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
