"""Embed prepared images by one model at an endpoint, over either protocol."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from serving.client.images import ImageSource, read_pixels
from serving.client.metadata import ModelMetadata, parse_metadata
from serving.client.retries import EndpointError, Retries, Waits, ask
from serving.client.rows import rows_of, split
from tfdml.images import encode_png


class Connection(Protocol):
    """One protocol. Metadata are TF Serving's JSON, predictions rows or dicts."""

    def metadata(self) -> dict[str, Any]:
        """Return TF Serving's metadata, as its JSON."""

    def predict(self, input_name: str, encoded: Sequence[bytes]) -> list[Any]:
        """Return one prediction per encoded image."""

    def close(self) -> None:
        """Close the connection."""


class RemoteModel:
    """One model at an endpoint. May be used from several threads.

    Args:
        url: Address of the model, for errors.
        connection: The way to it.
        retries: How often and how long a request is made again.
        max_pixels: Width times height above which an image is refused.

    Each method raises an `EndpointError` if the endpoint did not answer, or not as an
    embedder does; its `waits` can be ended early.
    """

    def __init__(
        self, url: str, connection: Connection, retries: Retries, max_pixels: int
    ) -> None:
        self.connection = connection
        self._url = url
        self._retries = retries
        self._max_pixels = max_pixels
        self._metadata: ModelMetadata | None = None
        self._asking_metadata = threading.Lock()

    def metadata(self, waits: Waits) -> ModelMetadata:
        """Return what the endpoint says about the model; asked once, then kept."""
        with self._asking_metadata:
            if self._metadata is None:
                reply = self._ask(self.connection.metadata, waits)
                try:
                    self._metadata = parse_metadata(reply)
                except ValueError as error:
                    raise self._wrong_reply(str(error)) from error
            return self._metadata

    def prepare(self, image: ImageSource, waits: Waits) -> bytes:
        """Return an image in the form that is sent: a PNG, reduced to the view.

        Raises:
            UnreadableImageError, OSError: The image cannot be read.
        """
        pixels = read_pixels(image, self._max_pixels)
        view = self.metadata(waits).view
        return encode_png(pixels if view is None else view.reduced(pixels))

    def embed(
        self, prepared: Iterable[bytes], batch_size: int, waits: Waits
    ) -> np.ndarray:
        """Embed prepared images, at least one.

        Args:
            prepared: As `prepare` returned them.
            batch_size: Most images in one request, at least 1.
            waits: The waits between attempts.

        Returns:
            float32 `[count, dimension]`.
        """
        dimension = self.metadata(waits).dimension
        rows = [self._predict(part, waits) for part in split(prepared, batch_size)]
        widths = {len(row) for part in rows for row in part}
        if len(widths) > 1 or dimension not in (None, *widths):
            raise self._wrong_reply(
                f"embeddings of length {sorted(widths)}, the model says {dimension}"
            )
        return np.concatenate(rows)

    def _predict(self, encoded: list[bytes], waits: Waits) -> np.ndarray:
        name = self.metadata(waits).input_name
        predictions = self._ask(lambda: self.connection.predict(name, encoded), waits)
        try:
            return rows_of(predictions)
        except ValueError as error:
            raise self._wrong_reply(str(error)) from error

    def _ask(self, attempt: Callable[[], Any], waits: Waits) -> Any:
        return ask(attempt, self._retries, wait=waits.wait)

    def _wrong_reply(self, reason: str) -> EndpointError:
        return EndpointError(
            f"The embedding endpoint {self._url} gave an unexpected answer: {reason}."
        )
