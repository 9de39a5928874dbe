"""How good an embedder is on a part of a data set."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from tfdml.metrics import (
    QueryResults,
    RetrievalTask,
    label_query_metrics,
    query_metrics,
)
from tfdml.neighbors import Metric
from training.data.data_set import DataSet
from training.data.images import Pictures

_KS = (1, 5)
_LABEL_KS = (1, 10)
_BATCH = 64


@dataclass(frozen=True)
class Part:
    """The images of a split.

    Args:
        data: What is known of them.
        pictures: The pictures of the whole data set.
        positions: Where the images of the part are in it, int64 `[N]`.
        label_distance: Of continuous labels, as for
            `tfdml.metrics.label_distance_metrics`.
    """

    data: DataSet
    pictures: Pictures
    positions: np.ndarray
    label_distance: Callable[[Any, Any], Any] | None = None

    @property
    def can_be_measured(self) -> bool:
        """Whether a query has something to find."""
        return bool(self.data.has_positive().any())


class _Blocks(keras.utils.PyDataset):
    """The pictures of a part as they are tested, in blocks of one size.

    The last one is filled up with its own pictures again; one alone is not.
    """

    def __init__(self, part: Part) -> None:
        super().__init__(workers=1, use_multiprocessing=False)
        self._part = part
        self.error: Exception | None = None

    def __len__(self) -> int:
        return -(-len(self._part.positions) // _BATCH)

    def __getitem__(self, index: int) -> tuple[np.ndarray]:
        block = self._part.positions[index * _BATCH : (index + 1) * _BATCH]
        with noted(self):
            pictures = self._part.pictures.central(block)
        if index:  # with a shorter last one a model would be compiled twice
            pictures = np.resize(pictures, (_BATCH, *pictures.shape[1:]))
        return (pictures,)


@contextmanager
def noted(batches: Any) -> Iterator[None]:
    """Keep an error as `batches.error`: TensorFlow makes another of it."""
    try:
        yield
    except Exception as error:
        batches.error = error
        raise


@contextmanager
def original_error(batches: Any) -> Iterator[None]:
    """Raise the error that reading batches met, not what TensorFlow made of it."""
    try:
        yield
    except Exception:
        if batches.error is not None:
            raise batches.error from None
        raise


def embed(embedder: keras.Model, part: Part) -> np.ndarray:
    """Embed the pictures of a part, float32 `[N, dimension]`.

    Raises:
        UnreadableImageError: A file is broken.
        FileNotFoundError: A file is gone.
    """
    blocks = _Blocks(part)
    with original_error(blocks):
        return embedder.predict(blocks, verbose=0)[: len(part.positions)]


def raw_pixels(part: Part) -> np.ndarray:
    """Embed pictures as their own 32 x 32 pixels, each centred: the floor to beat."""
    blocks = _Blocks(part)
    rows = np.empty((len(part.positions), 32 * 32 * 3), "float32")
    for index in range(len(blocks)):
        pictures = blocks[index][0].astype("float32")
        small = keras.ops.image.resize(pictures, (32, 32), antialias=True)
        flat = keras.ops.convert_to_numpy(small).reshape(len(pictures), -1)
        # Without this, most of the cosine is the white that all drawings share.
        flat = flat - flat.mean(axis=1, keepdims=True)
        block = rows[index * _BATCH : (index + 1) * _BATCH]
        block[:] = flat[: len(block)]
    return rows


def measure(
    part: Part,
    embedded: Callable[[Part], np.ndarray],
    *,
    most_queries: int | None = None,
) -> dict[str, float] | None:
    """Measure retrieval on a part.

    Classes: the metrics of `tfdml.metrics.retrieval_metrics`, by query and gallery
    where the data set has such roles, and among other sequences than the query's own
    where it has sequences. Continuous labels: those of
    `tfdml.metrics.label_distance_metrics`; where sequences are known, each also
    among the images of other sequences.

    Args:
        part: The images.
        embedded: Embeds them.
        most_queries: Of more queries with classes so many are drawn, always the same.

    Returns:
        The metrics; None where no query has anything to find.
    """
    if not part.can_be_measured:
        return None
    return means_of(part_results(part, embedded(part), most_queries=most_queries))


def means_of(results: QueryResults) -> dict[str, float]:
    """Return the mean of each metric and, of classes, the numbers of queries."""
    if results.first_ranks is None:
        return results.means()
    return results.means() | {
        "queries": len(results.queries),
        "queries_without_positive": len(results.without_positive),
    }


def part_results(
    part: Part,
    embeddings: np.ndarray,
    ks: Sequence[int] | None = None,
    *,
    most_queries: int | None = None,
    metric: Metric = "cosine",
) -> QueryResults:
    """Measure every query of a part; see `measure`.

    Args:
        part: The images, one of which has something to find.
        embeddings: Float array `[N, dimension]`.
        ks: The k of the metrics; those that the part is too small for are left out. By
            default 1 and 5, with continuous labels 1 and 10.
        most_queries: As in `measure`.
        metric: How embeddings are compared.

    Returns:
        The metrics of each query; its class by name.
    """
    data = part.data
    if data.is_continuous:
        return _of_labels(part, embeddings, ks or _LABEL_KS, metric)
    is_query, is_gallery = data.is_query(), data.is_gallery()
    if most_queries is not None and is_query.sum() > most_queries:
        # Those without a positive count too: they are reported.
        order = np.random.default_rng(0).permutation(np.flatnonzero(is_query))
        is_query[order[most_queries:]] = False
    task = RetrievalTask.of(data.labels, is_query, is_gallery, data.sequences)
    allowed = int(task.allowed.min(initial=len(data)))
    results = query_metrics(
        embeddings,
        data.labels,
        [k for k in ks or _KS if k <= allowed],
        metric=metric,
        is_query=is_query,
        is_gallery=is_gallery,
        groups=data.sequences,
    )
    names = np.array(data.class_names)
    return dataclasses.replace(
        results,
        classes=names[results.classes],
        classes_without_positive=names[results.classes_without_positive],
    )


def _of_labels(
    part: Part, embeddings: np.ndarray, ks: Sequence[int], metric: Metric
) -> QueryResults:
    data = part.data

    def measured(allowed: int, groups: np.ndarray | None) -> QueryResults:
        return label_query_metrics(
            embeddings,
            data.labels,
            [k for k in ks if k <= allowed],
            label_distance=part.label_distance,
            groups=groups,
            metric=metric,
        )

    results = measured(len(data) - 1, None)
    if data.sequences is None:
        return results
    largest = int(np.unique(data.sequences, return_counts=True)[1].max())
    if largest == len(data):
        return results
    others = measured(len(data) - largest, data.sequences)
    renamed = {f"{n}_other_sequences": v for n, v in others.values.items()}
    return dataclasses.replace(others, values={**results.values, **renamed})


def monitored(data: DataSet) -> tuple[str, str]:
    """Return what the best epoch is chosen by, and whether "max" or "min" is best.

    Args:
        data: The validation images.
    """
    if data.is_continuous:
        k = max((k for k in _LABEL_KS if k < len(data)), default=1)
        return f"val_label_distance_at_{k}", "min"
    return "val_precision_at_1", "max"


class PartEvaluation(keras.callbacks.Callback):
    """Measure the validation images at the end of each epoch.

    What `measure` returns goes into the logs, its names after "val_".

    Args:
        part: The validation images.
        embedder: What embeds them.
    """

    def __init__(self, part: Part, embedder: keras.Model) -> None:
        super().__init__()
        self._part = part
        self._embedder = embedder

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Embed the pictures and add the metrics to the logs."""
        measured = measure(self._part, lambda part: embed(self._embedder, part)) or {}
        for name, value in measured.items():
            if logs is not None and not name.startswith("queries"):
                logs[f"val_{name}"] = value
