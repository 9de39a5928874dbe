"""Read as `python -m training fit` and `tfdml.batch_designs.image_batches` do."""

from collections.abc import Iterator

import numpy as np

from benchmarks.reading.measured import MIN_SCALE, Task
from tfdml.batch_designs import BatchSequence, GroupBatches
from tfdml.images import ImageReader, View

_AHEAD = 4
_KEPT = 2048
"""Images that are read from the cache."""


def batches_of(task: Task, kind: str) -> Iterator[np.ndarray]:
    """Yield uint8 crops.

    Args:
        task: What to do; its classes are drawn anew.
        kind: "files" or "cache"; "processes" reads files by processes also where few
            cores make threads the usual choice.
    """
    kept = kind == "cache"
    files = task.files[:_KEPT] if kept else task.files
    labels = np.unique([file.parent.name for file in files], return_inverse=True)[1]
    classes = min(task.classes_per_batch, labels.max() + 1)
    design = GroupBatches(labels, task.batches.shape[1] // classes, classes)
    reader = ImageReader(
        files,
        View(task.image_size),
        crop="resized",
        min_scale=MIN_SCALE,
        cache_bytes=2**30 if kept else 0,
        workers=task.cores if kind == "processes" else None,
    )
    try:
        if kept:
            reader.check()
        batches = BatchSequence(design, reader.random, ahead=_AHEAD)
        for step, _ in task.steps():
            yield batches.batch(step)
    finally:
        reader.close()
