"""Export an embedder as a SavedModel: image bytes in, embeddings out."""

import logging
import tempfile
from collections.abc import Callable
from os import PathLike
from pathlib import Path

import keras
import numpy as np

from tfdml._core.arguments import whole
from tfdml._core.embedding_part import (
    check_outputs,
    embedding_part,
    search_metric,
)
from tfdml.export._compact import (
    OutputType,
    check_output_type,
    compact_outputs,
    compact_signature,
)
from tfdml.export._description import new_description
from tfdml.export._in_graph import training_form
from tfdml.export._text_tower import check_text_tower, outputs_of_texts
from tfdml.files import short_names
from tfdml.images import View
from tfdml.messages import shown
from tfdml.model_version import (
    DESCRIBE,
    DESCRIPTION_FILE,
    IMAGES_AT_ONCE,
    TEXT_INPUT,
    TEXT_SIGNATURE,
    describing,
    description_text,
    write_whole,
)
from tfdml.ops import unit_rows


@short_names()
def export_embedder(
    embedder: keras.Model,
    folder: str | PathLike[str],
    view: View | None = None,
    *,
    output_dtype: OutputType = "float32",
    dimensions: int | None = None,
    text: keras.Model | None = None,
    complete: Callable[[Path], None] | None = None,
) -> None:
    """Write a SavedModel that needs neither Keras nor tfdml to run.

    Its signatures take any number of rows, also none:

    - `serving_default`: input `image_bytes`, DT_STRING `[batch]`, each an encoded
      JPEG, PNG, GIF (first frame), still WebP, or 24 or 32 bit BMP; output
      `embedding`, float32 `[batch, dimension]`, unit rows, except from an embedder
      that was built with `unit_length=False`. An alpha channel is
      composited on white, and the image is brought into the view by an antialiased
      bilinear filter, as the training reader does. TensorFlow sees neither the EXIF
      orientation nor the transparent color of a GIF: bring such images into the
      training form before you send them (`serving.client` does).
    - `tensors`: input `images`, uint8 `[batch, size, size, 3]`, upright RGB already of
      the embedder's size; output `embedding`.
    - `embed_float16` or `embed_int8`, where that type was asked for: as
      `serving_default`, but in that type, with an output `scale` beside int8;
      `restore_embeddings` turns them back.
    - of another view than the squash, one more, such as `view_256` or
      `view_256_padded`: input `image_bytes`, output `images`, uint8
      `[batch, size, size, 3]`, what the embedder sees of them. Its name shows clients
      the view (`View.of_signatures`).
    - `text`, with a text tower: input `texts`, DT_STRING `[batch]`, in UTF-8; output
      `embedding`, comparable with those of images.
    - `describe`: input `request`, DT_STRING `[batch]`, whose values say nothing; output
      `description`, for each row the text of `assets/tfdml.json`
      (`tfdml.export`).

    The folder appears when it is complete.

    Args:
        embedder: Model with one input `[batch, size, size, 3]`, RGB of 0 to 255. Its
            rows are scaled to length 1, unless it was built with `unit_length=False`,
            which the description says (`metric`). A last layer `Proxies` or
            `ClassBoundaries` is left out.
        folder: Where the SavedModel goes; it must not exist.
        view: What the embedder saw of its training images; by default they were
            squashed.
        output_dtype: `"float16"` or `"int8"` adds a signature with embeddings of that
            type. The default adds none.
        dimensions: How many of the first numbers of an embedding all signatures return,
            scaled to length 1 again: for an embedder that a Matryoshka loss trained.
            Default: all.
        text: A text tower that was trained together with the embedder: a Keras model
            from texts, strings `[batch]` or `[batch, 1]`, to `[batch, dimension]` of
            the same dimension. It must hold its tokenizer, such as a
            `TextVectorization`. Its rows are scaled as those of the embedder are.
            Default: none.
        complete: Is given the folder that holds the SavedModel before it gets its
            name, to add files; what it raises undoes the export.

    Raises:
        FileExistsError: `folder` exists.
        ValueError: The embedder's input is not a square RGB image of a fixed size
            or its output not one embedding per image (it has several outputs, or ends
            in a layer of proxies of your own), `view` is of another size, there is no
            such type, embeddings of any length are asked for in another one than
            float32, `dimensions` are more than the embedder has, or `text` does not
            make embeddings of that dimension of texts.
        RuntimeError: Keras does not run on TensorFlow.
    """
    embedder = checked_embedder(embedder)
    shown_view = checked_view(embedder, view)
    check_output_type(output_dtype)
    kept = checked_dimensions(embedder, dimensions)
    if text is not None:
        check_text_tower(text, embedder.output_shape[1])
    if output_dtype != "float32" and search_metric(embedder) != "cosine":
        raise ValueError(
            "`output_dtype` must be 'float32' with embeddings of any length, which the "
            f"smaller types cannot hold. Received: output_dtype={shown(output_dtype)}."
        )

    def write(unfinished: Path) -> None:
        _write(embedder, shown_view, output_dtype, kept, text, unfinished)
        if complete is not None:
            complete(unfinished)

    write_whole(folder, write)


def checked_view(embedder: keras.Model, view: View | None) -> View:
    """Return the view of an embedder, the squash without one.

    Raises:
        ValueError: It is of another size.
    """
    size = embedder.input_shape[1]
    if view is not None and view.image_size != size:
        raise ValueError(
            "`view` must have the size of the embedder's input, "
            f"{size}. Received: {view}."
        )
    return View(size) if view is None else view


