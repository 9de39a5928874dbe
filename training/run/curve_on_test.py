"""Measure the test images in the course of training, for the record alone."""

from typing import Any

import keras

from ..data.split import Split
from ..measure.embed import embed
from ..measure.measure import EmbeddingMetric, measure
from .progress import Progress


class CurveOnTest(keras.callbacks.Callback):
    """Measure the test images after some epochs, as Figure 4 of Lu et al., ICCV 2019.

    What it measures goes to `progress.test_curve` and not to the logs: no weights are
    chosen by it, no run is ended by it, and no other callback sees it.

    Args:
        split: The test images.
        embedder: What embeds them.
        progress: Keeps the curve, also when the run is interrupted.
        every: After how many epochs it measures; it does after the last one too.
        epochs: How many epochs the run has; None where its time ends it.
        metric: How embeddings are compared.
    """

    def __init__(
        self,
        split: Split,
        embedder: keras.Model,
        progress: Progress,
        *,
        every: int,
        epochs: int | None,
        metric: EmbeddingMetric = "cosine",
    ) -> None:
        super().__init__()
        self._split = split
        self._embedder = embedder
        self._progress = progress
        self._every = every
        self._epochs = epochs
        self._metric: EmbeddingMetric = metric

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Embed the images and note the metrics, if it is time."""
        done = epoch + 1
        if done % self._every and done != self._epochs:
            return
        measured = measure(
            self._split,
            lambda split: embed(self._embedder, split),
            metric=self._metric,
        )
        values = {"epoch": done, "step": self._progress.steps_done, **(measured or {})}
        for name, value in values.items():
            if not name.startswith("queries"):
                self._progress.test_curve.setdefault(name, []).append(value)
