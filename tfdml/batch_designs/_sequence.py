"""Turn the index batches of a design into batches of data for Keras and `tf.data`."""

import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from tfdml._core.arguments import whole
from tfdml._core.arrays import as_arrays, leaves
from tfdml.batch_designs import BatchDesign
from tfdml.batch_designs._read_ahead import ReadAhead

if TYPE_CHECKING:
    import tensorflow as tf


Data = Any
"""An array-like, or a dict, tuple or list of them; or a function of a batch."""

_PLACED = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


class BatchSequence(keras.utils.PyDataset):
    """Batches of a design for `fit`, on every Keras backend.

    Batch s of the run is batch s % len(design) of pass s // len(design) of the design,
    s counted over all epochs from `start_step`: the run does not depend on where epochs
    begin and end, and an epoch need not be a pass. To resume a run after s steps,
    build the same design and sequence with `start_step=s`.

    The sequence advances from epoch to epoch of one `fit`; make a new one for another
    `fit`. Pass `shuffle=False` to `fit`: otherwise Keras takes the batches of an epoch
    in an order that does not depend on the design's seed.

    Args:
        design: Which images share a batch.
        x: Inputs: an array-like `[N, ...]` (of NumPy, pandas or a backend; rows count
            by position, never by the index of a data frame), a dict, tuple or list of
            them (for a model with several inputs), or a function that maps positions,
            int64 `[batch_size]`, to the inputs of the batch (by reading files, say). A
            function of two arguments also gets the number of the batch in the run, on
            which the random numbers of `tfdml.images.ImageReader.random` depend.
        y: Labels, an array-like of numbers `[N, ...]` or several as for x. Without them
            a batch is (x,), or, where x is a function, what it returns: (x, y), say, or
            (x, y, sample weights).
        steps_per_epoch: Number of batches in an epoch; `None` for a pass.
        start_step: How many batches of the run are done already.
        ahead: How many batches are read in advance, in as many threads, at least 0. A
            function must allow that: it is called from several threads, also for
            batches that are never used.

    Raises:
        ValueError: An argument is out of range, or the length of an array is not the
            design's number of images, or it holds neither numbers nor (only x) text.

    Example:
        >>> from tfdml.batch_designs import GroupBatches
        >>> labels = np.array([0, 0, 1, 1, 2, 2])
        >>> sequence = BatchSequence(GroupBatches(labels, 2, 2), np.eye(6), labels)
        >>> x, y = sequence[0]
        >>> x.shape, len(set(y.tolist()))
        ((4, 6), 2)
    """

    def __init__(
        self,
        design: BatchDesign,
        x: Data,
        y: Data = None,
        *,
        steps_per_epoch: int | None = None,
        start_step: int = 0,
        ahead: int = 0,
    ) -> None:
        # One worker in this process: Keras would start others again at each epoch.
        super().__init__(workers=1, use_multiprocessing=False)
        self._read = _Reader(design, x, y)
        self._ahead = ReadAhead(self._read.batch, whole("ahead", ahead, 0))
        if steps_per_epoch is None:
            steps_per_epoch = len(design)
        self.steps_per_epoch: int = whole("steps_per_epoch", steps_per_epoch)
        self.start_step: int = whole("start_step", start_step, 0)
        self._epoch = 0
        self._is_read = False
        self._has_ended = False

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return self.steps_per_epoch

    def __getitem__(self, index: int) -> Data:
        """Return batch `index` of the epoch."""
        step = self._epoch * self.steps_per_epoch + index
        self._is_read |= index == self.steps_per_epoch - 1
        return self.batch(self.start_step + step)

    def batch(self, step: int) -> Data:
        """Return batch `step` of the run, counted from 0, whatever `start_step` is."""
        return self._ahead.batch(step)

    def positions(self, step: int) -> np.ndarray:
        """Return which images are in batch `step` of the run, counted from 0.

        Args:
            step: Number of the batch, whatever `start_step` is.

        Returns:
            int64 array `[batch_size]` of positions in the data set.
        """
        return self._read.passes.positions(step)

    def on_epoch_begin(self) -> None:
        """Begin to look out for the last batch of the epoch."""
        self._is_read = False

    def on_epoch_end(self) -> None:
        """Go on to the batches of the next epoch.

        Keras 3.15 looks at the first batches and calls this once before the first
        epoch. An epoch that was not read to its end does not count either.
        """
        self._epoch += self._has_ended and self._is_read
        self._has_ended = True
        self._is_read = False


