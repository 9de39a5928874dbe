"""Export an embedder as one file that other runtimes run: ONNX or LiteRT."""

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np

from tfdml._core.embedding_part import search_metric
from tfdml.export._description import new_description
from tfdml.export._saved_model import (
    checked_dimensions,
    checked_embedder,
    checked_view,
)
from tfdml.files import sha256_of, short_names, written
from tfdml.images import View
from tfdml.layers import L2Normalization
from tfdml.messages import cut, shortened, shown
from tfdml.model_version import description_text

FileFormat = Literal["onnx", "litert"]
"""Format of a single exported file."""

FILE_ENDINGS: dict[str, str] = {"onnx": ".onnx", "litert": ".tflite"}
"""How the name of a file of each format must end."""

INPUT = "images"
OUTPUT = "embedding"

_TRIED = 3  # images on which the file is compared with Keras
_MOST_DIFFERENCE = 1e-3  # of their length; rounding makes less than 1e-5


@short_names()
def export_file(
    embedder: keras.Model,
    file: str | PathLike[str],
    view: View | None = None,
    *,
    format: FileFormat,  # noqa: A002
    dimensions: int | None = None,
    members: Mapping[str, Any] | None = None,
) -> None:
    """Write an embedder as an ONNX or LiteRT file, which needs neither Keras nor tfdml.

    The file takes `images`, uint8 `[batch, size, size, 3]`, RGB pixels of 0 to 255 that
    are already in the view of the embedder, at least one. It returns `embedding`,
    float32 `[batch, dimension]`: unit rows, or rows as they are from an embedder that
    was built with `unit_length=False`. Neither decoding nor resizing is in it:
    `View.central` or any antialiased bilinear filter does that before.

    What it wrote is run and compared with Keras before the file appears. Beside it,
    `FILE.json` describes it, as `assets/tfdml.json` describes a SavedModel.

    Args:
        embedder: As of `export_embedder`. Mixed precision is exported as float32.
        file: Where it goes; its name ends in `.onnx` or `.tflite`. It must not exist.
        view: What the embedder saw of its training images; by default they were
            squashed.
        format: `"onnx"` or `"litert"`.
        dimensions: As of `export_embedder`.
        members: More members of the description, in JSON types.

    Raises:
        FileExistsError: The file exists.
        ImportError: A package is missing; the message names the extra that brings it.
        ValueError: The embedder, view or `dimensions` are refused as by
            `export_embedder`, the file has another ending, or there is no such format.
        RuntimeError: Keras does not run on TensorFlow, the embedder cannot be
            converted, or the file answers otherwise than Keras.
    """
    file = Path(file)
    check_file(file, format)
    convert, run = _tools(format)
    embedder = checked_embedder(embedder)
    view = checked_view(embedder, view)
    kept = checked_dimensions(embedder, dimensions)
    model = _with_pixels(embedder, kept)
    about = view, kept, embedder.output_shape[1], search_metric(embedder)
    description = _description(*about, dict(members or {}))
    images = np.random.default_rng(0).integers(
        0, 256, (_TRIED, *model.input_shape[1:]), "uint8"
    )
    # Before the export: Keras writes no ONNX of a model that was never called.
    expected = keras.ops.convert_to_numpy(model(images, training=False)[OUTPUT])
    with tempfile.TemporaryDirectory(dir=file.absolute().parent) as place:
        made = Path(place) / f"model{FILE_ENDINGS[format]}"
        try:
            with warnings.catch_warnings():
                # The converters warn of their own code: Keras 3.15 of `np.object`.
                warnings.simplefilter("ignore")
                convert(model, made)
            rows = run(made, images)
        except Exception as error:
            raise RuntimeError(
                f"The embedder cannot be written as {format}: {shortened(error)}."
            ) from error
        _compare(rows, expected)
        description["fingerprint"] = sha256_of(made)
        with written(Path(f"{file}.json")) as new:
            new.write_text(description_text(description), encoding="utf-8")
        with written(file) as new:
            shutil.move(made, new)


def check_file(file: Path, format: str) -> None:  # noqa: A002
    """Refuse a file that a format cannot be written to.

    Raises:
        FileExistsError: It exists.
        ValueError: Its name ends otherwise, or there is no such format.
    """
    if format not in FILE_ENDINGS:
        raise ValueError(
            f"`format` must be one of {', '.join(map(repr, FILE_ENDINGS))}. "
            f"Received: format={shown(format)}."
        )
    if file.suffix != FILE_ENDINGS[format]:
        raise ValueError(
            f"`file` must end in {FILE_ENDINGS[format]} with format={shown(format)}. "
            f"Received: {cut(file)}."
        )
    if file.exists():
        raise FileExistsError(f"{cut(file)} exists already. Choose another name.")


Convert = Callable[[keras.Model, Path], None]
Run = Callable[[Path, np.ndarray], np.ndarray]


def _tools(format: str) -> tuple[Convert, Run]:  # noqa: A002
    try:
        if format == "onnx":
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
            import tf2onnx  # noqa: F401

            return _write_onnx, _run_onnx
        import ai_edge_litert.interpreter  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f'The format "{format}" needs packages of its own: pip install '
            f'"tfdml[{format}]" ({shortened(error)}).',
            name=error.name,
        ) from error
    return _write_litert, _run_litert


