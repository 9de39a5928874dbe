"""Make what the benchmarks of the endpoint serve and send: models, images, answers."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.serving.requests import predict_message

MODELS = {
    "tiny": {"image_size": 32, "widths": (8, 16)},
    "demo": {"image_size": 64, "widths": (32, 64, 128, 128)},
    "mobilenet": {"image_size": 224, "backbone": "MobileNetV2"},
    "resnet": {"image_size": 224, "backbone": "ResNet50"},
}
"""Arguments of `build_embedder`. The second is of the kind that the demo trains."""

_SMALLEST, _LARGEST = 15_000, 60_000  # bytes


def photographs(count: int) -> list[bytes]:
    """Return JPEGs of 15 to 60 kB, cut out of scikit-image's photographs.

    Raises:
        ValueError: Fewer than `count` of those that are cut are of such a size.
    """
    from benchmarks.photographs import write_photographs

    with tempfile.TemporaryDirectory() as folder:
        files = write_photographs(Path(folder), 4 * count + 8)
        encoded = [file.read_bytes() for file in files]
    found = [data for data in encoded if _SMALLEST <= len(data) <= _LARGEST]
    if len(found) < count:
        raise ValueError(
            f"{count} photographs of {_SMALLEST} to {_LARGEST} bytes are wanted. "
            f"Found: {len(found)}."
        )
    return found[:count]


def export_model(
    name: str, folder: Path, seed: int = 0, warm_up: Sequence[bytes] = ()
) -> None:
    """Write the version of a model; its weights are random.

    Args:
        name: One of `MODELS`.
        folder: Folder of the version, which must not exist.
        seed: Of the weights; another seed gives other embeddings.
        warm_up: Images of the warm-up requests, one each, and one of them all.
    """
    import keras

    from tfdml.export import export_embedder
    from tfdml.models import build_embedder

    keras.utils.set_random_seed(seed)
    export_embedder(build_embedder(**MODELS[name]), folder)  # type: ignore[arg-type]
    if warm_up:
        from serving.endpoint.warm_up import write_warm_up_requests

        batches = [*([data] for data in warm_up), list(warm_up)]
        requests = [predict_message({"image_bytes": batch}) for batch in batches]
        write_warm_up_requests(folder, requests)


def references(folder: Path, images: Sequence[bytes]) -> np.ndarray:
    """Embed images one by one with the SavedModel itself.

    Args:
        folder: Folder of the version.
        images: Encoded images.

    Returns:
        float32 `[images, dimension]`.

    Raises:
        ValueError: Two images have nearly the same embedding, so that an answer
            that belongs to another image could not be told from the expected one.
    """
    import tensorflow as tf

    embed = tf.saved_model.load(str(folder)).signatures["serving_default"]
    rows = np.concatenate(
        [embed(image_bytes=tf.constant([p]))["embedding"].numpy() for p in images]
    )
    apart = np.abs(rows[:, None] - rows).max(axis=-1)
    np.fill_diagonal(apart, np.inf)
    if apart.min() < 1e-3:
        raise ValueError(
            "The embeddings of different images must differ by at least 1e-3. "
            f"Received: {apart.min():.1e}."
        )
    return rows