def checked_dimensions(embedder: keras.Model, dimensions: int | None) -> int:
    """Return how many numbers of an embedding to keep, all if `dimensions` is None.

    Raises:
        ValueError: The embedder has fewer, or it is not a whole number from 1.
    """
    dimension: int = embedder.output_shape[1]
    if dimensions is None:
        return dimension
    kept = whole("dimensions", dimensions)
    if kept > dimension:
        raise ValueError(
            f"`dimensions` must be from 1 to {dimension}, the numbers of an embedding. "
            f"Received: dimensions={shown(dimensions)}."
        )
    return kept


def checked_embedder(embedder: keras.Model) -> keras.Model:
    """Check a model and return the part of it that ends in the embeddings.

    Raises:
        RuntimeError: Keras does not run on TensorFlow.
        ValueError: It is no embedder of square images.
    """
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "An export needs Keras on TensorFlow: set KERAS_BACKEND=tensorflow before "
            f"Python starts. Received: {keras.backend.backend()}. (A .keras file may "
            "come from any backend.)"
        )
    if not isinstance(embedder, keras.Model):
        raise ValueError(
            "`embedder` must be a Keras model; `tfdml.models.load_embedder` reads one "
            f"from a file. Received: {shown(embedder)}."
        )
    remedy = "Give the model that ends in the embeddings."
    shape = getattr(embedder, "input_shape", None)
    match shape:
        case (_, int(height), int(width), 3) if height == width:
            pass
        case _:
            raise ValueError(
                "`embedder` must have one input of the shape [batch, size, size, 3]. "
                f"Received: {shown(shape)}."
            )
    part = embedding_part(embedder, remedy)
    shape = getattr(part, "output_shape", None)
    match shape:
        case (_, int()):
            pass
        case _:
            raise ValueError(
                "`embedder` must have one output of the shape [batch, dimension]. "
                f"Received: {shown(shape)}."
            )
    check_outputs(part, np.zeros((1, height, width, 3), "float32"), remedy)
    return part


def _write(
    embedder: keras.Model,
    view: View,
    output_dtype: OutputType,
    dimension: int,
    text: keras.Model | None,
    folder: Path,
) -> None:
    import tensorflow as tf

    size = view.image_size
    metric = search_metric(embedder)
    bytes_in = tf.TensorSpec([None], tf.string, name="image_bytes")
    pixels_in = tf.TensorSpec([None, size, size, 3], tf.uint8, name="images")

    def training_forms(image_bytes: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(
            lambda data: training_form(data, view),
            image_bytes,
            fn_output_signature=tf.TensorSpec([size, size, 3], tf.float32),
            parallel_iterations=IMAGES_AT_ONCE,
        )

    def rows_of(outputs: tf.Tensor) -> tf.Tensor:
        # float32 also from a network of mixed precision.
        rows = tf.cast(outputs, tf.float32)[:, :dimension]
        # A loss that scales the rows itself may have trained a network whose rows have
        # other lengths, which mean nothing.
        return unit_rows(rows) if metric == "cosine" else rows

    def embed(pixels: tf.Tensor) -> tf.Tensor:
        # TensorFlow 2.20 fuses convolution and batch normalization on CPUs into an
        # operation that fails on a batch of no rows.
        return tf.cond(
            tf.equal(tf.shape(pixels)[0], 0),
            lambda: tf.zeros([0, dimension]),
            lambda: rows_of(embedder(pixels, training=False)),
        )

    def embed_bytes(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"embedding": embed(training_forms(image_bytes))}

    def embed_compact(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        return compact_outputs(embed(training_forms(image_bytes)), output_dtype)

    def show_view(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"images": tf.cast(training_forms(image_bytes), tf.uint8)}

    def embed_tensors(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"embedding": embed(tf.cast(images, tf.float32))}

    def embed_texts(texts: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"embedding": rows_of(outputs_of_texts(text, texts))}

    endpoints = {
        "serving_default": (embed_bytes, bytes_in),
        "tensors": (embed_tensors, pixels_in),
    }
    types = dict.fromkeys(endpoints, "float32")
    if output_dtype != "float32":
        name = compact_signature(output_dtype)
        endpoints[name] = (embed_compact, bytes_in)
        types[name] = output_dtype
    if text is not None:
        endpoints[TEXT_SIGNATURE] = (
            embed_texts,
            tf.TensorSpec([None], tf.string, name=TEXT_INPUT),
        )
        types[TEXT_SIGNATURE] = "float32"
    if view.resize:
        endpoints[view.signature] = (show_view, bytes_in)

    # Not keras.export.ExportArchive: that of Keras 3.15 loses assets which it is asked
    # to track, and builds the path they had into the graph.
    module = tf.Module()
    module.variables_of_embedder = [variable.value for variable in embedder.variables]
    module.text_tower = text  # with the tables of its tokenizer
    signatures = {
        name: tf.function(function, input_signature=[spec], autograph=False)
        for name, (function, spec) in endpoints.items()
    }
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / Path(DESCRIPTION_FILE).name
        whole_dimension = embedder.output_shape[1]
        description = new_description(view, dimension, types, metric, whole_dimension)
        file.write_text(description_text(description), encoding="utf-8")
        module.description = tf.saved_model.Asset(str(file))
        signatures[DESCRIBE] = describing(module.description)
        # In a notebook TensorFlow notes that it wrote into the unfinished folder.
        logger = tf.get_logger()
        level = logger.level
        logger.setLevel(max(level, logging.WARNING))
        try:
            tf.saved_model.save(module, str(folder), signatures=signatures)
        finally:
            logger.setLevel(level)