def _with_pixels(embedder: keras.Model, dimension: int) -> keras.Model:
    """Return the embedder from uint8 pixels to its embeddings, all in float32.

    Of each embedding, the first numbers are kept, `dimension` of them.
    """
    metric = search_metric(embedder)
    if any(layer.compute_dtype != "float32" for layer in _layers(embedder)):
        single = keras.models.clone_model(embedder, clone_function=_in_float32)
        single.set_weights(embedder.get_weights())
        embedder = single
    size = embedder.input_shape[1]
    images = keras.Input((size, size, 3), dtype="uint8", name=INPUT)
    rows = embedder(keras.ops.cast(images, "float32"), training=False)
    if dimension < embedder.output_shape[1]:
        rows = rows[:, :dimension]
    if metric == "cosine":
        rows = L2Normalization(dtype="float32", name="unit_rows")(rows)
    return keras.Model(images, {OUTPUT: rows})


def _layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    for layer in model.layers:
        yield layer
        if isinstance(layer, keras.Model):
            yield from _layers(layer)


def _in_float32(layer: keras.layers.Layer) -> keras.layers.Layer:
    # A class of its own, such as of KerasHub, knows how to build itself.
    if type(layer).__module__.partition(".")[0] == "keras" and isinstance(
        layer, keras.Model
    ):
        return keras.models.clone_model(layer, clone_function=_in_float32)
    return type(layer).from_config({**layer.get_config(), "dtype": "float32"})


def _write_onnx(model: keras.Model, file: Path) -> None:
    import onnx

    _convert_erfc()
    with _tensors_as_arrays(model):
        model.export(str(file), format="onnx", verbose=False)
    # Keras gives no name to the output, and numbers to the size of the batch.
    made = onnx.load(str(file))
    (output,) = made.graph.output
    for node in made.graph.node:
        for names in (node.input, node.output):
            names[:] = [OUTPUT if name == output.name else name for name in names]
    output.name = OUTPUT
    for value in (*made.graph.input, output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.checker.check_model(made)
    onnx.save(made, str(file))


@contextmanager
def _tensors_as_arrays(model: keras.Model) -> Iterator[None]:
    """Give layers arrays for the tensors they keep, such as KerasHub's positions.

    An array becomes a constant of the graph; a tensor from outside of it would become
    an input of the file.
    """
    import tensorflow as tf

    kept = [
        (vars(layer), name, value)
        for layer in model._flatten_layers()
        for name, value in vars(layer).items()
        if isinstance(value, tf.Tensor)
    ]
    for attributes, name, value in kept:
        attributes[name] = value.numpy()
    try:
        yield
    finally:
        for attributes, name, value in kept:
            attributes[name] = value


def _convert_erfc() -> None:
    """Let tf2onnx write 1 - erf, of the GELU in transformers, which 1.17 cannot."""
    from tf2onnx.handler import tf_op

    class Erfc:
        @classmethod
        def version_9(cls, ctx: Any, node: Any, **_: Any) -> None:
            """Replace the node."""
            shapes, dtypes = node.output_shapes, node.output_dtypes
            ctx.remove_node(node.name)
            erf = ctx.make_node("Erf", node.input, shapes=shapes, dtypes=dtypes)
            one = ctx.make_const(f"{node.name}_one", np.ones((), "float32"))
            ctx.make_node(
                "Sub",
                [one.output[0], erf.output[0]],
                outputs=node.output,
                shapes=shapes,
                dtypes=dtypes,
            )

    tf_op("Erfc")(Erfc)


def _run_onnx(file: Path, images: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(
        str(file), providers=["CPUExecutionProvider"]
    )
    (rows,) = session.run([OUTPUT], {INPUT: images})
    return np.asarray(rows)


def _write_litert(model: keras.Model, file: Path) -> None:
    model.export(str(file), format="litert", verbose=False)


def _run_litert(file: Path, images: np.ndarray) -> np.ndarray:
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(model_path=str(file)).get_signature_runner()
    return np.asarray(runner(**{INPUT: images})[OUTPUT])


def _compare(rows: np.ndarray, expected: np.ndarray) -> None:
    difference = 2.0
    if rows.shape == expected.shape:
        longest = np.linalg.norm(expected, axis=1).max(initial=1)
        difference = float(np.abs(rows - expected).max() / longest)
    if not difference <= _MOST_DIFFERENCE:
        raise RuntimeError(
            "The exported file answers otherwise than Keras, by up to "
            f"{difference:.2g}; nothing was written."
        )


def _description(
    view: View, dimension: int, cut_from: int, metric: str, members: dict[str, Any]
) -> dict[str, Any]:
    description = new_description(view, dimension, {}, metric, cut_from)
    pixels = description["preprocessing"]
    for name in ("exif_orientation", "formats"):  # of decoding, which others do
        del pixels[name]
    del description["embedding"]["signatures"]
    side = view.image_size
    described = {"dtype": "uint8", "shape": [None, side, side, 3]}
    description["input"] = {"name": INPUT, **described}
    described = {"dtype": "float32", "shape": [None, dimension]}
    description["output"] = {"name": OUTPUT, **described}
    return {**description, **members}
