"""Draw N-pair batches of classes that the network finds hard to tell apart."""

import dataclasses
import threading
from typing import Any

import keras
import numpy as np

from tfdml.batch_designs import BatchDesign, NPairBatches, class_means

from ..data.split import Split
from ..measure.embed import embed

_IMAGES = 2  # of each class are embedded: all would take as long as an epoch


class HardClassEpochs(BatchDesign):
    """N-pair batches that are drawn anew at each epoch, with its class embeddings.

    A pass is an epoch. The batches of the run are those of the N-pair design, which go
    on from epoch to epoch; but its passes are drawn again, from the same first classes,
    when the class embeddings change. So a run that is taken up at an epoch has the
    batches that would have come, if its network is the same.

    The batches of an epoch are drawn when its class embeddings are known: a thread that
    reads ahead waits for them.

    Args:
        design: The N-pair design.
        steps_per_epoch: Number of batches in an epoch.
    """

    def __init__(self, design: NPairBatches, steps_per_epoch: int) -> None:
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
        """Draw a pass of the N-pair design."""
        return self._design.draw_pass(generator)

    def batches(self, pass_number: int) -> np.ndarray:
        """Return the batches of an epoch, as soon as its class embeddings are known."""
        with self._turn:
            self._turn.wait_for(lambda: pass_number <= self._epoch or self._is_closed)
            if pass_number not in self._drawn:
                # The one before may still be asked for, by what counts its triplets.
                self._drawn.pop(pass_number - 2, None)
                self._drawn[pass_number] = self._draw(pass_number)
            return self._drawn[pass_number]

    def begin(self, epoch: int, class_embeddings: np.ndarray) -> None:
        """Let the batches of an epoch, counted from 0, be drawn.

        Args:
            epoch: The epoch.
            class_embeddings: As for `NPairBatches`.
        """
        with self._turn:
            self._design.class_embeddings = class_embeddings
            self._epoch = epoch
            self._turn.notify_all()

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


class HardClassMining(keras.callbacks.Callback):
    """Embed the training classes before each epoch, for `HardClassEpochs`.

    Of each class two random images are embedded, as they are tested, or the only one.
    Which ones depends on the seed of the design and the epoch alone.

    Args:
        design: The design of the run.
        train: The training images.
        embedder: The embedder that is trained.
    """

    def __init__(
        self, design: HardClassEpochs, train: Split, embedder: keras.Model
    ) -> None:
        super().__init__()
        self._design = design
        self._train = train
        self._embedder = embedder

    def begin(self, epoch: int) -> None:
        """Embed the classes for an epoch, counted from 0, before any batch is read."""
        chosen = _some_of_each(self._train.data.labels, [self._design.seed, epoch])
        some = dataclasses.replace(
            self._train,
            data=self._train.data.select(chosen),
            positions=self._train.positions[chosen],
        )
        embeddings = embed(self._embedder, some)
        self._design.begin(epoch, class_means(embeddings, some.data.labels))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Embed the classes for the next epoch, if there is one."""
        is_last = epoch + 1 == (self.params or {}).get("epochs")
        if not (is_last or self.model.stop_training):
            self.begin(epoch + 1)

    def close(self) -> None:
        """Let nobody wait for batches any longer."""
        self._design.close()


def _some_of_each(labels: np.ndarray, seed: list[int]) -> np.ndarray:
    """Choose up to two images of each class at random; their places, ascending."""
    order = np.random.default_rng(seed).permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    classes = labels[by_class]
    place = np.arange(len(labels)) - np.searchsorted(classes, classes)
    return np.sort(by_class[place < _IMAGES])
