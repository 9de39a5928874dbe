"""Embed prepared images by one model at an endpoint, over either protocol."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from tfdml.images import encode_png
from tfdml.messages import shown
from tfdml.model_version import TEXT_INPUT, TEXT_SIGNATURE, parse_description

from .images import ImageSource, read_pixels
from .metadata import DEFAULT, ModelMetadata, parse_metadata
from .reply import Reply
from .retries import (
    EndpointError,
    Failure,
    Retries,
    Waits,
    ask,
    unexpected,
)
from .rows import rows_of, split


class Connection(Protocol):
    """One protocol. Metadata are TF Serving's JSON, predictions rows or dicts."""

    def metadata(self) -> Reply[dict[str, Any]]:
        """Return TF Serving's metadata, as its JSON."""

    def predict(
        self, input_name: str, encoded: Sequence[bytes], signature: str = DEFAULT
    ) -> Reply[list[Any]]:
        """Return one prediction per encoded image, or per text."""

    def describe(self) -> str:
        """Return the text with which the model describes itself."""

    def close(self) -> None:
        """Close the connection."""


class RemoteModel:
    """One model at an endpoint. May be used from several threads.

    Args:
        url: Address of the model, for errors.
        connection: The way to it.
        retries: How often and how long a request is made again.
        max_pixels: Width times height above which an image is refused.
        fingerprint: That the model must have; None for any model.

    Each method raises an `EndpointError` if the endpoint did not answer, or not as an
    embedder does; its `waits` can be ended early.
    """

    def __init__(
        self,
        url: str,
        connection: Connection,
        retries: Retries,
        max_pixels: int,
        fingerprint: str | None,
    ) -> None:
        self.connection = connection
        self._url = url
        self._retries = retries
        self._max_pixels = max_pixels
        self._fingerprint = fingerprint
        self._metadata: ModelMetadata | None = None
        self._asking_metadata = threading.Lock()

    def metadata(self, waits: Waits) -> ModelMetadata:
        """Return what the endpoint says about the model; kept until it changes."""
        with self._asking_metadata:
            if self._metadata is None:
                found = self._asked_metadata(waits)
                self._check_fingerprint(found.fingerprint, self._fingerprint)
                self._metadata = found
            return self._metadata

    def check(self, waits: Waits) -> None:
        """Ask again whether the model is served, and is the one that it must be."""
        self._check_fingerprint(
            self._asked_metadata(waits).fingerprint, self._fingerprint
        )

    def description(self, waits: Waits) -> dict[str, Any]:
        """Return the description that the model has of itself."""
        text = self._ask(self.connection.describe, waits)
        try:
            return parse_description(text)
        except ValueError as error:
            raise unexpected(self._url, str(error)) from error

    def prepare(self, image: ImageSource, waits: Waits) -> bytes:
        """Return an image in the form that is sent: a PNG, reduced to the view.

        Raises:
            UnreadableImageError: The file is broken or missing.
            OSError, MemoryError: The machine cannot read it.
        """
        pixels = read_pixels(image, self._max_pixels)
        view = self.metadata(waits).view
        return encode_png(pixels if view is None else view.reduced(pixels))

    def embed(
        self,
        prepared: Iterable[bytes],
        batch_size: int,
        waits: Waits,
        model: ModelMetadata,
    ) -> np.ndarray:
        """Embed prepared images, at least one.

        Args:
            prepared: As `prepare` returned them.
            batch_size: Most images in one request, at least 1.
            waits: The waits between attempts.
            model: The model that all embeddings must come from.

        Returns:
            float32 `[count, dimension]`.
        """
        return self._embed(prepared, batch_size, waits, model)

    def embed_texts(
        self, texts: Sequence[str], batch_size: int, waits: Waits
    ) -> np.ndarray:
        """Embed texts.

        Raises:
            ValueError: The model has no text tower, or `texts` is one text.
        """
        if isinstance(texts, str):
            raise ValueError(
                f"`texts` must be a list of texts. Received: {shown(texts)}."
            )
        model = self.metadata(waits)
        if not model.has_text:
            raise ValueError(
                "`texts` must be embedded by a model with a text tower; the one at "
                f"{self._url} was exported without. Received: {shown(list(texts))}."
            )
        if not len(texts):
            return np.zeros((0, model.dimension or 0), np.float32)
        encoded = (text.encode() for text in texts)
        return self._embed(encoded, batch_size, waits, model, TEXT_SIGNATURE)

    def _embed(
        self,
        items: Iterable[bytes],
        batch_size: int,
        waits: Waits,
        model: ModelMetadata,
        signature: str = DEFAULT,
    ) -> np.ndarray:
        rows = [
            self._predict(part, waits, model, signature)
            for part in split(items, batch_size)
        ]
        widths = {len(row) for part in rows for row in part}
        if len(widths) > 1 or model.dimension not in (None, *widths):
            raise unexpected(
                self._url,
                f"embeddings of length {shown(sorted(widths))}, the model says "
                f"{model.dimension}",
            )
        return np.concatenate(rows)

    def _predict(
        self, encoded: list[bytes], waits: Waits, model: ModelMetadata, signature: str
    ) -> np.ndarray:
        name = TEXT_INPUT if signature == TEXT_SIGNATURE else model.input_name
        predictions, received = self._ask(
            lambda: self.connection.predict(name, encoded, signature), waits
        )
        if received is None and self._fingerprint is not None and model.is_described:
            # Asked after the embeddings: whatever replaced the model before them is
            # there now.
            received = self._described_fingerprint(waits)
        try:
            self._check_fingerprint(received, self._fingerprint or model.fingerprint)
        except EndpointError:
            with self._asking_metadata:
                self._metadata = None  # which is that of the model before
            raise
        try:
            return rows_of(predictions)
        except ValueError as error:
            raise unexpected(self._url, str(error)) from error

    def _asked_metadata(self, waits: Waits) -> ModelMetadata:
        reply, received = self._ask(self.connection.metadata, waits)
        try:
            found = parse_metadata(reply)
        except ValueError as error:
            raise unexpected(self._url, str(error)) from error
        if received is None and found.is_described:
            try:
                received = self._described_fingerprint(waits)
            except EndpointError as error:
                has_answered = error.failure in (Failure.REFUSED, Failure.UNEXPECTED)
                if self._fingerprint is not None or not has_answered:
                    raise
        return replace(found, fingerprint=received)

    def _described_fingerprint(self, waits: Waits) -> str | None:
        received = self.description(waits).get("fingerprint")
        return received if isinstance(received, str) else None

    def _check_fingerprint(self, received: str | None, wanted: str | None) -> None:
        """Check that an answer comes from the model that is wanted, if both are known.

        Raises:
            EndpointError: It comes from another.
        """
        if None in (received, wanted) or received == wanted:
            return
        raise EndpointError(
            f"The embedding endpoint {self._url} answers with another model: the "
            f"fingerprint of its graph and weights must be {wanted}. "
            f"Received: {received}. Embeddings of two models cannot be compared. Serve "
            "the former model, or begin again with this one.",
            failure=Failure.OTHER_MODEL,
        )

    def _ask(self, attempt: Callable[[], Any], waits: Waits) -> Any:
        return ask(attempt, self._retries, wait=waits.wait)


class Begun:
    """Knows the model with which a stream began, once a thread has asked for it."""

    def __init__(self, model: RemoteModel) -> None:
        self._remote = model
        self._lock = threading.Lock()
        self._model: ModelMetadata | None = None

    def model(self, waits: Waits) -> ModelMetadata:
        """Return the model; the first call asks for it."""
        with self._lock:
            if self._model is None:
                self._model = self._remote.metadata(waits)
            return self._model