def index_dataset(design: BatchDesign, *, start_step: int = 0) -> "tf.data.Dataset":
    """Make a `tf.data.Dataset` of the positions of each batch.

    It never ends: pass `steps_per_epoch` to `fit`, or use `take`. Map it with a
    function that reads the data: `index_dataset(design).map(read,
    num_parallel_calls=...)`.

    Args:
        design: Which images share a batch.
        start_step: How many batches of the run are done already.

    Returns:
        Dataset of int64 tensors `[batch_size]`.
    """
    import tensorflow as tf

    passes = _Passes(design)
    return _generated(
        passes.positions,
        whole("start_step", start_step, 0),
        tf.TensorSpec([design.batch_size], "int64"),
    )


def gathered_dataset(
    design: BatchDesign,
    x: Data,
    y: Data = None,
    *,
    start_step: int = 0,
    ahead: int = 0,
) -> "tf.data.Dataset":
    """Make a `tf.data.Dataset` of whole batches of data.

    It never ends, like that of `index_dataset`, and it prefetches. Its first batch is
    read at once: all others must have the same structure, types and shapes.

    Args:
        design: Which images share a batch.
        x: Inputs, as for `BatchSequence`.
        y: Labels, as for `BatchSequence`.
        start_step: How many batches of the run are done already.
        ahead: How many batches are read ahead, as for `BatchSequence`.

    Returns:
        Dataset of batches: what `BatchSequence` gives.
    """
    import tensorflow as tf

    start_step = whole("start_step", start_step, 0)
    run = ReadAhead(_Reader(design, x, y).batch, whole("ahead", ahead, 0))

    def spec(array: Any) -> tf.TensorSpec:
        array = np.asarray(array)
        return tf.TensorSpec(array.shape, array.dtype)

    signature = tf.nest.map_structure(spec, _without_lists(run.batch(start_step)))
    return _generated(
        lambda step: _without_lists(run.batch(step)), start_step, signature
    ).prefetch(tf.data.AUTOTUNE)


class _Passes:
    """The batches of a run one after another; the pass of the last one is kept."""

    def __init__(self, design: BatchDesign) -> None:
        self._design = design
        self._kept = (-1, np.empty((0, 0), dtype="int64"))

    def positions(self, step: int) -> np.ndarray:
        """Return the positions in the data set of the images of a batch."""
        number, place = divmod(step, len(self._design))
        kept = self._kept  # read and written at once: several threads may ask
        if kept[0] != number:
            kept = self._kept = (number, self._design.batches(number))
        return kept[1][place]


class _Reader:
    """The data of each batch of a run."""

    def __init__(self, design: BatchDesign, x: Data, y: Data) -> None:
        self.passes = _Passes(design)
        self._gather_x = _gatherer("x", x, design.images)
        self._gather_y = None if y is None else _gatherer("y", y, design.images)
        self._is_whole = callable(x) and y is None

    def batch(self, step: int) -> Data:
        """Return the data of a batch, counted over the run."""
        positions = self.passes.positions(step)
        x = self._gather_x(positions, step)
        if self._is_whole:
            return x
        return (x,) if self._gather_y is None else (x, self._gather_y(positions, step))


def _gatherer(name: str, data: Data, images: int) -> Callable[[np.ndarray, int], Data]:
    """Return a function that takes the rows of a batch from the data."""
    if callable(data):
        if _takes_step(data):
            return data
        return lambda positions, step: data(positions)
    arrays = as_arrays(name, data)
    found = list(leaves(arrays))
    for array in found or [np.zeros(0)]:
        if array.shape[:1] != (images,):
            raise ValueError(
                f"`{name}` must hold arrays of {images} rows, the images of the "
                f"design, or be a function. Received: shape={array.shape}."
            )
        if name == "y" and array.dtype.kind not in "iufbV":
            raise ValueError(
                "`y` must hold numbers, which losses take: number the labels by "
                f"`tfdml.batch_designs.encode_labels`. Received: dtype={array.dtype}."
            )

    def rows(positions: np.ndarray, step: int) -> Data:
        return keras.tree.map_structure(lambda array: array[positions], arrays)

    return rows


def _takes_step(function: Callable[..., Data]) -> bool:
    """Return whether a function has a second argument that must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):  # of a function without a signature
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind in _PLACED]
    return len(needed) == 2


def _without_lists(batch: Data) -> Data:
    """Return nested data with tuples for lists, which `tf.data` takes for tensors."""
    if isinstance(batch, dict):
        return {key: _without_lists(part) for key, part in batch.items()}
    if isinstance(batch, list | tuple):
        return tuple(_without_lists(part) for part in batch)
    return batch


def _generated(
    batch: Callable[[int], Data], start_step: int, signature: Any
) -> "tf.data.Dataset":
    import tensorflow as tf

    def run() -> Iterator[Data]:
        step = start_step
        while True:
            yield batch(step)
            step += 1

    return tf.data.Dataset.from_generator(run, output_signature=signature)
