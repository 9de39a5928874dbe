"""Report to orchestrators whether the service lives, and whether it can search."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...client import EndpointError
from ...web.bounded_work import BoundedWork
from ..gallery.image_search import ImageSearch
from .errors import explained

_FRESH_SECONDS = 2.0
_LONGEST_SECONDS = 30.0

_log = logging.getLogger(__name__)


class Health:
    """Answer `/healthz` and `/readyz`.

    Args:
        searches: The searches that the service needs.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        searches: Collection[ImageSearch],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._searches = searches
        self._clock = clock
        self._asking = asyncio.Lock()
        self._work = BoundedWork("ready", 1, 1, _LONGEST_SECONDS)
        self._asked = -_FRESH_SECONDS
        self._refusal: HTTPException | None = None

    def close(self) -> None:
        """Begin nothing any more."""
        self._work.close()

    async def live(self, request: Request) -> Response:
        """Answer that the service runs."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Answer whether the endpoint serves the model of each gallery.

        The endpoint is asked every two seconds at most, however often this is.
        """
        async with self._asking:
            if self._clock() - self._asked >= _FRESH_SECONDS:
                self._refusal = await self._checked()
                self._asked = self._clock()
        if self._refusal is not None:
            raise self._refusal
        return JSONResponse({"status": "ok"})

    async def _checked(self) -> HTTPException | None:
        try:
            for search in list(self._searches):
                await self._work.run(search.client.check)
        except EndpointError as error:
            _log.warning("%s", error)
            found = explained(error)
            return HTTPException(503, found.detail)
        except HTTPException as error:  # it took too long
            return HTTPException(503, error.detail)
        return None
