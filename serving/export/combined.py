"""Write one SavedModel that embeds and searches: image bytes in, names out.

The signatures of the embedder stay; `search` joins. The index goes in as it is, number
by number, so that the answers are those of the index by itself. ScaNN's TensorFlow
operators do the search: a server must have them (docs/export.md).
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.images import View
from tfdml.index import IndexSettings, LocalIndex
from tfdml.messages import shown
from tfdml.model_version import (
    DESCRIBE,
    DESCRIPTION_FILE,
    describing,
    description_text,
    read_description,
    update_description,
    write_whole,
)

from ..endpoint.models.calibration import calibration_of_model, save_calibration
from ..endpoint.models.saved_model import find_model_version, model_fingerprint
from ..endpoint.models.scann_operators import import_scann_operators
from ..endpoint.models.servable import DEFAULT_SIGNATURE, Servable
from ..endpoint.warm_up import read_warm_up_requests
from ..search.gallery.gallery import Gallery, load_gallery
from .exporting import MOST_IMAGES, check_destination, warm_up_with
from .warm_up_images import synthetic_image

SEARCH = "search"
"""Name of the signature."""

# The inputs of ScaNN's operator `tensors_to_scann` in its order, and the files that
# ScaNN writes them to. The two without a file are of a quantised reordering, which
# `LocalIndex` has not.
_STATE = (
    ("dataset", "dataset.npy", "float32"),
    ("scann_config", "scann_config.pb", "string"),
    ("serialized_partitioner", "serialized_partitioner.pb", "string"),
    ("datapoint_to_token", "datapoint_to_token.npy", "int32"),
    ("ah_codebook", "ah_codebook.pb", "string"),
    ("hashed_dataset", "hashed_dataset.npy", "uint8"),
    ("int8_dataset", "", "int8"),
    ("int8_multipliers", "", "float32"),
    ("dp_norms", "", "float32"),
)


@dataclass(frozen=True)
class CombineReport:
    """A model and an index that were joined; as text, a summary.

    Args:
        gallery: The gallery that is searched.
        images: How many images it has.
        destination: Folder of the version.
        neighbors: How many images a query finds.
        method: How ScaNN searches, see `tfdml.index.IndexSettings`.
    """

    gallery: Gallery
    images: int
    destination: Path
    neighbors: int
    method: str

    def __str__(self) -> str:
        """Return it as one line."""
        return (
            f"Joined version {self.gallery.model_version} of "
            f"{self.gallery.model_name!r} and {self.images} images "
            f"({self.method} search) in {self.destination}: the signature `{SEARCH}` "
            f"returns the {self.neighbors} nearest."
        )


def combine(
    model: str | PathLike[str],
    index_folder: str | PathLike[str],
    destination: str | PathLike[str],
    *,
    neighbors: int = 10,
) -> CombineReport:
    """Join an exported embedder and the index that it made into one SavedModel.

    Its signature `search` takes `image_bytes`, DT_STRING `[batch]`, and returns `ids`,
    the paths of the nearest images below the folder that was indexed, DT_STRING
    `[batch, neighbors]`, and `scores`, their cosine similarities, float32, best first.

    Args:
        model: What `tfdml export` wrote, base path or version.
        index_folder: What `tfdml index build` wrote with that version.
            What was added and removed since counts too; the folder stays as it is.
        destination: MODEL_BASE_PATH/VERSION, which must not exist.
        neighbors: How many images a query finds, from 1 to all.

    Returns:
        The report.

    Raises:
        FileExistsError: The version exists.
        FileNotFoundError: There is no model or no index.
        ValueError: The index is of another model, or a file or argument is not as it
            should be.
        RuntimeError: ScaNN's TensorFlow operators are not available.
    """
    destination = Path(destination)
    check_destination(destination)
    import_scann_operators()
    version = find_model_version(model)
    index, gallery = load_gallery(index_folder)
    if not isinstance(index, LocalIndex):
        raise ValueError(
            f"The index in {shown(str(index_folder))} must hold its items itself to "
            f"become a part of a model. Received: {type(index).__name__}. Build one "
            "without `--store`."
        )
    fingerprint = model_fingerprint(version.folder)
    if index.model_fingerprint != fingerprint:
        raise ValueError(
            f"The index in {shown(str(index_folder))} was built with another model "
            f"than {version.folder}. Build it again with that version."
        )
    if index.metric != "cosine":
        raise ValueError(
            f"The index in {shown(str(index_folder))} must compare by cosine to become "
            "a part of a model, because ScaNN's operators do. Received: "
            f"{shown(index.metric)}. Train with `unit_length` = true in [embedder]."
        )
    if index.dimension != index.embedding_dimension:
        raise ValueError(
            f"The index in {shown(str(index_folder))} must keep all dimensions of its "
            f"embeddings to become a part of a model. Received: {index.dimension} of "
            f"{index.embedding_dimension}. Export the model with `--dimensions "
            f"{index.dimension}` and build the index with that."
        )
    if not 1 <= neighbors <= len(index):
        raise ValueError(
            f"`neighbors` must be from 1 to {len(index)}, the number of images in the "
            f"index. Received: neighbors={neighbors}."
        )
    # ScaNN's files hold all images only where none was added or removed since.
    index.compact()
    settings = _settings_of(index)
    description = read_description(version.folder)
    if description is None:
        raise ValueError(
            f"{version.folder} has no {DESCRIPTION_FILE}: an earlier version exported "
            "it. Export it again and build the index with that."
        )
    description["search"] = {
        "images": len(index),
        "neighbors": neighbors,
        "method": settings.method,
        "embedder_fingerprint": fingerprint,
    }

    def write(folder: Path) -> None:
        _write(version.folder, index, neighbors, description, folder)
        update_description(folder, fingerprint=model_fingerprint(folder))
        calibration = calibration_of_model(version.folder)
        if calibration is not None:
            save_calibration(folder, calibration)
        name = destination.resolve().parent.name.replace(":", "_") or "model"
        servable = Servable(name, int(destination.name), folder)
        view = View(**description["preprocessing"]["config"])
        images, batch_size = _warm_up_images(version.folder)
        if not images:
            images = [synthetic_image(view)]
        warm_up_with(servable, folder, images, view, batch_size)

    write_whole(destination, write)
    return CombineReport(gallery, len(index), destination, neighbors, settings.method)


def _settings_of(index: LocalIndex) -> IndexSettings:
    if index.settings is None:
        raise ValueError("The index must hold at least one image.")
    return index.settings


def _write(
    embedder_folder: Path,
    index: LocalIndex,
    neighbors: int,
    description: dict[str, Any],
    folder: Path,
) -> None:
    import tensorflow as tf

    embedder = tf.saved_model.load(str(embedder_folder))
    signatures = {
        name: function
        for name, function in embedder.signatures.items()
        if name != DESCRIBE
    }
    module = tf.Module()
    # What the signatures above read; not the module itself, whose asset is the
    # description of the embedder alone.
    module.variables_of_embedder = embedder.variables_of_embedder
    module.ids = tf.Variable(index.ids.astype(object), dtype=tf.string, trainable=False)
    module.state = _state(index)
    nearest = _nearest(module.state, index, neighbors)

    def search(image_bytes: Any) -> dict[str, Any]:
        found = signatures[DEFAULT_SIGNATURE](image_bytes=image_bytes)
        rows, scores = nearest(found["embedding"])
        return {"ids": tf.gather(module.ids, rows), "scores": scores}

    spec = tf.TensorSpec([None], tf.string, name="image_bytes")
    signatures[SEARCH] = tf.function(search, input_signature=[spec], autograph=False)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / Path(DESCRIPTION_FILE).name
        file.write_text(description_text(description), encoding="utf-8")
        module.description = tf.saved_model.Asset(str(file))
        signatures[DESCRIBE] = describing(module.description)
        options = tf.saved_model.SaveOptions(namespace_whitelist=["Scann"])
        tf.saved_model.save(module, str(folder), signatures, options)


def _state(index: LocalIndex) -> list[Any]:
    """Return what ScaNN saves of an index, as variables for its operator."""
    import tensorflow as tf

    values: list[Any] = []
    with tempfile.TemporaryDirectory() as place:
        index.write_scann(place)
        for _, name, dtype in _STATE:
            file = Path(place) / name
            if not file.is_file():
                # The operator takes a scalar for what is not there.
                values.append(b"" if dtype == "string" else np.zeros((), dtype))
            elif dtype == "string":
                values.append([file.read_bytes()])
            else:
                values.append(np.load(file, allow_pickle=False))
    return [
        tf.Variable(value, dtype=dtype, name=name, trainable=False)
        for (name, _, dtype), value in zip(_STATE, values, strict=True)
    ]


def _nearest(
    state: list[Any], index: LocalIndex, neighbors: int
) -> Callable[[Any], tuple[Any, Any]]:
    """Make the function that searches in the graph as `LocalIndex.search` does."""
    import tensorflow as tf

    scann = import_scann_operators()
    settings, count = _settings_of(index), len(index)
    reordered, some, all_leaves = -1, -1, -1  # the operator's words for "not used"
    if settings.method != "exact":
        reordered = settings.candidates(neighbors, count)
    if settings.method == "tree":
        all_leaves = settings.leaves
        some = settings.leaves_for(neighbors, count)

    def search(queries: Any, leaves: int) -> tuple[Any, Any]:
        searcher = scann.ScannSearcher(scann.tensors_to_scann(*state))
        rows, scores = searcher.search_batched(queries, neighbors, reordered, leaves)
        return rows, scores

    def search_some(queries: Any) -> tuple[Any, Any]:
        rows, scores = search(queries, some)
        if some == all_leaves:
            return rows, scores
        # Where the leaves of a query hold too few rows, the operator fills up with the
        # id 0 and NaN; where those of all queries do, it returns fewer columns.
        is_short = tf.shape(rows)[1] < neighbors
        return tf.cond(
            is_short | tf.reduce_any(tf.math.is_nan(scores)),
            lambda: search(queries, all_leaves),
            lambda: (rows, scores),
        )

    def nearest(embeddings: Any) -> tuple[Any, Any]:
        # In float64, as `LocalIndex` does: rounding decides which leaves are near.
        exact = tf.cast(embeddings, tf.float64)
        lengths = tf.norm(exact, axis=1, keepdims=True)
        # ScaNN answers a NaN with the id 0 for all neighbors.
        has_direction = tf.debugging.Assert(
            tf.reduce_all(tf.math.is_finite(lengths) & (lengths > 0)),
            ["An embedding has no direction: the model cannot search this image."],
        )
        with tf.control_dependencies([has_direction]):
            queries = tf.cast(exact / lengths, tf.float32)
        rows, scores = tf.cond(
            tf.equal(tf.shape(queries)[0], 0),  # which ScaNN refuses
            lambda: (tf.zeros([0, neighbors], tf.int32), tf.zeros([0, neighbors])),
            lambda: search_some(queries),
        )
        shape = [None, neighbors]
        return tf.ensure_shape(rows, shape), tf.ensure_shape(scores, shape)

    return nearest


def _warm_up_images(folder: Path) -> tuple[list[bytes], int]:
    """Return images of an embedder's warm-up requests, and their largest batch.

    The first 64 images are enough, however many requests somebody has written.
    """
    images: dict[bytes, None] = {}
    batch_size = 1
    for request in read_warm_up_requests(folder):
        if request.model_spec.signature_name == DEFAULT_SIGNATURE:
            for tensor in request.inputs.values():
                images.update(dict.fromkeys(tensor.string_val))
                batch_size = max(batch_size, len(tensor.string_val))
    return list(images)[:MOST_IMAGES], batch_size
