"""Read by tf.data: `decode_and_crop_jpeg` and a resize without antialiasing."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.reading.measured import MIN_SCALE, Task


def batches_of(task: Task) -> Iterator[np.ndarray]:
    """Yield uint8 crops; their boxes are drawn by TensorFlow."""
    files = np.array([str(file) for file in task.files])
    images = (
        tf.data.Dataset.from_tensor_slices(task.batches.reshape(-1))
        .repeat()
        .map(
            lambda position: _crop(tf.gather(files, position), task.image_size),
            num_parallel_calls=task.cores,
            deterministic=True,
        )
        .batch(task.batches.shape[1])
        .prefetch(2)
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = task.cores
    options.autotune.enabled = False
    yield from images.with_options(options).as_numpy_iterator()


def _crop(file: Any, size: int) -> Any:
    data = tf.io.read_file(file)
    begin, extent, _ = tf.image.sample_distorted_bounding_box(
        tf.image.extract_jpeg_shape(data),
        tf.zeros([1, 0, 4]),
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(MIN_SCALE, 1.0),
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([begin[:2], extent[:2]], 0)
    part = tf.image.decode_and_crop_jpeg(data, window, channels=3)
    return tf.cast(tf.image.resize(part, (size, size)) + 0.5, "uint8")
