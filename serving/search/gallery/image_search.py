"""Search images: the model embeds the query, the index finds its neighbors."""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml.images import UnreadableImageError, read_image
from tfdml.index import Index, SearchResult, expanded_search
from tfdml.messages import shown
from tfdml.neighbors import combine_queries, first_dimensions

from ...client import EndpointError, ImageSource, ModelMetadata
from ...endpoint.options import ServerOptions
from ...storage.remote_image import RemoteImage, image_at
from ...web.bounded_work import TIMEOUT_SECONDS
from ...web.image_memory import ImageMemory
from .editing import GalleryEditor
from .gallery import Gallery, is_below
from .items import Hit, Item
from .listing import Listing
from .pair import Pair
from .query import (
    Address,
    Embedding,
    Examples,
    File,
    Member,
    Query,
    Source,
    Text,
    Upload,
)
from .stored_images import StoredImages
from .uploads import Crop, check_upload, memory_of


class _Client(Protocol):
    """The client of an endpoint, as far as `ImageSearch` uses it."""

    url: str

    def embed(self, images: Sequence[ImageSource]) -> NDArray[Any]: ...
    def embed_texts(self, texts: Sequence[str]) -> NDArray[Any]: ...
    def metadata(self) -> ModelMetadata: ...
    def check(self) -> None: ...
    def close(self) -> None: ...


