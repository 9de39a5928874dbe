"""Choose images to warm an exported model up: real ones of its training, if any.

A server runs the requests before it answers others, so that the first client does not
wait for what TensorFlow does once for each signature and size of batch.
"""

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.images import UnreadableImageError, View, encode_png, find_images, read_image
from tfdml.text_files import read_text, records_of

from ..endpoint.models.servable import DEFAULT_SIGNATURE, Servable
from ..web.status import StatusError

MOST_ROWS = 32
"""Most rows of a request: a server that batches refuses one above its `max_batch_size`,
and then the version."""

_MOST_BYTES = 1_000_000  # of an image that is sent as it is
_BYTES_IN = "image_bytes"
_PIXELS_IN = "images"


def training_images(run: str | PathLike[str]) -> list[Path]:
    """Find the images that a run trained on, where they still are.

    Args:
        run: The run folder; with `recipe.json` and `splits.json`.

    Returns:
        Files, perhaps none: the recipe is not there or damaged, or the images have
        gone.
    """
    try:
        recipe = json.loads((Path(run) / "recipe.json").read_text("utf-8"))
        images = Path(recipe["data"]["images"])
        if images.suffix.lower() == ".csv":
            root = Path(recipe["data"].get("root") or images.parent)
            rows = _training_rows(images, Path(run))
            # Two boxes of one image are two rows.
            return list(dict.fromkeys(root / row["path"] for row in rows))
        trained = _trained(Path(run))
        return [
            images / path
            for path in find_images(images, skip_unreadable=True).paths
            if path.partition("/")[0] in trained
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _trained(run: Path) -> set[str]:
    splits = json.loads((run / "splits.json").read_text("utf-8"))
    return set(splits["train"])


def _training_rows(manifest: Path, run: Path) -> list[dict[str, str]]:
    columns, *rows = (cells for _, cells in records_of(read_text(manifest)))
    table = [dict(zip(columns, cells, strict=True)) for cells in rows]
    if "split" in columns:
        return [row for row in table if row["split"] == "train"]
    trained = _trained(run)
    # Continuous labels have no classes, and a run lists paths.
    return [row for row in table if row.get("label", row["path"]) in trained]


def encoded_images(
    files: Sequence[Path],
    count: int,
    servable: Servable,
    view: View,
    *,
    skip_unreadable: bool = False,
) -> list[bytes]:
    """Read images as clients send them.

    Args:
        files: From which `count` are taken, from all over the list.
        count: How many, at least 1; fewer where there are fewer.
        servable: The model. A file that its graph does not decode, or that is larger
            than 1 MB, becomes the PNG that `serving.client` makes of it.
        view: The view of the model.
        skip_unreadable: Leave out files that are broken or gone.

    Returns:
        The encoded images.

    Raises:
        UnreadableImageError: A file is not an image; the message names it.
        FileNotFoundError: There is no such file.
    """
    count = min(count, len(files))
    positions = [index * len(files) // count for index in range(count)]
    images = []
    for file in (files[position] for position in positions):
        try:
            pixels = read_image(file)
            data = file.read_bytes()
        except (OSError, UnreadableImageError):
            if skip_unreadable:
                continue
            raise
        if len(data) > _MOST_BYTES or not _is_decoded(data, servable):
            data = encode_png(view.reduced(pixels))
        images.append(data)
    return images


def _is_decoded(data: bytes, servable: Servable) -> bool:
    try:
        servable.predict({_BYTES_IN: _rows([data])})
    except StatusError:
        return False
    return True


def synthetic_image(view: View) -> bytes:
    """Make an image that stands in for real ones: seeded noise, as a PNG."""
    side = max(view.resize, view.image_size)
    generator = np.random.default_rng(0)
    return encode_png(generator.integers(0, 256, (side, side, 3), dtype=np.uint8))


def warm_up_requests(
    servable: Servable, images: Sequence[bytes], view: View, batch_size: int
) -> list[Any]:
    """Make requests for every signature that takes images.

    Args:
        servable: The model that is to be warmed up.
        images: Encoded images, at least one, which its graph decodes.
        view: The view of the model.
        batch_size: Rows of the large requests, which have 32 at most; images repeat
            where they are fewer.

    Returns:
        `PredictRequest` messages: each image alone for `serving_default`, and one
        image and a batch of them for each signature that takes images.
    """
    seen = [view.central(read_image(image)) for image in images]
    order = np.arange(min(batch_size, MOST_ROWS)) % len(images)
    together, pixels = _rows(images)[order], np.stack(seen)[order]
    requests = [
        _request(servable, DEFAULT_SIGNATURE, _BYTES_IN, _rows([image]))
        for image in images[1:]
    ]
    batches = {_BYTES_IN: together, _PIXELS_IN: pixels}
    for name, signature in servable.signatures.items():
        for key, rows in batches.items():
            if set(signature.inputs) == {key}:
                requests.append(_request(servable, name, key, rows[:1]))
                requests.append(_request(servable, name, key, rows))
    return requests


def _rows(images: Sequence[bytes]) -> np.ndarray:
    return np.array(images, dtype=object)


def _request(servable: Servable, signature: str, key: str, rows: np.ndarray) -> Any:
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name = servable.name
    request.model_spec.signature_name = signature
    request.inputs[key].CopyFrom(tf.make_tensor_proto(rows))
    return request
