"""Find the version at an endpoint that built an index, and see that it stays the same.

A name and a number may come to stand for other weights. So the fingerprint of graph and
weights is compared, which an exported model and our endpoint tell; the client compares
it with each answer. A model without a fingerprint has to embed images of the gallery
again, as they are in the index.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfdml.images import read_image
from tfdml.messages import shown

from ...client import (
    EndpointClient,
    EndpointError,
    Failure,
    ImageSource,
    ModelMetadata,
)
from ...storage.remote_image import content_of
from .image_search import ImageSearch
from .items import Item

_PROBES = 5
_MOST_DIFFERENCE = 0.01
_LEAST_DIFFERENCE = 1e-4
_OF_TYPICAL = 0.1
# Of one image embedded twice, in another batch or on another machine.
_NOISE = 2e-5
_NOT_SERVED = (404, "NOT_FOUND")


class MismatchError(ValueError):
    """The endpoint serves another model than the one that built the index."""


def client_of_index(client: EndpointClient, search: ImageSearch) -> "CheckedClient":
    """Return a client of the version that built an index.

    Args:
        client: Client of the model at an endpoint. Where its address names no version,
            the one that built the index is taken, though a newer one may be served.
        search: Search over the index; its own client is not used.

    Returns:
        A client, to be closed by the caller, that embeds by that model alone.

    Raises:
        MismatchError: The endpoint serves another model.
        FileNotFoundError: The images of the gallery are gone.
        EndpointError: The endpoint did not answer.
    """
    own = _fitting(client, search)
    try:
        return CheckedClient(own, _checked_probes(own, search))
    except BaseException:
        own.close()
        raise


class CheckedClient:
    """A client of an endpoint whose embeddings come from the model of an index.

    Args:
        client: Checks fingerprints, where the endpoint tells them.
        probes: Where no fingerprint is known, images that are embedded beside those
            that are asked for, and must be embedded as before; may be empty.

    Attributes:
        url: Address of the version.
        client: The client that embeds.
    """

    def __init__(self, client: EndpointClient, probes: "Probes") -> None:
        self.url = client.url
        self.client = client
        self._probes = probes

    def metadata(self) -> ModelMetadata:
        """Return what the endpoint says about the model."""
        return self.client.metadata()

    def embed(self, images: Sequence[ImageSource]) -> NDArray[Any]:
        """Embed images.

        Raises:
            EndpointError: As `EndpointClient.embed`; also where another model answers.
        """
        rows = self.client.embed([*images, *self._probes.images])
        expected = self._probes.rows
        if len(expected):
            differences = _differences(rows[len(images) :], expected)
            if not differences.max() <= _NOISE:
                raise EndpointError(
                    f"{self.url} no longer serves the model that built the index: "
                    "images of the gallery are embedded otherwise than before. Serve "
                    "that model again, or build the index again.",
                    failure=Failure.OTHER_MODEL,
                )
        return rows[: len(images)]

    def embed_texts(self, texts: Sequence[str]) -> NDArray[Any]:
        """Embed texts by the model's text tower.

        Raises:
            ValueError: It has none.
            EndpointError: As `embed`.
        """
        rows = self.client.embed_texts(texts)
        if self._probes.images:
            self.embed([])
        return rows

    def check(self) -> None:
        """Check that the endpoint still serves the model.

        Raises:
            EndpointError: It serves another one, or did not answer.
        """
        if self._probes.images:
            self.embed([])
        else:
            self.client.check()

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


class Probes(NamedTuple):
    """Images of a gallery, uint8 `[H, W, 3]`, and their embeddings `[N, D]`."""

    images: list[NDArray[np.uint8]]
    rows: NDArray[np.float32]


def _fitting(client: EndpointClient, search: ImageSearch) -> EndpointClient:
    """Return a client of the version that the index needs; may be of another number."""
    served = client.metadata()
    stored = search.gallery
    if not client.names_version and served.version not in (None, stored.model_version):
        own = client.at_version(stored.model_version)
        try:
            older = own.metadata()
        except EndpointError as error:
            own.close()
            if error.status not in _NOT_SERVED:
                raise
        else:
            own.close()
            return _checked(client, search, older)
    return _checked(client, search, served)


def _checked(
    client: EndpointClient, search: ImageSearch, served: ModelMetadata
) -> EndpointClient:
    """Return a client of a served version if it is the one of the index."""
    stored, index = search.gallery, search.index
    needed = search.pair.fingerprint
    version = stored.model_version if served.version is None else served.version
    own = client.at_version(version, fingerprint=served.fingerprint)
    try:
        dimension = index.embedding_dimension
        if served.dimension not in (None, dimension):
            raise MismatchError(
                f"The index was built of embeddings of dimension {dimension}, the "
                f"model at {client.url} returns {served.dimension}. "
                f"{_remedy(stored, served)}"
            )
        if needed and served.fingerprint is not None:
            if needed not in (served.fingerprint, _embedder_of(own)):
                raise MismatchError(
                    f"The index was built with version {stored.model_version} of model "
                    f"{shown(stored.model_name)} with the fingerprint {needed[:16]}, "
                    f"{client.url} serves version {version} with the fingerprint "
                    f"{served.fingerprint[:16]}. {_remedy(stored, served)}"
                )
        elif version != stored.model_version or search.pair.is_bridged:
            raise MismatchError(
                f"The index was built with version {stored.model_version} of model "
                f"{shown(stored.model_name)}, {client.url} serves version {version}. "
                f"{_remedy(stored, served)}"
            )
    except BaseException:
        own.close()
        raise
    return own


def _embedder_of(client: EndpointClient) -> str | None:
    """Return the fingerprint of the embedder inside a model that also searches."""
    description = client.description() or {}
    about = description.get("search")
    return about.get("embedder_fingerprint") if isinstance(about, dict) else None


def _remedy(stored: Any, served: ModelMetadata) -> str:
    if served.version in (None, stored.model_version):
        return "Serve that model, or build the index again with the one served."
    return (
        f"If version {stored.model_version} is served too, name it at the end of the "
        f"address: /versions/{stored.model_version}. Else serve it, or build the index "
        "again with the version served."
    )


def _checked_probes(client: EndpointClient, search: ImageSearch) -> Probes:
    """Check that images of the gallery find themselves.

    Returns:
        The images, where nothing but them can tell whether the model stays the same.
    """
    if search.pair.is_bridged:  # whose fingerprint is told, and was compared
        return Probes([], np.zeros((0, search.index.dimension), np.float32))
    files = {item.id: search.file(item) for item in _probe_items(search)}
    there = {id_: file for id_, file in files.items() if file.is_file()}
    if files and not there:
        raise FileNotFoundError(
            f"The images of the gallery are not in {shown(str(search.gallery.root))}. "
            "Name the folder where they are now with `--images`."
        )
    if not there:
        return Probes([], np.zeros((0, search.index.dimension), np.float32))
    model = client.metadata()
    images = [read_image(content_of(file)) for file in there.values()]
    if model.view is not None:
        images = [model.view.reduced(image) for image in images]
    rows = client.embed(images)
    known = search.index.get(list(there)).embeddings
    # The median, because some images may have been replaced since.
    found = float(np.median(_differences(rows, known)))
    if not found <= _most_difference(known):
        raise MismatchError(
            f"The model at {client.url} is not the one that built the index: images of "
            f"the gallery do not find themselves (similarity {1 - found:.4f}, not 1). "
            "Serve that model, or build the index again with the one served."
        )
    if model.fingerprint is not None:
        images, rows = [], rows[:0]
    return Probes(images, rows)


def _differences(rows: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return 1 - cosine of rows with those in the index, which may have been cut."""
    rows = rows[:, : known.shape[1]]
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(known, axis=1)
    return 1 - np.einsum("nd,nd->n", rows, known) / lengths


def _most_difference(known: np.ndarray) -> float:
    """Return how much an embedding may differ from the same image's in the index.

    All embeddings of a weak model are alike, so that those of another model may seem
    near: what counts is how much different images differ.
    """
    unit = known / np.linalg.norm(known, axis=1, keepdims=True)
    others = 1 - (unit @ unit.T)[~np.eye(len(unit), dtype=bool)]
    if not len(others):
        return _MOST_DIFFERENCE
    typical = _OF_TYPICAL * float(np.median(others))
    return min(_MOST_DIFFERENCE, max(_LEAST_DIFFERENCE, typical))


def _probe_items(search: ImageSearch) -> list[Item]:
    ids = search.listing.ids()
    last = len(ids) - 1
    rows = sorted({round(last * part / (_PROBES - 1)) for part in range(_PROBES)})
    return search.items(ids[rows].tolist()) if len(ids) else []
