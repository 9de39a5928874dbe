"""Image search: a picture goes to the endpoint, its embedding to the index."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from serving.client import (
    Credentials,
    EndpointClient,
    ImageSource,
    ModelMetadata,
    Retries,
)
from serving.endpoint.options import ServerOptions
from serving.search.gallery.gallery import Gallery, is_below, load_gallery
from serving.search.gallery.items import Hit, Item
from serving.search.gallery.listing import Listing
from serving.search.gallery.model_check import check_model
from serving.search.gallery.stored_images import StoredPictures
from serving.search.gallery.uploads import Crop, check_picture, cut, told_of_file
from tfdml.images import UnreadableImageError
from tfdml.index import ScannIndex, Where

# Somebody waits for the answer: sooner than the client's own, which are for batches.
_TIMEOUT_SECONDS = 20.0
_RETRIES = Retries(count=2, seconds=5.0)


class Client(Protocol):
    """What an `ImageSearch` asks of the client of an endpoint."""

    url: str

    def embed(self, images: Sequence[ImageSource]) -> NDArray[Any]:
        """Return one embedding per image."""

    def metadata(self) -> ModelMetadata:
        """Return what the endpoint says of its model."""

    def close(self) -> None:
        """Close its connections."""


class ImageSearch:
    """Finds the pictures of a gallery that are nearest to a picture.

    A context manager: at its end, index and client are closed. Any number of threads
    may use it at once.

    Args:
        index: The index.
        gallery: Where its pictures are.
        client: Client of the endpoint with the model that embedded the gallery.
        name: Tells it from others.
        max_pixels: Width times height above which a query is refused before it is
            decoded.

    Attributes:
        listing: All pictures of the gallery, in order.
    """

    def __init__(
        self,
        index: ScannIndex,
        gallery: Gallery,
        client: Client,
        *,
        name: str = "index",
        max_pixels: int = ServerOptions.max_pixels,
    ) -> None:
        self.index = index
        self.gallery = gallery
        self.client = client
        self.name = name
        self.max_pixels = max_pixels
        folder = index.stats().details["folder"]
        self.stored = None if folder is None else StoredPictures(folder)
        self.listing = Listing(index, self.items)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.client.close()
        self.index.close()

    # Searching

    def nearest(
        self,
        picture: bytes,
        k: int,
        *,
        crop: Crop | None = None,
        where: Where | None = None,
        exclude: Sequence[str] = (),
    ) -> list[Hit]:
        """Find the pictures nearest to an encoded picture, nearest first.

        Where the gallery has a calibration and the first hit is no match, the search
        has no answer: the others are no matches either.

        Args:
            picture: Encoded bytes, from anybody.
            k: How many, at least 1. Fewer come where fewer may be returned.
            crop: Which part of the picture to search with; all of it by default.
            where: Only pictures whose attributes are as stated, see
                `tfdml.index`.
            exclude: Ids of pictures to leave out.

        Raises:
            UnreadableImageError: The bytes are no picture of a kind that is taken.
            ValueError: The index has no such attribute.
            EndpointError: The endpoint did not answer.
        """
        check_picture(picture, self.max_pixels)
        embedding = self.embed(picture, crop)
        return self.nearest_to(embedding, k, where=where, exclude=exclude)

    def similar(
        self,
        id_: str,
        k: int,
        *,
        crop: Crop | None = None,
        where: Where | None = None,
        exclude: Sequence[str] = (),
    ) -> list[Hit]:
        """Find the pictures nearest to one of the gallery, itself left out.

        Only with a crop is the picture read, and the endpoint asked.

        Args:
            id_: Its id.
            k: As in `nearest`, as of all that follow.
            crop: Which part of the picture to search with.
            where: A filter.
            exclude: Ids of pictures to leave out.

        Raises:
            KeyError: There is no such picture.
            UnreadableImageError: Its file is broken.
            FileNotFoundError: Its file is gone.
            ValueError: The index has no such attribute.
            EndpointError: The endpoint did not answer.
        """
        embedding = self.index.get([id_]).embeddings[0]
        if crop is not None:
            embedding = self.embed(self.file(self.item(id_)).read_bytes(), crop)
        return self.nearest_to(embedding, k, where=where, exclude=[*exclude, id_])

    def nearest_to(
        self,
        embedding: ArrayLike,
        k: int,
        *,
        where: Where | None = None,
        exclude: Sequence[str] = (),
    ) -> list[Hit]:
        """Find the pictures nearest to an embedding `[D]`; see `nearest`."""
        query = np.asarray(embedding)[np.newaxis]
        left_out = sorted(set(exclude)) or None
        found = self.index.search(query, k, where=where, exclude=left_out)
        items = {item.id: item for item in self.items(found.ids[0].tolist())}
        known = self.gallery.calibration
        return [
            Hit(items[id_], score, known.is_match(score) if known else None)
            for id_, score in zip(
                found.ids[0].tolist(), found.scores[0].tolist(), strict=True
            )
            if id_ in items
        ]

    def embed(self, picture: bytes, crop: Crop | None = None) -> NDArray[np.float32]:
        """Embed an encoded picture, or a part of it.

        Returns:
            float32 `[D]`.

        Raises:
            UnreadableImageError: It is broken.
            EndpointError: The endpoint did not answer.
        """
        if crop is not None:
            picture = cut(picture, crop, self.max_pixels)
        try:
            embedding: NDArray[np.float32] = self.client.embed([picture])[0]
        except UnreadableImageError as error:
            raise told_of_file(error) from error
        return embedding

    # The gallery

    def item(self, id_: str) -> Item:
        """Return a picture by its id.

        Raises:
            KeyError: There is no such picture.
        """
        try:
            (attributes,) = self.index.get([id_]).attributes
        except ValueError as error:  # no id of any index, such as one with a NUL
            raise KeyError(str(error)) from error
        return Item(id_, attributes)

    def items(self, ids: Sequence[str]) -> list[Item]:
        """Return pictures by their ids; those that were just removed are left out."""
        try:
            attributes = self.index.get(ids).attributes
        except KeyError:
            return self.items([id_ for id_ in ids if id_ in self.index])
        return [Item(id_, own) for id_, own in zip(ids, attributes, strict=True)]

    def file(self, item: Item) -> Path:
        """Return the file of a picture.

        Raises:
            FileNotFoundError: It has none: its id is no path below the root.
        """
        if item.stored is None and is_below(item.id):
            return self.gallery.root / item.id
        if item.stored is not None and self.stored is not None:
            # A ValueError of an index that somebody else made.
            with contextlib.suppress(ValueError):
                return self.stored.path(item.stored)
        raise FileNotFoundError(f"There is no file of the picture {item.id!r}.")


def open_search(
    index_folder: str | PathLike[str],
    endpoint_url: str,
    *,
    images: str | PathLike[str] | None = None,
    credentials: Credentials | None = None,
    name: str | None = None,
) -> ImageSearch:
    """Open an index folder and connect it to the endpoint.

    Args:
        index_folder: Folder that `python -m serving index build` wrote.
        endpoint_url: Address of the model, as in `EndpointClient`.
        images: Folder of the pictures, where it is no longer the one indexed.
        credentials: What the endpoint asks of its clients.
        name: Tells the search from others; by default the name of the folder.

    Returns:
        The search, its model checked.

    Raises:
        FileNotFoundError: There is no index or the pictures are gone.
        ValueError: The index is damaged or of another model than the endpoint.
        EndpointError: The endpoint did not answer.
    """
    index, gallery = load_gallery(index_folder)
    if images is not None:
        gallery = replace(gallery, root=Path(images).resolve())
    name = Path(index_folder).resolve().name if name is None else name
    with EndpointClient(
        endpoint_url,
        credentials=credentials,
        timeout=_TIMEOUT_SECONDS,
        retries=_RETRIES,
    ) as client:
        check_model(ImageSearch(index, gallery, client))
        # When the endpoint goes over to a newer version, the index does not fit it:
        # a clear error is better than near pictures that are not.
        own = client.at_version(gallery.model_version)
        return ImageSearch(index, gallery, own, name=name)
