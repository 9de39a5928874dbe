"""A small search whose answers can be worked out by hand, shared by its tests.

The model embeds an image as the average colors of its four quarters, scaled to length
1. The gallery has the classes red, green and blue.
"""

import contextlib
import io
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import numpy as np
from PIL import Image

from serving.endpoint.models.calibration import save_calibration
from serving.endpoint.models.saved_model import model_fingerprint
from serving.search.app.app import create_app
from serving.search.gallery.gallery import load_gallery, save_gallery
from serving.search.gallery.indexing import index_images
from tests.support.running_server import running
from tests.support.served import load_servable, rest_app
from tfdml.metrics import Calibration
from tfdml.model_version import (
    DESCRIBE,
    DESCRIPTION_FILE,
    FORMAT,
    describing,
    description_text,
    update_description,
)

MAX_UPLOAD_BYTES = 200_000
SIZE = 16
DIMENSION = 12
PURE = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
SHADES = {"clear": 0, "pale": 60, "paler": 120}


def write_color_model(
    folder: Path, *, tint: tuple[float, ...] = (1, 1, 1), is_described: bool = True
) -> Path:
    """Export the quarter-color model as one version.

    Args:
        folder: Folder of the version.
        tint: Weights of the channels.
        is_described: Whether it tells its fingerprint, as exported models do.
    """
    import tensorflow as tf

    class QuarterColors(tf.Module):
        def __init__(self) -> None:
            self.tint = tf.Variable(tint, dtype=tf.float32)

        @tf.function(input_signature=[tf.TensorSpec([None, SIZE, SIZE, 3], tf.uint8)])
        def tensors(self, images):
            pixels = tf.cast(images, tf.float32) * self.tint
            half = SIZE // 2
            quarters = tf.nn.avg_pool2d(pixels, half, half, "VALID")
            rows = tf.reshape(quarters, [-1, DIMENSION])
            return {"embedding": tf.math.l2_normalize(rows, axis=1)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def encoded(self, image_bytes):
            def decode(encoded):
                image = tf.io.decode_image(encoded, 3, expand_animations=False)
                image.set_shape([None, None, 3])
                return tf.cast(tf.image.resize(image, [SIZE, SIZE]), tf.uint8)

            return self.tensors(
                tf.map_fn(decode, image_bytes, fn_output_signature=tf.uint8)
            )

    module = QuarterColors()
    signatures = {"serving_default": module.encoded, "tensors": module.tensors}
    if not is_described:
        tf.saved_model.save(module, str(folder), signatures=signatures)
        return folder
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / Path(DESCRIPTION_FILE).name
        file.write_text(description_text({"format": FORMAT}), encoding="utf-8")
        module.description = tf.saved_model.Asset(str(file))
        signatures[DESCRIBE] = describing(module.description)
        tf.saved_model.save(module, str(folder), signatures=signatures)
    update_description(folder, fingerprint=model_fingerprint(folder))
    return folder


def write_image(file: Path, color: tuple[int, ...], size=(24, 20)) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(file)
    return file


def write_gallery_images(folder: Path) -> Path:
    """Three shades of three colors: `red/clear.png`, `red/pale.png`, ..."""
    for name, pure in PURE.items():
        for shade, white in SHADES.items():
            color = tuple(max(channel, white) for channel in pure)
            write_image(folder / name / f"{shade}.png", color)
    return folder


def calibration_at(threshold: float) -> Calibration:
    """A calibration of this threshold; its rates are made up."""
    rates = "precision", 0.9, 0.925, 0.8, 0.0625, 0.85, 0.96
    return Calibration(threshold, *rates, queries=200, answered=150, gallery=200)


def copy_index(index_folder: Path, folder: Path, **changes) -> Path:
    """Save an index to another folder, with changes of its `Gallery`."""
    index, gallery = load_gallery(index_folder)
    with index:
        save_gallery(folder, index, replace(gallery, **changes))
    return folder


def copy_search(search: Path, folder: Path) -> Path:
    """Copy `images` and `index` of a search, for a test that changes them."""
    shutil.copytree(search / "images", folder / "images")
    copy_index(search / "index", folder / "index", root=folder / "images")
    return folder


def build_search(folder: Path, *, threshold: float | None = None) -> Path:
    """Export `models/colors/1`, write `images` and index them in `index`.

    With a threshold, the model is calibrated.
    """
    models = folder / "models" / "colors"
    write_color_model(models / "1")
    if threshold is not None:
        save_calibration(models / "1", calibration_at(threshold))
    write_gallery_images(folder / "images")
    index_images(folder / "images", folder / "index", models)
    return folder


def quarter_colors(image: np.ndarray) -> np.ndarray:
    """The definition of the model, in NumPy, for an image of even sides."""
    half = image.shape[0] // 2
    rows = [image[:half], image[half:]]
    quarters = [part for row in rows for part in (row[:, :half], row[:, half:])]
    means = np.concatenate(
        [part.mean(axis=(0, 1), dtype=np.float64) for part in quarters]
    )
    return means / np.linalg.norm(means)


def endpoint_of(base_path: Path, **options):
    """Make the real endpoint of an exported model, under the name of its folder."""
    return rest_app([load_servable(base_path.name, base_path)], **options)


@contextlib.contextmanager
def serve_model(base_path: Path, **options) -> Iterator[str]:
    """Serve an exported model on the real endpoint; gives the address of the model."""
    with running(endpoint_of(base_path, **options)) as address:
        yield f"{address}/v1/models/{base_path.name}"


@contextlib.contextmanager
def page_of(search, **options) -> Iterator[httpx2.Client]:
    """Serve the page of a search; gives a client of it."""
    with (
        running(create_app(search, **options)) as address,
        httpx2.Client(base_url=address, timeout=60) as client,
    ):
        yield client


def encoded(color, kind="PNG", size=(30, 40)) -> bytes:
    """An image of one color."""
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, format=kind)
    return buffer.getvalue()


def post(page: httpx2.Client, content: bytes, **fields) -> httpx2.Response:
    """Search with an uploaded image."""
    return page.post("/api/search", files={"image": ("query", content)}, data=fields)


def error_of(response: httpx2.Response, status: int) -> str:
    """Return the text of an error, which must have this status."""
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    return response.json()["error"]
