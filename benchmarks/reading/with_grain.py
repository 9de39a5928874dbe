"""Read by Google Grain, whose processes call the functions of `tfdml.images`."""

from collections.abc import Iterator

import grain
import numpy as np
from absl import flags

from benchmarks.reading.measured import MIN_SCALE, Task
from benchmarks.reading.with_threads import crop
from tfdml.images import RandomView, View

# Beside JAX, Grain asks for flags of absl, which fails where none were parsed. It also
# ends its errors with a remark, which would be told in place of what went wrong.
flags.FLAGS(["reading", "--grain_py_traceback_filtering=off"])


def batches_of(task: Task) -> Iterator[np.ndarray]:
    """Yield uint8 crops, the same as ours."""
    batch = task.batches.shape[1]
    view = RandomView(View(task.image_size), "resized", MIN_SCALE)
    files = [str(file) for file in task.files]

    def cropped(index: int, position: np.int64) -> np.ndarray:
        return crop(view, files[position], *divmod(index, batch))

    images = (
        grain.MapDataset.source(task.batches.reshape(-1))
        .repeat()
        .map_with_index(cropped)
        .batch(batch)
        .to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2))
    )
    options = grain.MultiprocessingOptions(task.cores, per_worker_buffer_size=2)
    yield from images.mp_prefetch(options)
