"""Read the training batches of a design, for `fit`."""

import keras
import numpy as np

from tfdml.batch_designs import BatchDesign, BatchSequence
from tfdml.images import RandomChanges

from ..data.split import Split
from ..measure.embed import noted
from .hierarchy import HierarchyEpochs
from .mining import MinedEpochs

_AHEAD = 4  # batches: enough for no reader to wait for the slowest of a batch

Batch = tuple[np.ndarray | tuple[np.ndarray, ...], np.ndarray | dict[str, np.ndarray]]


class ImageBatches(keras.utils.PyDataset):
    """Batches of images and labels, without TensorFlow's input pipeline.

    Batch s of the run is batch s % len(design) of pass s // len(design) of the design,
    and its random changes depend on the seed and s alone: a run can be taken up at any
    epoch, and does not depend on where epochs are cut.

    Attributes:
        error: What the last batch that could not be read met.
        is_drawn_by_epoch: Whether the batches of an epoch depend on the network at its
            beginning, so that none can be had before.

    Args:
        split: The training images.
        design: Which images share a batch.
        steps_per_epoch: Number of batches in an epoch.
        changes: The random changes, which `build_model` puts into the model.
        seed: Seed of the random changes.
        old: Embeddings of the training images by an old model, which the model takes
            beside them, float32 `[N, dimension]`.
        targets: What the loss takes for each image, `[N, ...]`. Defaults to the labels.
        teacher: Embeddings by a teacher, which come with the targets, `[N, dimension]`.
    """

    def __init__(
        self,
        split: Split,
        design: BatchDesign,
        steps_per_epoch: int,
        changes: RandomChanges,
        seed: int,
        old: np.ndarray | None = None,
        targets: np.ndarray | None = None,
        teacher: np.ndarray | None = None,
    ) -> None:
        super().__init__(workers=1, use_multiprocessing=False)
        self.error: Exception | None = None
        self.is_drawn_by_epoch: bool = isinstance(design, MinedEpochs)
        self._design = design
        self._split = split
        self._targets = split.data.labels if targets is None else targets
        self._run = BatchSequence(design, self._read, ahead=_AHEAD)
        self._steps_per_epoch = steps_per_epoch
        self._changes = changes
        self._seed = seed
        self._old = old
        self._teacher = teacher
        self._epoch = 0

    def begin_at(self, epoch: int) -> None:
        """Go to the batches of an epoch, counted from 0.

        To be called at the beginning of each epoch. (Keras 3.15 reads batches and calls
        `on_epoch_end` before the first epoch too: it cannot be counted from there.)
        """
        self._epoch = epoch

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return self._steps_per_epoch

    def __getitem__(self, index: int) -> Batch:
        """Return batch `index` of the epoch: images and labels.

        The images are uint8 `[batch, size, size, 3]`; with random changes they come in
        a tuple with the numbers of these, float32 `[batch, numbers]`, and with an old
        model with its embeddings, float32 `[batch, dimension]`, last. With a teacher
        the labels come in a dictionary, `classes`, with its embeddings, `teacher`.
        """
        return self.batch(self._epoch * self._steps_per_epoch + index)

    def batch(self, step: int) -> Batch:
        """Return batch `step` of the run, counted from 0, as `batches[index]` does."""
        with noted(self):
            return self._run.batch(step)

    def _read(self, chosen: np.ndarray, step: int) -> Batch:
        images = self._split.images.random(self._split.positions[chosen], step)
        labels = self._targets[chosen]
        if isinstance(self._design, HierarchyEpochs):
            labels = self._design.targets(step, labels)
        beside = []
        if self._changes:
            beside.append(self._changes.numbers(self._seed, step, len(chosen)))
        if self._old is not None:
            beside.append(self._old[chosen])
        x = (images, *beside) if beside else images
        if self._teacher is None:
            return x, labels
        return x, {"classes": labels, "teacher": self._teacher[chosen]}

    def positions(self, step: int) -> np.ndarray:
        """Return the places in the split of the images of batch `step`, `[batch]`."""
        return self._run.positions(step)
