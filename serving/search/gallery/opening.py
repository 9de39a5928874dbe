"""Open the index of a gallery, with the endpoint or the model that embeds queries."""

from dataclasses import replace
from os import PathLike
from pathlib import Path

from ...client import Credentials, EndpointClient, Retries
from ...storage.remote_image import place_of
from .gallery import Gallery, load_gallery
from .image_search import ImageSearch
from .local_model import LocalModel
from .model_check import client_of_index
from .pair import Pair, queried

# Somebody waits for the answer: less than the client's own, which are for batches.
_TIMEOUT_SECONDS = 20.0
_RETRIES = Retries(count=2, seconds=5.0)


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
        index_folder: Folder that `tfdml index build` wrote.
        endpoint_url: Address of the model, as in `EndpointClient`.
        images: Folder of the images, or its address in the cloud, if they were moved
            since they were indexed.
        credentials: What the endpoint asks of its clients.
        name: Tells the search from others; by default the name of the folder.

    Returns:
        The search; its model has been checked.

    Raises:
        FileNotFoundError: There is no index, or the images are gone.
        ValueError: The index is damaged or was built with another model.
        EndpointError: The endpoint did not answer.
    """
    index, gallery = load_gallery(index_folder)
    gallery = _at(gallery, images)
    pair = queried(index_folder, Pair.of(index, gallery))
    if pair.is_bridged:
        # The threshold is one of queries by the old model.
        gallery = replace(gallery, model_version=pair.version, calibration=None)
    name = Path(index_folder).resolve().name if name is None else name
    with EndpointClient(
        endpoint_url,
        credentials=credentials,
        timeout=_TIMEOUT_SECONDS,
        retries=_RETRIES,
    ) as client:
        # A version that is fixed: when the endpoint switches to a newer one, the index
        # does not fit it.
        own = client_of_index(client, ImageSearch(index, gallery, client, pair=pair))
        return ImageSearch(index, gallery, own, name=name, pair=pair)


def open_local_search(
    index_folder: str | PathLike[str],
    model: str | PathLike[str],
    *,
    images: str | PathLike[str] | None = None,
) -> ImageSearch:
    """Open an index folder with the model that built it, in this process.

    Args:
        index_folder: Folder that `tfdml index build` wrote.
        model: As in `LocalModel`.
        images: Folder of the images, or its address in the cloud, if they were moved
            since they were indexed.

    Returns:
        The search. Its model has the fingerprint of the one that built the index.

    Raises:
        FileNotFoundError: There is no index, or no model.
        ValueError: The index is damaged or was built with another model.
    """
    client = LocalModel(model)
    index, gallery = load_gallery(index_folder, model_fingerprint=client.fingerprint)
    name = Path(index_folder).resolve().name
    return ImageSearch(index, _at(gallery, images), client, name=name)


def _at(gallery: Gallery, images: str | PathLike[str] | None) -> Gallery:
    return gallery if images is None else replace(gallery, root=place_of(images))
