"""Image search: a picture goes to the endpoint, its embedding to the index."""

import io
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Self

import numpy as np
from PIL import Image

from serving.client import Credentials, EndpointClient
from serving.search.gallery import Gallery, load_gallery
from tfdml.images import UnreadableImageError, warnings_ignored
from tfdml.index import ScannIndex

__all__ = ["Hit", "ImageSearch", "MismatchError", "open_search"]

Image.init()
# What strangers may send. Pillow opens more, some by starting other programs; AVIF is
# not in every build of it.
_FORMATS = [
    name
    for name in ("AVIF", "BMP", "GIF", "ICO", "JPEG", "JPEG2000", "PNG", "TIFF", "WEBP")
    if name in Image.OPEN
]

_PROBES = 5
_SAME_IMAGE = 0.99


class MismatchError(ValueError):
    """The endpoint serves another model than the one that built the index."""


@dataclass(frozen=True)
class Hit:
    """A picture of the gallery near a query.

    Args:
        row: Its row.
        similarity: The cosine similarity.
        is_match: Whether that is enough for an answer; None where the gallery has no
            calibration that tells.
    """

    row: int
    similarity: float
    is_match: bool | None = None


class ImageSearch:
    """Finds the pictures of a gallery that are nearest to a picture.

    A context manager: at its end, the client is closed.

    Args:
        index: Index whose ids are the paths of the gallery.
        gallery: Its pictures.
        client: Client of the endpoint with the model that embedded the gallery.
        max_pixels: Width times height above which a query is refused before it is
            decoded.
    """

    def __init__(
        self,
        index: ScannIndex,
        gallery: Gallery,
        client: EndpointClient,
        *,
        max_pixels: int = 64_000_000,
    ) -> None:
        self.index = index
        self.gallery = gallery
        self.client = client
        self.max_pixels = max_pixels
        self._rows = {path: row for row, path in enumerate(gallery.paths)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.client.close()

    def nearest(self, picture: bytes, k: int) -> list[Hit]:
        """Find the `k` pictures nearest to an encoded picture, nearest first.

        Where the gallery has a calibration and the first hit is no match, the search
        has no answer: the others are no matches either.

        Raises:
            UnreadableImageError: The bytes are no picture of a kind that is taken.
            EndpointError: The endpoint did not answer.
        """
        _check_untrusted(picture, self.max_pixels)
        try:
            embedding = self.client.embed([picture])
        except UnreadableImageError as error:
            reason = str(error).removeprefix("image bytes: ")
            raise UnreadableImageError(f"This file {reason}") from error
        return self._search(embedding, k)

    def similar(self, row: int, k: int) -> list[Hit]:
        """Find the `k` pictures nearest to one of the gallery, itself left out.

        Raises:
            UnreadableImageError: Its file is broken.
            FileNotFoundError: Its file is gone.
            EndpointError: The endpoint did not answer.
        """
        hits = self._search(self.client.embed([self.file(row)]), k + 1)
        return [hit for hit in hits if hit.row != row][:k]

    def file(self, row: int) -> Path:
        """Return the file of the picture in one row."""
        return self.gallery.root / self.gallery.paths[row]

    def _search(self, embedding: np.ndarray, k: int) -> list[Hit]:
        found = self.index.search(embedding, k)
        known = self.gallery.calibration
        return [
            Hit(self._rows[path], score, known.is_match(score) if known else None)
            for path, score in zip(found.ids[0], found.scores[0].tolist(), strict=True)
        ]

    def check_model(self) -> None:
        """Make sure that the endpoint's model is the one that built the index.

        The protocol of TF Serving tells name, version and dimension of a model, not
        its weights. So a few pictures of the gallery are embedded as well: most must
        find themselves, or a copy, at a similarity of 1.

        Raises:
            MismatchError: It is another model.
            EndpointError: The endpoint did not answer.
        """
        served = self.client.metadata()
        stored = self.gallery
        remedy = "Serve that model, or build the index again with the one served."
        if served.dimension not in (None, self.index.dimension):
            raise MismatchError(
                f"The index holds embeddings of dimension {self.index.dimension}, the "
                f"model at {self.client.url} gives {served.dimension}. {remedy}"
            )
        if served.version not in (None, stored.model_version):
            raise MismatchError(
                f"The index was built with version {stored.model_version} of model "
                f"{stored.model_name!r}, {self.client.url} serves version "
                f"{served.version}. {remedy}"
            )
        files = [
            file for row in self._probe_rows() if (file := self.file(row)).is_file()
        ]
        if not files:
            raise FileNotFoundError(
                f"The images of the gallery are not in {str(stored.root)!r}. Name the "
                "folder where they are now with `--images`."
            )
        best = self.index.search(self.client.embed(files), 1).scores[:, 0]
        # Not all of them: single pictures may have been replaced since.
        if np.median(best) < _SAME_IMAGE:
            raise MismatchError(
                f"The model at {self.client.url} is not the one that built the index: "
                "images of the gallery do not find themselves (best similarity "
                f"{np.median(best):.3f}, not 1). {remedy}"
            )

    def _probe_rows(self) -> list[int]:
        last = len(self.gallery.paths) - 1
        return sorted({round(last * part / (_PROBES - 1)) for part in range(_PROBES)})


def _check_untrusted(picture: bytes, max_pixels: int) -> None:
    try:
        # Pillow warns of many pixels; the rule on the size is the one below.
        with (
            warnings_ignored(),
            Image.open(io.BytesIO(picture), formats=_FORMATS) as image,
        ):
            width, height = image.size
            too_large = width * height > max_pixels
    except Image.DecompressionBombError:
        too_large = True
    except Exception as error:  # Pillow's decoders raise whatever they meet
        raise UnreadableImageError(
            "This is not an image that can be searched with. JPEG, PNG, WebP, GIF, "
            "AVIF, TIFF and BMP files can."
        ) from error
    if too_large:
        raise UnreadableImageError(
            f"This image has too many pixels: at most {max_pixels // 1_000_000} "
            "million are taken. Make it smaller and try again."
        )


def open_search(
    index_folder: str | PathLike[str],
    endpoint_url: str,
    *,
    images: str | PathLike[str] | None = None,
    credentials: Credentials | None = None,
) -> ImageSearch:
    """Open an index folder and connect it to the endpoint.

    Args:
        index_folder: Folder that `python -m serving index` wrote.
        endpoint_url: Address of the model, as in `EndpointClient`.
        images: Folder of the pictures, where it is no longer the one indexed.
        credentials: What the endpoint asks of its clients.

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
    with EndpointClient(endpoint_url, credentials=credentials) as client:
        ImageSearch(index, gallery, client).check_model()
        # When the endpoint goes over to a newer version, the index does not fit it:
        # a clear error is better than near pictures that are not.
        return ImageSearch(index, gallery, client.at_version(gallery.model_version))
