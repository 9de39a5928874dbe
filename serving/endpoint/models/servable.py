"""Load one version of a SavedModel, and run it: arrays in, arrays out.

Nothing here knows HTTP or JSON, so that every protocol answers from the same core.
TensorFlow is imported when a model is loaded; Keras and `tfdml` are not needed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tfdml.command_parser import command
from tfdml.messages import bounded, cut, shown
from tfdml.text_operators import register_text_operators

from ...web.status import StatusCode, StatusError, refuse
from .scann_operators import register_scann_operators

DEFAULT_SIGNATURE = "serving_default"

METHOD_PREFIX = "tensorflow/serving/"
"""What the method names of signatures begin with."""

KIND_OF_METHOD = {"classify": "classification", "regress": "regression"}
"""TF Serving's word for the signature that a method needs."""

MAP_FN_AT_ONCE = 10
"""How many elements `tf.map_fn` handles at one time where a graph does not say it."""


_TYPE_NAMES = {"float16": "half", "float32": "float", "float64": "double"}


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a signature.

    Attributes:
        dtype: TensorFlow's name of the type, such as "float32" or "string".
        shape: Sizes, None where any size fits; None as a whole if the rank is unknown.
    """

    dtype: str
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class Signature:
    """What a signature takes and returns, by name."""

    method_name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]


class Servable:
    """A loaded version of a model. `predict` may be called from several threads.

    Attributes:
        name: Name under which the model is served.
        version: Number of the version.
        signature_defs: The signature definitions as `saved_model.pb` holds them.
        signatures: The signatures that can be called.
        fingerprint: Digest of its graph and weights, if it is known.
        images_at_once: How many images it decodes at one time.

    Args:
        name: Name under which the model is served; without "/" and ":".
        version: Number of the version, at least 0.
        folder: Folder that holds `saved_model.pb`.
        fingerprint: Digest of graph and weights, which answers name.
        images_at_once: How many images it decodes at one time, at least 1.

    Raises:
        ValueError: The name is not allowed in an address, or the folder does not hold a
            SavedModel that this TensorFlow can load.
    """

    def __init__(
        self,
        name: str,
        version: int,
        folder: str | PathLike[str],
        *,
        fingerprint: str | None = None,
        images_at_once: int = MAP_FN_AT_ONCE,
    ) -> None:
        if not re.fullmatch("[^/:]+", name):
            raise ValueError(
                "`name` must have at least one character and neither '/' nor ':'. "
                f"Received: name={shown(name)}."
            )
        import tensorflow as tf

        self.name = name
        self.version = version
        self.fingerprint = fingerprint
        self.images_at_once = images_at_once
        try:
            self.signature_defs = _read_signature_defs(Path(folder))
            register_text_operators(folder)
            # Kept, because a signature alone does not hold its variables alive.
            self._model = tf.saved_model.load(str(folder), tags=["serve"])
        except Exception as error:  # the loader raises whatever it stumbles over
            reason = cut(f"{type(error).__name__}: {readable_error(str(error))}", 200)
            raise ValueError(
                f"Version {version} of model {shown(name)} cannot be loaded from "
                f"{shown(str(folder))} ({reason}). "
                "Export it again, or remove this version."
            ) from error
        self.signatures = {
            key: _signature(self.signature_defs[key])
            for key in self._model.signatures
            if key in self.signature_defs
        }
        if not self.signatures:
            raise ValueError(
                f"Version {version} of model {shown(name)} in {shown(str(folder))} has "
                "no signature to call. Export it with "
                f"`{command('serving', 'export')}`."
            )

    def signature(self, name: str) -> Signature:
        """Return a signature that can be called.

        Raises:
            StatusError: There is none of this name.
        """
        if name not in self.signatures:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION,
                f'Serving signature key "{name}" not found.',
            )
        return self.signatures[name]

    def predict(
        self,
        inputs: Mapping[str, np.ndarray],
        signature_name: str = DEFAULT_SIGNATURE,
    ) -> dict[str, np.ndarray]:
        """Run a signature.

        Args:
            inputs: One array for each input of the signature, of its dtype (string:
                object array of bytes) and a shape that fits.
            signature_name: Which signature.

        Returns:
            One array for each output.

        Raises:
            StatusError: The inputs do not fit the signature, or the model refuses
                them or fails.
        """
        import tensorflow as tf

        signature = self.signature(signature_name)
        _check_inputs(inputs, signature.inputs)
        try:
            tensors = {
                key: tf.constant(inputs[key], dtype=spec.dtype)
                for key, spec in signature.inputs.items()
            }
            outputs = self._model.signatures[signature_name](**tensors)
            return {key: output.numpy() for key, output in outputs.items()}
        except tf.errors.OpError as error:
            raise StatusError(
                StatusCode(error.error_code), readable_error(error.message)
            ) from error


def refuse_method(servable: Servable, signature_name: str, method: str) -> NoReturn:
    """Refuse to classify or regress, over any protocol.

    Args:
        servable: The version that was asked.
        signature_name: Which signature of it.
        method: "classify" or "regress".

    Raises:
        StatusError: INVALID_ARGUMENT if there is no such signature, or it is of
            another kind, with TF Serving's texts; else UNIMPLEMENTED.
    """
    if signature_name not in servable.signature_defs:
        refuse(f"No signature was found with the name: {signature_name}")
    found = servable.signature_defs[signature_name].method_name
    wanted = f"{METHOD_PREFIX}{method}"
    if found != wanted:
        refuse(
            f"Expected {KIND_OF_METHOD[method]} signature method_name to be {wanted}. "
            f"Was: {found}"
        )
    refuse(
        f'Signature "{signature_name}" takes tf.train.Example, which this server does '
        "not support. Call Predict.",
        StatusCode.UNIMPLEMENTED,
    )


def type_name(dtype: str) -> str:
    """Return the name that TensorFlow's C++ code prints for a dtype."""
    return _TYPE_NAMES.get(dtype, dtype)


