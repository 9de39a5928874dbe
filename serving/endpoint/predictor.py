"""Predict for every protocol: check the images, then wait in one queue."""

from collections.abc import Mapping
from concurrent.futures import Future

import numpy as np

from ..web.status import refuse
from .batching.costs import ImageCosts
from .batching.scheduler import BatchScheduler, Waiting
from .image_header import check_pixels
from .models.servable import Servable
from .options import ServerOptions

_MOST_IMAGES = 4
"""Images of the largest size that a request may hold.

The memory is bounded without this; it bounds the work that one request may ask for.
"""


class Predictor:
    """Takes the requests of all protocols of a server.

    Args:
        scheduler: Runs them, in batches or each by itself. `close` closes it.
        max_pixels: Width times height above which an image is refused before it is
            decoded, at least 1. A small file may declare any size. All images of a
            request together may have four times as many.

    Attributes:
        memory: The budget of what is decoded.

    Raises:
        ValueError: The limit is out of range.
    """

    def __init__(
        self, scheduler: BatchScheduler, *, max_pixels: int = ServerOptions.max_pixels
    ) -> None:
        if max_pixels < 1:
            raise ValueError(
                f"`max_pixels` must be at least 1. Received: max_pixels={max_pixels}."
            )
        self._scheduler = scheduler
        self.memory = scheduler.memory
        self._max_pixels = max_pixels

    def submit(
        self,
        servable: Servable,
        signature_name: str,
        inputs: Mapping[str, np.ndarray],
        waiting: Waiting,
    ) -> Future[dict[str, np.ndarray]]:
        """Put a request into the queue.

        Args:
            servable: The version that answers; its lease is held until the result is
                there.
            signature_name: Which signature of it.
            inputs: One array for each input of the signature.
            waiting: Knows whether the client still waits. A request that nobody waits
                for is not run.

        Returns:
            The outputs, once they are there; or the `StatusError` of the request.

        Raises:
            StatusError: The queue is full, an image or all together have too many
                pixels, or an image takes more memory than there is.
        """
        checked = [
            check_pixels(array, self._max_pixels, name)
            for name, array in inputs.items()
            if array.dtype == object
        ]
        pixels = sum(counted for counted, _ in checked)
        most = _MOST_IMAGES * self._max_pixels
        if pixels > most:
            refuse(
                f"The images of the request have {pixels} pixels together; at most "
                f"{most} are decoded for one request. Send fewer at a time."
            )
        costs = None
        if any(rows.any() for _, rows in checked):
            rows = _together([rows for _, rows in checked])
            costs = ImageCosts(rows, servable.images_at_once)
        return self._scheduler.submit(
            servable, signature_name, dict(inputs), waiting, costs
        )

    def close(self, seconds: float | None = None) -> bool:
        """Refuse further requests; those in the queue are run.

        Args:
            seconds: How long to wait for that, at least 0; None for as long as it
                takes. See `BatchScheduler.close`.

        Returns:
            Whether nothing runs any more.
        """
        return self._scheduler.close(seconds)


def _together(costs: list[np.ndarray]) -> np.ndarray:
    """Add up the bytes of the inputs by row, where they have the same rows."""
    if len({len(rows) for rows in costs}) == 1:
        return np.sum(costs, axis=0)
    return np.concatenate(costs)
