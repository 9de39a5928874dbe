"""Read predict requests of TF Serving's REST protocol: from JSON to named arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...web.status import StatusError, refuse
from ..models.servable import DEFAULT_SIGNATURE, Signature, TensorSpec
from .json_tensor import (
    first_misfit,
    is_base64,
    parse_json,
    quote,
    tensor,
    try_tensor,
)

_BYTES_OF_SIGNS = {b",": 64, b'"': 48, b"[": 112, b":": 100, b"{": 240}


@dataclass(frozen=True)
class PredictRequest:
    """A decoded request.

    Attributes:
        signature_name: The signature to call.
        inputs: Arrays by the name of the input; strings as object arrays of bytes.
        row_format: True if the request came as `instances`, so that the reply goes out
            as `predictions`; False for `inputs` and `outputs`.
    """

    signature_name: str
    inputs: dict[str, np.ndarray]
    row_format: bool


def decode_predict_request(
    body: bytes | bytearray, signatures: Mapping[str, Signature]
) -> PredictRequest:
    """Decode the body of a predict call.

    Args:
        body: JSON object with `instances` (row format) or `inputs` (columnar format),
            and with `signature_name` unless it is "serving_default". Bytes behind the
            object are ignored.
        signatures: The signatures of the model.

    Returns:
        Arrays of the dtypes of the signature. Their shapes are not compared with it.

    Raises:
        StatusError: The body is not JSON, or does not fit the signature.
    """
    document, name = _read(body)
    key = name or DEFAULT_SIGNATURE
    if key not in signatures:
        refuse(f'Serving signature name: "{key}" not found in signature def')
    specs = signatures[key].inputs
    if not specs:
        refuse(f"Failed to get input map for signature: {name or 'DEFAULT'}")
    if "instances" in document:
        instances = _instances(document)
        return PredictRequest(key, _decode_rows(instances, specs), row_format=True)
    if "inputs" in document:
        inputs = _decode_columns(document["inputs"], specs)
        return PredictRequest(key, inputs, row_format=False)
    refuse("Missing 'inputs' or 'instances' key")


def decoding_bytes(body: bytes | bytearray) -> int:
    """Return the memory that a body takes at most while it is decoded.

    A text has 1, 2 or 4 bytes a character, by the widest; the rest is what Python 3.11
    takes for numbers, strings, lists and objects.
    """
    width = 1 if body.isascii() else 4
    return 2 * width * len(body) + sum(
        size * body.count(sign) for sign, size in _BYTES_OF_SIGNS.items()
    )


def decode_signature_name(body: bytes | bytearray) -> str:
    """Return which signature a body of any call names; "serving_default" if none.

    Raises:
        StatusError: The body is not JSON, or no such object.
    """
    return _read(body)[1] or DEFAULT_SIGNATURE


def _read(body: bytes | bytearray) -> tuple[dict[str, Any], str]:
    """Return the object and the name of the signature in it, which may be empty."""
    document = parse_json(body)
    if not isinstance(document, dict):
        refuse(f"JSON Value: {quote(document)} Is not object")
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        refuse(
            f"JSON Value: {quote(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return document, name


def _instances(document: dict[str, Any]) -> list[Any]:
    instances = document["instances"]
    if "inputs" in document:
        refuse(
            f"JSON Value: {quote(document)} Not formatted correctly expecting only "
            "one of 'inputs' or 'instances' keys to exist "
        )
    if not isinstance(instances, list):
        refuse(
            f"JSON Value: {quote(document)} Excepting 'instances' to be an list/array"
        )
    if not instances:
        refuse(f"JSON Value: {quote(document)} No values in 'instances' array")
    return instances


def _decode_columns(
    value: Any, specs: Mapping[str, TensorSpec]
) -> dict[str, np.ndarray]:
    if not isinstance(value, dict) or is_base64(value):
        if len(specs) > 1:
            refuse(
                "inputs is a plain value/list, but expecting an object as multiple "
                "input tensors required as per tensorinfo_map"
            )
        return {name: tensor(value, spec.dtype) for name, spec in specs.items()}
    inputs = {}
    for name, spec in specs.items():
        if name not in value:
            refuse(f"Missing named input: {name} in 'inputs' object.")
        inputs[name] = tensor(value[name], spec.dtype)
    return inputs


def _decode_rows(
    instances: list[Any], specs: Mapping[str, TensorSpec]
) -> dict[str, np.ndarray]:
    if len(specs) > 1 and not isinstance(instances[0], dict):
        refuse(
            "instances is a plain list, but expecting list of objects as multiple "
            "input tensors required as per tensorinfo_map"
        )
    if _has_names(instances[0]):
        _check_named_rows(instances, specs)
        return {
            name: _stack([row[name] for row in instances], spec.dtype, f" key: {name}")
            for name, spec in specs.items()
        }
    if dict in set(map(type, instances)):
        for number, row in enumerate(instances):
            if _has_names(row):
                refuse(
                    "Expecting value/list but got object at item "
                    f"{number} of input list"
                )
    # As in TF Serving, {"b64": ...} rows go to the first of several inputs; running
    # the signature then says which inputs are missing.
    name = next(iter(specs))
    return {name: _stack(instances, specs[name].dtype, "")}


def _has_names(row: Any) -> bool:
    return isinstance(row, dict) and not is_base64(row)


def _check_named_rows(instances: list[Any], specs: Mapping[str, TensorSpec]) -> None:
    for number, row in enumerate(instances):
        if not _has_names(row):
            refuse(f"Expecting object but got list at item {number} of input list")
        for name in row:
            if name not in specs:
                refuse(
                    f"Failed to process element: {number} key: {name} of 'instances' "
                    "list. Error: INVALID_ARGUMENT: JSON object: does not have named "
                    f"input: {name}"
                )
        if len(row) != len(specs):
            refuse(
                f"Failed to process element: {number} of 'instances' list. JSON "
                f"object: {quote(row)} keys must be equal to: {','.join(specs)}"
            )


def _stack(values: list[Any], dtype: str, key: str) -> np.ndarray:
    """Make one array of the values of one input; an error names the row."""
    array = try_tensor(values, dtype)
    if array is not None:
        return array
    number = 0
    try:
        first = tensor(values[0], dtype)
        number = first_misfit(values, first.shape, dtype)
        row = tensor(values[number], dtype)
        if row.size != first.size:
            refuse(f"Expecting tensor size: {first.size} but got: {row.size}")
        if row.shape != first.shape:
            refuse(f"Expecting shape {_sizes(first)} but got: {_sizes(row)}")
        # Each row fits: what does not is one dimension more.
        return tensor(values, dtype)
    except StatusError as error:
        refuse(
            f"Failed to process element: {number}{key} of 'instances' list. "
            f"Error: {error.code.name}: {error.message}"
        )


def _sizes(array: np.ndarray) -> str:
    return f"[{','.join(map(str, array.shape))}]"
