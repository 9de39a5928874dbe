"""Run an exported model in this process, in place of an endpoint and its client."""

from collections.abc import Sequence
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from tfdml.export import SavedEmbedder
from tfdml.images import read_image

from ...client import ImageSource, ModelMetadata
from ...endpoint.models.saved_model import find_model_version, model_fingerprint

_BATCH = 32


class LocalModel:
    """Embeds images as an `EndpointClient` does, without an endpoint.

    Args:
        model: Base path of the exported model (its latest version is used), or the
            folder of one version.

    Raises:
        FileNotFoundError: There is no exported model.
        ValueError: It cannot be loaded, or does not take images.

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
        """Embed images; the first call loads the model.

        Args:
            images: Pixels, uint8 `[H, W, 3]`, or paths or encoded bytes of images; at
                least one.

        Returns:
            float32 `[len(images), dimension]`.

        Raises:
            UnreadableImageError: One is not an image.
            FileNotFoundError: There is no such file.
            ValueError: The model cannot be loaded.
        """
        embedder = self._loaded()
        blocks = []
        for start in range(0, len(images), _BATCH):
            batch = map(_pixels_of, images[start : start + _BATCH])
            views = [embedder.view.central(pixels) for pixels in batch]
            blocks.append(embedder.embed(np.stack(views)))
        return np.concatenate(blocks)

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts, as `EndpointClient.embed_texts` does.

        Raises:
            ValueError: The model has no text tower.
        """
        return self._loaded().embed_texts(texts)

    def metadata(self) -> ModelMetadata:
        """Return the metadata that an endpoint reports, except the dimension."""
        embedder = self._loaded()
        return ModelMetadata(
            self._version.name,
            self._version.version,
            image_size=embedder.image_size,
            dimension=None,
            view=embedder.view,
            input_name="images",
            has_text=embedder.has_text,
        )

    def check(self) -> None:
        """Check nothing: in this process, the model stays the same."""

    def close(self) -> None:
        """Release the model."""
        self._embedder = None

    def _loaded(self) -> SavedEmbedder:
        if self._embedder is None:
            self._embedder = SavedEmbedder(self._version.folder)
        return self._embedder


def _pixels_of(image: ImageSource) -> NDArray[np.uint8]:
    return image if isinstance(image, np.ndarray) else read_image(image)
