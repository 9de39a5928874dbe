"""An exported model in this process, in the place of an endpoint and its client."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serving.client import ImageSource, ModelMetadata
from serving.endpoint.models.saved_model import find_model_version, model_fingerprint
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.image_search import ImageSearch
from tfdml.export import SavedEmbedder
from tfdml.images import read_image

_BATCH = 32


class LocalModel:
    """Embeds pictures as an `EndpointClient` does, without an endpoint.

    Args:
        model: Base path of the exported model (its latest version is used), or the
            folder of one version.

    Raises:
        FileNotFoundError: There is no exported model.
        ValueError: It cannot be loaded, or does not take pictures.

    Attributes:
        url: The folder of the version.
        fingerprint: Of the model, see `serving.endpoint.models.saved_model`.
    """

    def __init__(self, model: str | PathLike[str]) -> None:
        self._version = find_model_version(model)
        self.url = str(self._version.folder)
        self.fingerprint = model_fingerprint(self._version.folder)
        self._embedder: SavedEmbedder | None = None

    def embed(self, images: Sequence[ImageSource]) -> NDArray[np.float32]:
        """Embed pictures; the first call loads the model.

        Args:
            images: Paths of image files, encoded bytes or pixels, at least one.

        Returns:
            float32 `[len(images), dimension]`.

        Raises:
            UnreadableImageError: One is not a picture.
            FileNotFoundError: There is no such file.
            ValueError: The model cannot be loaded.
        """
        embedder = self._loaded()
        blocks = []
        for start in range(0, len(images), _BATCH):
            batch = [
                image if isinstance(image, np.ndarray) else read_image(image)
                for image in images[start : start + _BATCH]
            ]
            views = [embedder.view.central(pixels) for pixels in batch]
            blocks.append(embedder.embed(np.stack(views)))
        return np.concatenate(blocks)

    def metadata(self) -> ModelMetadata:
        """Return what an endpoint would say of the model, but for its dimension."""
        embedder = self._loaded()
        return ModelMetadata(
            self._version.name,
            self._version.version,
            image_size=embedder.image_size,
            dimension=None,
            view=embedder.view,
            input_name="images",
        )

    def close(self) -> None:
        """Let go of the model."""
        self._embedder = None

    def _loaded(self) -> SavedEmbedder:
        if self._embedder is None:
            self._embedder = SavedEmbedder(self._version.folder)
        return self._embedder


def open_local_search(
    index_folder: str | PathLike[str],
    model: str | PathLike[str],
    *,
    images: str | PathLike[str] | None = None,
) -> ImageSearch:
    """Open an index folder with the model that built it, in this process.

    Args:
        index_folder: Folder that `python -m serving index build` wrote.
        model: As in `LocalModel`.
        images: Folder of the pictures, where it is no longer the one indexed.

    Returns:
        The search. The fingerprint of the model tells that it is the right one.

    Raises:
        FileNotFoundError: There is no index, or no model.
        ValueError: The index is damaged or of another model.
    """
    client = LocalModel(model)
    index, gallery = load_gallery(index_folder, model_fingerprint=client.fingerprint)
    if images is not None:
        gallery = replace(gallery, root=Path(images).resolve())
    return ImageSearch(index, gallery, client, name=Path(index_folder).resolve().name)