class ImageSearch:
    """Find the images of a gallery that are nearest to a query.

    A context manager: at its end, index and client are closed. Any number of threads
    may use it at once. Model and index never change; for another pair, another search
    takes its place, and the client is closed once nobody uses the former one any more.

    Args:
        index: The index.
        gallery: Where its images are.
        client: Client of the endpoint with the model that embedded the gallery.
        name: Tells it from others.
        pair: The model and the index, where queries of a compatible model search the
            gallery of another one.
        max_pixels: Width times height above which an upload is refused before it is
            decoded.

    Attributes:
        pair: The model and the index that belong together.
        editor: Changes the gallery; None if nobody may.
        listing: All images of the gallery, in order.
        memory: Bounds the images that are decoded at one time; None for no bound.
        stage: Takes note of the parts of a search, each in its block: "decode",
            "embed" and "index".
        seen: Takes the embedding of each query, `[D]`.
        came: Takes it, too, if it is that of one image from outside the gallery.
    """

    def __init__(
        self,
        index: Index,
        gallery: Gallery,
        client: _Client,
        *,
        name: str = "index",
        pair: Pair | None = None,
        max_pixels: int = ServerOptions.max_pixels,
    ) -> None:
        self.index = index
        self.gallery = gallery
        self.client = client
        self.name = name
        self.pair = pair or Pair.of(index, gallery)
        self.editor: GalleryEditor | None = None
        self.max_pixels = max_pixels
        self.memory: ImageMemory | None = None
        self.stage: Callable[[str], contextlib.AbstractContextManager[None]] = (
            lambda name: contextlib.nullcontext()
        )
        self.seen: Callable[[NDArray[Any]], None] = lambda embedding: None
        self.came: Callable[[NDArray[Any]], None] = lambda embedding: None
        # That of the model of the index, which stays the same.
        self._has_text: bool | None = None
        folder = index.stats().details["folder"]
        self.stored = None if folder is None else StoredImages(folder)
        self.listing = Listing(index, functools.partial(items_of, index))
        weakref.finalize(self, client.close).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close index and client."""
        self.client.close()
        self.index.close()

    @property
    def has_text(self) -> bool:
        """Whether texts can be searched with; False while the endpoint cannot tell."""
        if self._has_text is None:
            try:
                self._has_text = self.client.metadata().has_text
            except EndpointError:
                return False
        return self._has_text

    # Searching

    def nearest(self, query: Query) -> list[Hit]:
        """Find the images nearest to a query, nearest first.

        If the gallery has a calibration and the first hit is not a match, the search
        has no answer: the other hits are not matches either.

        Args:
            query: The query; an `Address` must have been fetched.

        Raises:
            KeyError: The gallery has no such image.
            FileNotFoundError: The file of the image is gone.
            UnreadableImageError: The image is broken, or not of an accepted format.
            ValueError: The index has no such attribute, or the embedding is invalid.
            EndpointError: The endpoint did not answer.
        """
        left_out = set(query.exclude)
        match query.source:
            case Examples() as examples:
                members = [each for each in examples.all if isinstance(each, Member)]
                left_out.update(each.id for each in members)
                embedding: ArrayLike = self._combined(examples, query.crop)
            case source:
                if isinstance(source, Member):
                    left_out.add(source.id)
                embedding = self.embedding_of(source, query.crop)
        exclude: list[str] | None = sorted(left_out) or None
        rows = np.asarray(embedding)[np.newaxis]
        with self.stage("index"):
            found = self._found(rows, query, exclude)
        self.seen(rows[0])
        if query.is_from_outside:
            self.came(rows[0])
        ids = found.ids[0].tolist()
        items = {item.id: item for item in self.items(ids)}
        known = self.gallery.calibration if query.is_plain else None
        return [
            Hit(items[id_], score, known.is_match(score) if known else None)
            for id_, score in zip(ids, found.scores[0].tolist(), strict=True)
            if id_ in items
        ]

    def embedding_of(self, source: Source, crop: Crop | None = None) -> ArrayLike:
        """Return the embedding of one thing to search with, `[D]`.

        Raises:
            KeyError, FileNotFoundError, UnreadableImageError, EndpointError: As
                `nearest`.
            ValueError: It is an `Address`, which must be fetched first.
        """
        match source:
            case Embedding(values):
                return values
            case Member(id_):
                if crop is not None:
                    with _named(shown(id_)):
                        return self.embed(self.file(self.item(id_)), crop)
                row: NDArray[np.float32] = self.index.get([id_]).embeddings[0]
                return row
            case Upload(content, name):
                with _named(name):
                    check_upload(content, self.max_pixels)
                    return self.embed(content, crop)
            case File(image, name):
                with _named(name):
                    return self.embed(image, crop)
            case Text(text):
                if not self.has_text:
                    raise ValueError(
                        "`text` needs a model with a text tower; the one of this index "
                        f"was exported without. Received: {shown(text, 80)}."
                    )
                with self.stage("embed"):
                    found: NDArray[np.float32] = self.client.embed_texts([text])[0]
                return found
            case Address(url):
                raise ValueError(
                    f"`query` must be fetched first. Received: {shown(url)}."
                )

    def _combined(self, examples: Examples, crop: Crop | None) -> NDArray[np.float32]:
        if crop is not None and len(examples.positives) > 1:
            raise ValueError("`crop` must not be given with several images.")
        return combine_queries(
            self._rows_of(examples.positives, crop),
            self._rows_of(examples.negatives) if examples.negatives else None,
            negative_weight=examples.negative_weight,
            metric=self.index.metric,
        )[0]

    def _rows_of(
        self, sources: Sequence[Source], crop: Crop | None = None
    ) -> NDArray[Any]:
        """Return the embeddings of several images, as long as those of the index."""
        dimension, metric = self.index.dimension, self.index.metric
        rows = [np.asarray(self.embedding_of(source, crop)) for source in sources]
        return np.stack(
            [
                row
                if len(row) == dimension
                else first_dimensions(row[np.newaxis], dimension, metric=metric)[0]
                for row in rows
            ]
        )

    def _found(
        self, rows: NDArray[Any], query: Query, exclude: list[str] | None
    ) -> SearchResult:
        if not query.expand:
            return self.index.search(rows, query.k, where=query.where, exclude=exclude)
        return expanded_search(
            self.index,
            rows,
            query.k,
            neighbors=query.expand,
            where=query.where,
            exclude=exclude,
        )

    def embed(
        self, image: bytes | Path | RemoteImage, crop: Crop | None = None
    ) -> NDArray[np.float32]:
        """Embed an image, or a region of it; it is decoded once.

        Returns:
            float32 `[D]`.

        Raises:
            UnreadableImageError: It is broken.
            FileNotFoundError: There is no such file.
            EndpointError: The endpoint did not answer.
        """
        # A file is the owner's, who allowed its size when it was indexed.
        content, most = (
            (image, self.max_pixels)
            if isinstance(image, bytes)
            else (image.read_bytes(), None)
        )
        with self.decoding(image if isinstance(image, Path) else content):
            with self.stage("decode"):
                try:
                    pixels = read_image(content, max_pixels=most)
                except UnreadableImageError as error:
                    reason = str(error).removeprefix("image bytes: ")
                    raise UnreadableImageError(f"This file {reason}") from error
                if crop is not None:
                    pixels = crop.cut(pixels)
                view = self.client.metadata().view
                if view is not None:
                    pixels = view.reduced(pixels).copy()
            if view is None:
                return self._embedded(pixels)
        # What is left is small, so the endpoint may take its time.
        return self._embedded(pixels)

    def _embedded(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        with self.stage("embed"):
            embedding: NDArray[np.float32] = self.client.embed([pixels])[0]
        return embedding

    @contextlib.contextmanager
    def decoding(self, image: bytes | Path) -> Iterator[None]:
        """Hold the memory that an image takes while it is decoded; wait for it first.

        Args:
            image: Path of its file, or the encoded content.

        Raises:
            StatusError: It takes more than there is, or others took it for too long.
        """
        if self.memory is None:
            yield
            return
        size = memory_of(image)
        if not isinstance(image, bytes):  # the owner's; it takes all there is
            size = min(size, self.memory.most_bytes)
        with self.memory.hold(size, TIMEOUT_SECONDS):
            yield

    # The gallery

    def item(self, id_: str) -> Item:
        """Return an image by its id.

        Raises:
            KeyError: There is no such image.
        """
        try:
            (attributes,) = self.index.get([id_]).attributes
        except ValueError as error:  # not an id of any index, such as one with a NUL
            raise KeyError(str(error)) from error
        return Item(id_, attributes)

    def items(self, ids: Sequence[str]) -> list[Item]:
        """Return images by their ids; those that were just removed are left out."""
        return items_of(self.index, ids)

    def file(self, item: Item) -> Path | RemoteImage:
        """Return the file of an image.

        Raises:
            FileNotFoundError: It has none: its id is not a path below the root.
        """
        return file_of(item, self.gallery, self.stored)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the one of several images that cannot be read."""
    try:
        yield
    except UnreadableImageError as error:
        if not name:
            raise
        raise UnreadableImageError(f"{name}: {error}") from error
    except FileNotFoundError as error:
        if not name:
            raise
        raise FileNotFoundError(f"The file of {name} is gone.") from error


def items_of(index: Index, ids: Sequence[str]) -> list[Item]:
    """Return images of an index; those that were just removed are left out."""
    try:
        attributes = index.get(ids).attributes
    except KeyError:
        return items_of(index, [id_ for id_ in ids if id_ in index])
    return [Item(id_, own) for id_, own in zip(ids, attributes, strict=True)]


def file_of(
    item: Item, gallery: Gallery, stored: StoredImages | None
) -> Path | RemoteImage:
    """Return the file of an image of a gallery, here or in the cloud.

    Raises:
        FileNotFoundError: It has none: its id is not a path below the root.
    """
    if item.stored is None and is_below(item.id):
        return image_at(gallery.root, item.id)
    if item.stored is not None and stored is not None:
        # A ValueError comes from an index that somebody else made.
        with contextlib.suppress(ValueError):
            return stored.path(item.stored)
    raise FileNotFoundError(f"The image {shown(item.id)} has no file.")
