"""Hold what is measured of training.

The standard library alone: peers' interpreters import it.
"""

import json
from dataclasses import asdict, dataclass
from typing import Self

BACKBONES = ("ResNet50", "ResNet101", "ResNet152")
"""Names of Keras; torchvision has the same in small letters."""

PHASES = {
    "step": "step alone, batch on the device",
    "fit": "`fit` on one batch in host memory",
    "reading, files": "crops alone, uint8, from files",
    "reading, cache": "crops alone, uint8, from the cache",
    "batches, files": "batches alone as `fit` gets them, from files",
    "batches, cache": "batches alone as `fit` gets them, from the cache",
    "end to end, files": "end to end from files",
    "end to end, cache": "end to end from the cache",
}
"""What is measured in images per second, and what the table calls it."""


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Args:
        folder: Of the images, a folder a class.
        backbone: One of `BACKBONES`; ours alone also takes "residual".
        image_size: Side of the crops in pixels.
        embedding: Dimension of the embeddings.
        classes_per_batch: Of a batch.
        images_per_class: Of a batch.
        precision: "mixed_bfloat16" or "float32".
        steps: Of a round, which for `fit` is an epoch.
        rounds: How often each phase is measured.
        workers: Worker processes of PyTorch's loader.
        cache_megabytes: Of our cache, where it is used.
        min_scale: Smallest share of an image that a random crop shows.
    """

    folder: str
    backbone: str
    image_size: int
    embedding: int
    classes_per_batch: int
    images_per_class: int
    precision: str
    steps: int
    rounds: int
    workers: int
    cache_megabytes: int = 8192
    min_scale: float = 0.16

    @classmethod
    def read(cls, text: str) -> Self:
        """Return what `written` wrote."""
        return cls(**json.loads(text))

    @property
    def written(self) -> str:
        """These settings as text."""
        return json.dumps(asdict(self))

    @property
    def batch(self) -> int:
        """Images of a batch."""
        return self.classes_per_batch * self.images_per_class