def input_mismatch(sent: Iterable[str], wanted: Iterable[str]) -> StatusError:
    """Make the error for inputs whose names are not those of the signature."""
    sent, wanted = set(sent), set(wanted)
    extra, missing = sent - wanted, wanted - sent
    return StatusError(
        StatusCode.INVALID_ARGUMENT,
        f"input size does not match signature: {len(sent)}!={len(wanted)} "
        f"len({_braces(sent)}) != len({_braces(wanted)}). "
        f"Sent extra: {_braces(extra)}. Missing but required: {_braces(missing)}.",
    )


def readable_error(message: str) -> str:
    """Reduce an error of a TensorFlow graph to the sentence for a person.

    TensorFlow 2.20 puts a heading, the node and its stack trace before it, and the
    names of nodes and functions behind it.

    Args:
        message: The text of the error.

    Returns:
        The sentence, at most 500 characters.
    """
    message = re.sub(r"\s*\[Op:[^\]]*\](?: name: \S*)?\s*$", "", message)
    message = re.sub(r"^Graph execution error:\s*", "", message)
    message = re.sub(
        r"^Detected at node .*:\n(?:<stack traces unavailable>\n| .*\n|\n)*",
        "",
        message,
        flags=re.MULTILINE,
    )
    message = re.sub(r"\n[ \t]*\[\[.*", "", message).strip()
    # Where several nodes failed, the first one is reported.
    several = r"\d+ root error\(s\) found\.\n\s*\(0\) \w+:\s*(.*?)\n\s*\(1\) .*"
    if first := re.fullmatch(several, message, re.DOTALL):
        message = first[1]
    return bounded(message)


def _braces(names: Iterable[str]) -> str:
    return f"{{{','.join(sorted(names))}}}"


def _read_signature_defs(folder: Path) -> dict[str, Any]:
    from tensorflow.core.protobuf import saved_model_pb2

    model = saved_model_pb2.SavedModel.FromString(
        (folder / "saved_model.pb").read_bytes()
    )
    for graph in model.meta_graphs:
        if set(graph.meta_info_def.tags) == {"serve"}:
            register_scann_operators(graph)
            return dict(graph.signature_def.items())
    raise ValueError("it holds no graph for serving")


def _signature(definition: Any) -> Signature:
    return Signature(
        method_name=definition.method_name,
        inputs={key: _spec(info) for key, info in sorted(definition.inputs.items())},
        outputs={key: _spec(info) for key, info in sorted(definition.outputs.items())},
    )


def _spec(info: Any) -> TensorSpec:
    import tensorflow as tf

    shape = tf.TensorShape(info.tensor_shape)
    return TensorSpec(
        dtype=tf.as_dtype(info.dtype).name,
        shape=None if shape.rank is None else tuple(shape.as_list()),
    )


def _check_inputs(
    inputs: Mapping[str, np.ndarray], specs: Mapping[str, TensorSpec]
) -> None:
    if set(inputs) != set(specs):
        raise input_mismatch(inputs, specs)
    for key, spec in specs.items():
        received = inputs[key].shape
        if spec.shape is None:
            continue
        if len(received) != len(spec.shape) or any(
            size not in (None, actual)
            for size, actual in zip(spec.shape, received, strict=True)
        ):
            wanted_sizes = ["?" if size is None else str(size) for size in spec.shape]
            raise StatusError(
                StatusCode.INVALID_ARGUMENT,
                f'Input "{key}" must have the shape [{",".join(wanted_sizes)}] of the '
                f"signature. Received: shape [{','.join(map(str, received))}].",
            )
