"""Read the body of a request within limits of size, time and memory."""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tfdml.messages import shortened, shown

_GZIP = 16 + zlib.MAX_WBITS
_PIECE_BYTES = 2**20  # a few milliseconds of decompression
_DISCARD_SECONDS = 30
_SHORT_SHARE, _KEPT_SHARE = 64, 8

ARRIVAL_SECONDS = 60.0
"""Time in which a REST body or a gRPC message must arrive."""


class BodyReader:
    """Reads bodies; what it holds at one time is bounded over all requests together.

    An eighth of that is kept for short bodies, of up to a 64th of the longest, so that
    a few long ones leave room for all others.

    Args:
        max_bytes: Longest body, after decompression.
        max_total_bytes: Most bytes of all bodies held at one time.
        seconds: Within this time a body must have arrived.
    """

    def __init__(self, max_bytes: int, max_total_bytes: int, seconds: float) -> None:
        self._max_bytes = max_bytes
        self._max_total_bytes = max_total_bytes
        self._seconds = seconds
        self._held = 0

    @contextlib.asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytearray]:
        """Read the body, and count its bytes as held until the block ends.

        Yields:
            The body, decompressed if its `Content-Encoding` is gzip.

        Raises:
            HTTPException: 413 if the body is too long, 408 if it is too slow, 503 if
                other requests hold too much, 415 or 400 if it cannot be decompressed.
            ClientDisconnect: The client has gone.
        """
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._fill(body, request)
            except TimeoutError:
                raise HTTPException(
                    408,
                    f"The request body must arrive within {self._seconds:g} seconds.",
                ) from None
            yield body
        finally:
            self._held -= len(body)

    async def _fill(self, body: bytearray, request: Request) -> None:
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            raise HTTPException(
                415,
                "Content-Encoding must be gzip or identity. "
                f"Received: {shown(encoding)}.",
            )
        inflater = zlib.decompressobj(_GZIP) if encoding == "gzip" else None
        stream = request.stream()
        if int(request.headers.get("content-length", 0)) > self._max_bytes:
            # A client that asks first is refused before it sends anything.
            if "expect" not in request.headers:
                await _discard(stream)
            raise self._too_long()
        async for chunk in stream:
            while chunk:
                plain, chunk = (
                    (chunk, b"") if inflater is None else _inflate(inflater, chunk)
                )
                if len(body) + len(plain) > self._max_bytes:
                    self._held -= len(body)
                    body.clear()
                    await _discard(stream)
                    raise self._too_long()
                if self._held + len(plain) > self._most_held(len(body) + len(plain)):
                    raise HTTPException(
                        503, "The server holds too many requests. Retry."
                    )
                body += plain
                self._held += len(plain)
                if chunk:  # other requests have their turn between two pieces
                    await asyncio.sleep(0)
        if inflater is not None and not inflater.eof:
            raise HTTPException(400, "The gzip data of the request body is cut short.")

    def _most_held(self, length: int) -> int:
        """Return what all bodies may take, for one that has come to a length."""
        if length <= self._max_bytes // _SHORT_SHARE:
            return self._max_total_bytes
        return self._max_total_bytes - self._max_total_bytes // _KEPT_SHARE

    def _too_long(self) -> HTTPException:
        return HTTPException(
            413,
            f"The request body may have at most {self._max_bytes} bytes. Send fewer "
            "or smaller instances.",
        )


async def _discard(stream: AsyncIterator[bytes]) -> None:
    """Let the client write the rest of its body, and keep nothing of it.

    A client that writes its whole body before it reads would otherwise see a broken
    connection instead of the answer.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            async for _ in stream:
                pass


def _inflate(inflater: "zlib._Decompress", chunk: bytes) -> tuple[bytes, bytes]:
    """Return the next piece, and the rest of the chunk, still compressed."""
    try:
        inflated = inflater.decompress(chunk, _PIECE_BYTES)
    except zlib.error as error:
        raise HTTPException(
            400, f"The request body is not gzip data ({shortened(error)})."
        ) from None
    if inflater.unused_data:
        raise HTTPException(400, "Something follows the gzip data of the request body.")
    return inflated, inflater.unconsumed_tail
