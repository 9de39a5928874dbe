"""Draw batches by the network as it is at the beginning of each epoch."""

import dataclasses
import threading
from abc import abstractmethod
from typing import Any

import keras
import numpy as np

from tfdml.batch_designs import BatchDesign

from ..data.split import Split
from ..measure.embed import embed


class MinedEpochs(BatchDesign):
    """Batches that are drawn anew at each epoch, with what was found before it.

    A pass is an epoch. The batches of the run are those of the design, which go on from
    epoch to epoch; but its passes are drawn again, from the same first classes, when
    what was found changes. So a run that is taken up at an epoch has the batches that
    would have come, if its network is the same.

    The batches of an epoch are drawn when it is known what was found: a thread that
    reads ahead waits for it.

    Args:
        design: The design.
        steps_per_epoch: Number of batches in an epoch.
    """

    def __init__(self, design: BatchDesign, steps_per_epoch: int) -> None:
        super().__init__(design.images, design.seed)
        self._design = design
        self._steps = steps_per_epoch
        self._turn = threading.Condition()
        self._epoch = -1
        self._is_closed = False
        self._drawn: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return self._steps

    @property
    def batch_size(self) -> int:
        """Number of images in a batch."""
        return self._design.batch_size

    def draw_pass(self, generator: np.random.Generator) -> np.ndarray:
        """Draw a pass of the design."""
        return self._design.draw_pass(generator)

    def batches(self, pass_number: int) -> np.ndarray:
        """Return the batches of an epoch, as soon as they can be drawn."""
        with self._turn:
            self._turn.wait_for(lambda: pass_number <= self._epoch or self._is_closed)
            if pass_number not in self._drawn:
                # The one before may still be asked for, by what counts its triplets.
                self._drawn.pop(pass_number - 2, None)
                self._drawn[pass_number] = self._draw(pass_number)
            return self._drawn[pass_number]

    def begin(self, epoch: int, found: Any) -> None:
        """Let the batches of an epoch, counted from 0, be drawn with what was found."""
        with self._turn:
            self.take(epoch, found)
            self._epoch = epoch
            self._turn.notify_all()

    @abstractmethod
    def take(self, epoch: int, found: Any) -> None:
        """Give the design what was found."""

    def close(self) -> None:
        """Let nobody wait any longer: the run is over."""
        with self._turn:
            self._is_closed = True
            self._turn.notify_all()

    def _draw(self, epoch: int) -> np.ndarray:
        first, length = epoch * self._steps, len(self._design)
        begin, place = divmod(first, length)
        end = (first + self._steps - 1) // length
        passes = [self._design.batches(number) for number in range(begin, end + 1)]
        return np.concatenate(passes)[place : place + self._steps]


class Mining(keras.callbacks.Callback):
    """Embed some training images before each epoch, for `MinedEpochs`.

    Of each class so many random images are embedded, as they are tested, or all. Which
    ones depends on the seed of the design and the epoch alone.

    Args:
        design: The design of the run.
        train: The training images.
        embedder: The embedder that is trained.
    """

    images_per_class: int

    def __init__(
        self, design: MinedEpochs, train: Split, embedder: keras.Model
    ) -> None:
        super().__init__()
        self._design = design
        self._train = train
        self._embedder = embedder

    @abstractmethod
    def found(self, embeddings: np.ndarray, labels: np.ndarray) -> Any:
        """Return what the design needs of some embeddings and their labels."""

    def begin(self, epoch: int) -> None:
        """Prepare an epoch, counted from 0, before any batch of it is read."""
        labels, seed = self._train.data.labels, [self._design.seed, epoch]
        chosen = _some_of_each(labels, self.images_per_class, seed)
        some = dataclasses.replace(
            self._train,
            data=self._train.data.select(chosen),
            positions=self._train.positions[chosen],
        )
        embeddings = embed(self._embedder, some)
        self._design.begin(epoch, self.found(embeddings, labels[chosen]))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Prepare the next epoch, if there is one."""
        is_last = epoch + 1 == (self.params or {}).get("epochs")
        if not (is_last or self.model.stop_training):
            self.begin(epoch + 1)

    def close(self) -> None:
        """Let nobody wait for batches any longer."""
        self._design.close()


def _some_of_each(labels: np.ndarray, count: int, seed: list[int]) -> np.ndarray:
    """Choose so many images of each class at random; their places, ascending."""
    order = np.random.default_rng(seed).permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    classes = labels[by_class]
    place = np.arange(len(labels)) - np.searchsorted(classes, classes)
    return np.sort(by_class[place < count])
