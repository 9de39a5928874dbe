"""What every protocol does to predict: check the pictures, then wait in one queue."""

from collections.abc import Mapping
from concurrent.futures import Future

import numpy as np

from serving.batching.scheduler import BatchScheduler, Waiting
from serving.models.servable import Servable
from serving.picture_header import check_pixels

__all__ = ["MAX_PIXELS", "Predictor"]

MAX_PIXELS = 100_000_000
"""Width times height above which a picture is refused unless another limit is set."""


class Predictor:
    """Takes the requests of all protocols of a server.

    Args:
        scheduler: Runs them, in batches or each by itself. `close` closes it.
        max_pixels: Width times height above which a picture is refused before it is
            decoded, at least 1. A small file may declare any size.

    Raises:
        ValueError: The limit is out of range.
    """

    def __init__(
        self, scheduler: BatchScheduler, *, max_pixels: int = MAX_PIXELS
    ) -> None:
        if max_pixels < 1:
            raise ValueError(
                f"`max_pixels` must be at least 1. Received: max_pixels={max_pixels}."
            )
        self._scheduler = scheduler
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
            waiting: Tells whether the client still waits. A request that nobody waits
                for is not run.

        Returns:
            The outputs, once they are there; or the `ServableError` of the request.

        Raises:
            ServableError: The queue is full, or a picture has too many pixels.
        """
        for name, array in inputs.items():
            if array.dtype == object:
                check_pixels(array, self._max_pixels, name)
        return self._scheduler.submit(servable, signature_name, dict(inputs), waiting)

    def close(self) -> None:
        """Refuse further requests; those in the queue are run."""
        self._scheduler.close()
