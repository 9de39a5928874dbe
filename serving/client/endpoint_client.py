"""Embed images through the embedding endpoint.

The client speaks the REST and the gRPC protocol of TF Serving, so the endpoint may be
`tfdml serve` or the official `tensorflow/serving`. Each image is brought
into the form that training saw (upright, on white, as small as the view of the model
allows) before it is sent: the exported graph cannot see an EXIF orientation.
"""

import contextlib
import functools
from collections.abc import Callable, Generator, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from tfdml.images import UnreadableImageError, find_images
from tfdml.messages import shown
from tfdml.progress import Progress

from .address import at_version, parse_address
from .credentials import Credentials
from .images import (
    FolderEmbeddings,
    ImageSource,
    Unreadable,
    check_at_least_1,
    check_is_list,
    path_below,
)
from .metadata import ModelMetadata
from .remote_model import Begun, Connection, RemoteModel
from .rest import RestConnection
from .retries import EndpointError, Failure, Retries, Waits
from .stream import in_order


class EndpointClient:
    """Embeds images through a served model. May be used from several threads.

    A request is made again, after a growing wait, where the endpoint is overloaded or
    not ready (503, 429, UNAVAILABLE, RESOURCE_EXHAUSTED, CANCELLED) or the connection
    failed before anything was answered; never where it was refused for what is in it,
    and not after a timeout.

    Example:
        >>> with EndpointClient("http://127.0.0.1:8501/v1/models/emoji") as client:
        ...     embeddings = client.embed(["cat.jpg", "dog.png"])

    Args:
        url: Address of the model: `http://127.0.0.1:8501/v1/models/emoji` for REST,
            `grpc://127.0.0.1:8500/emoji` for gRPC, https or grpcs for an encrypted
            connection. With `/versions/N` or `/labels/LABEL` at its end, that version;
            else the endpoint's latest.
        timeout: Seconds to wait for one answer, above 0.
        batch_size: Most images in one request, at least 1.
        max_pixels: Width times height above which an image is refused.
        retries: How often and how long a request is made again.
        credentials: Token and certificates, where the endpoint asks for them.
        fingerprint: SHA-256 of the graph and weights that the model must have, as
            `metadata` returns it and an index holds it; every answer is checked where
            the endpoint tells it. None for any model.
        gzip_requests: Compress what is sent, REST only. It takes off what base64 adds,
            a quarter of the body, and costs both sides processor time, so that only a
            slow network is worth it. gRPC needs no base64 in the first place.

    Attributes:
        url: The address.
        names_version: Whether the address names a version or a label.

    Raises:
        ValueError: An argument is out of its range, or `url` is not the address of
            a model.
        OSError: A file of the credentials cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 30.0,
        batch_size: int = 32,
        max_pixels: int = 100_000_000,
        retries: Retries | None = None,
        credentials: Credentials | None = None,
        fingerprint: str | None = None,
        gzip_requests: bool = False,
    ) -> None:
        address = parse_address(url)
        self.url = address.url
        self.names_version = address.version is not None or address.label is not None
        if not timeout > 0:
            raise ValueError(f"`timeout` must be above 0. Received: timeout={timeout}.")
        check_at_least_1("batch_size", batch_size)
        if gzip_requests and address.is_grpc:
            raise ValueError(
                f"`gzip_requests` is for REST alone. Received: url={shown(url)}."
            )
        self._timeout = timeout
        self._batch_size = batch_size
        self._max_pixels = max_pixels
        self._retries = Retries() if retries is None else retries
        self._credentials = Credentials() if credentials is None else credentials
        self._credentials.check(address)
        self._fingerprint = fingerprint
        self._gzip_requests = gzip_requests
        self._waits = Waits()
        connection: Connection
        if address.is_grpc:
            from .rpc import GrpcConnection

            connection = GrpcConnection(
                address, timeout=timeout, credentials=self._credentials
            )
        else:
            connection = RestConnection(
                address,
                timeout=timeout,
                credentials=self._credentials,
                gzip_requests=gzip_requests,
            )
        self._model = RemoteModel(
            self.url, connection, self._retries, max_pixels, fingerprint
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Whoever waits to ask again gets the last error."""
        self._waits.end()
        self._model.connection.close()

    def at_version(self, version: int, *, fingerprint: str | None = None) -> Self:
        """Return a client of one version of the same model, with the same settings.

        Args:
            version: Number of the version.
            fingerprint: As for the client itself; that of this client is not taken
                over, because it belongs to another version.
        """
        return type(self)(
            at_version(self.url, version),
            timeout=self._timeout,
            batch_size=self._batch_size,
            max_pixels=self._max_pixels,
            retries=self._retries,
            credentials=self._credentials,
            fingerprint=fingerprint,
            gzip_requests=self._gzip_requests,
        )

    def metadata(self) -> ModelMetadata:
        """Return what the endpoint says about its model; kept until that changes.

        Raises:
            EndpointError: The endpoint did not answer, or answered something else.
        """
        return self._model.metadata(self._waits)

    def check(self) -> None:
        """Ask the endpoint whether it serves the model now.

        Raises:
            EndpointError: It does not, or serves one with another fingerprint.
        """
        self._model.check(self._waits)

    def description(self) -> dict[str, Any] | None:
        """Return the description that the model has of itself, see docs/export.md.

        Returns:
            Its members; None for a model without a description.

        Raises:
            EndpointError: The endpoint did not answer, or answered something else.
        """
        if not self.metadata().is_described:
            return None
        return self._model.description(self._waits)

    def embed(self, images: Sequence[ImageSource]) -> np.ndarray:
        """Embed images; all embeddings come from one model.

        Args:
            images: Paths of image files, their encoded bytes, or their
                pixels, uint8 `[height, width, 3]`, upright.

        Returns:
            float32 `[len(images), dimension]`; `[0, dimension]` for no images.

        Raises:
            UnreadableImageError: One is not an image; the message names it.
            FileNotFoundError: There is no such file.
            EndpointError: The endpoint did not answer, or not with embeddings.
        """
        check_is_list(images)
        try:
            return self._embed_by_one_model(images)
        except EndpointError as error:
            is_fixed = self._fingerprint is not None
            if is_fixed or error.failure is not Failure.OTHER_MODEL:
                raise
        # A new version came up meanwhile: that one embeds all of them.
        return self._embed_by_one_model(images)

    def _embed_by_one_model(self, images: Sequence[ImageSource]) -> np.ndarray:
        model = self.metadata()
        if not len(images):
            return np.zeros((0, model.dimension or 0), np.float32)
        waits = self._waits
        prepared = (self._model.prepare(image, waits) for image in images)
        return self._model.embed(prepared, self._batch_size, waits, model)

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts by the text tower of the model, to search among images.

        Args:
            texts: The texts.

        Returns:
            float32 `[len(texts), dimension]`, comparable with what `embed` returns.

        Raises:
            ValueError: The model has no text tower, or there is no list of texts.
            EndpointError: The endpoint did not answer, or not with embeddings.
        """
        return self._model.embed_texts(texts, self._batch_size, self._waits)

    def embed_stream(
        self,
        images: Iterable[ImageSource],
        *,
        batch_size: int | None = None,
        concurrency: int = 4,
        on_unreadable: Callable[[ImageSource, Unreadable], object] | None = None,
    ) -> Generator[tuple[ImageSource, np.ndarray]]:
        """Embed any number of images, with several requests under way at one time.

        All embeddings come from one model: a stream ends with an error where the
        endpoint tells that another one answers. Images are read and prepared in the
        threads that send them. Of a long list no
        more is in memory than `concurrency` batches of prepared images. A stream that
        is closed or fails waits for the requests that are under way, but makes none of
        them again.

        Args:
            images: Paths of image files, their encoded bytes, or their
                pixels, uint8 `[height, width, 3]`, upright; taken as they are
                needed.
            batch_size: Most images in one request, at least 1; by default that of
                the client.
            concurrency: Requests under way at one time, at least 1. It is the number
                of threads that prepare images, too.
            on_unreadable: Called with an image that cannot be read, and the reason;
                it is left out then. By default it is raised when its turn comes.

        Yields:
            Each image as it was given and its embedding, float32 `[dimension]`, in
            the order of `images`.

        Raises:
            UnreadableImageError: An image is broken or missing.
            OSError, MemoryError: The machine cannot read it; none is left out for that.
            EndpointError: The endpoint did not answer, or not with embeddings.
            ValueError: An argument is out of range.
        """
        check_is_list(images)
        batch_size = self._batch_size if batch_size is None else batch_size
        check_at_least_1("batch_size", batch_size)
        check_at_least_1("concurrency", concurrency)
        waits = Waits(self._waits)
        batches = in_order(
            functools.partial(
                self._embed_readable,
                batch_size=batch_size,
                waits=waits,
                begun=Begun(self._model),
                is_lenient=on_unreadable is not None,
            ),
            images,
            batch_size=batch_size,
            concurrency=concurrency,
            abandon=waits.end,
        )
        return self._flattened(batches, on_unreadable)

    def embed_folder(
        self,
        folder: str | PathLike[str],
        *,
        batch_size: int | None = None,
        concurrency: int = 4,
        skip_unreadable: bool = False,
        progress: bool = True,
    ) -> FolderEmbeddings:
        """Embed all images below a folder.

        Args:
            folder: Folder with images, at any depth.
            batch_size: As in `embed_stream`.
            concurrency: As in `embed_stream`.
            skip_unreadable: Leave images out that cannot be read, and list them. By
                default the first one ends it.
            progress: Show the progress on the standard error.

        Returns:
            Paths, embeddings, and what was left out.

        Raises:
            UnreadableImageError, OSError, MemoryError: As `embed_stream`.
            NotADirectoryError: There is no such folder.
            EndpointError: The endpoint did not answer, or not with embeddings.
            ValueError: There are no images, or an argument is out of range.
        """
        root = Path(folder)
        listing = find_images(root, skip_unreadable=skip_unreadable)
        paths = listing.paths
        dimension = self.metadata().dimension
        skipped: dict[str, str] = {}
        rows: dict[str, np.ndarray] = {}
        with Progress("embedding", len(paths), shown=progress) as bar:

            def skip(image: ImageSource, reason: Unreadable) -> None:
                skipped[path_below(root, image)] = str(reason)
                bar.update()

            for image, row in self.embed_stream(
                (root / path for path in paths),
                batch_size=batch_size,
                concurrency=concurrency,
                on_unreadable=skip if skip_unreadable else None,
            ):
                rows[path_below(root, image)] = row
                bar.update()
        embeddings = (
            np.stack(list(rows.values()))
            if rows
            else np.zeros((0, dimension or 0), np.float32)
        )
        notes = tuple(listing.notes())
        return FolderEmbeddings(tuple(rows), embeddings, skipped, notes)

    def _flattened(
        self,
        batches: Generator[list[tuple[ImageSource, np.ndarray | Unreadable]]],
        on_unreadable: Callable[[ImageSource, Unreadable], object] | None,
    ) -> Generator[tuple[ImageSource, np.ndarray]]:
        with contextlib.closing(batches):
            for batch in batches:
                for image, result in batch:
                    if isinstance(result, np.ndarray):
                        yield image, result
                    elif on_unreadable is None:
                        raise result
                    else:
                        on_unreadable(image, result)

    def _embed_readable(
        self,
        images: list[ImageSource],
        *,
        batch_size: int,
        waits: Waits,
        begun: Begun,
        is_lenient: bool,
    ) -> list[tuple[ImageSource, np.ndarray | Unreadable]]:
        """Embed a batch; an image that cannot be read has the reason in its place.

        If that will end it all, the images behind it are not sent.
        """
        results: list[Any] = []
        prepared: list[bytes] = []
        for image in images:
            try:
                prepared.append(self._model.prepare(image, waits))
                results.append(None)
            except UnreadableImageError as error:
                results.append(error)
                if not is_lenient:
                    break
        rows: Iterable[np.ndarray] = ()
        if prepared:
            model = begun.model(waits)
            rows = self._model.embed(prepared, batch_size, waits, model)
        rows = iter(rows)
        return [
            (image, next(rows) if result is None else result)
            for image, result in zip(images, results, strict=False)
        ]
