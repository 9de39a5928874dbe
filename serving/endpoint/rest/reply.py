"""Write replies of TF Serving's REST protocol: from named arrays to JSON.

Spacing, order and numbers are those of TF Serving 2.20 (json_tensor.cc and RapidJSON's
PrettyWriter), so that replies can be compared byte for byte; only the order of several
outputs, which TF Serving leaves open, is fixed here: by name.
"""

import base64
import json
import math
from collections.abc import Mapping

import numpy as np

from ...web.status import refuse
from ..models.servable import type_name

_INDENT = "    "
_NUMBERS = {"int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"}
_POWERS = np.array([float(f"1e{exponent}") for exponent in range(23)])  # exact


def encode_error(message: str) -> bytes:
    """Encode the body of an error reply."""
    text = json.dumps({"error": message}, indent=4, ensure_ascii=False)
    # A lone surrogate, which JSON can write and UTF-8 cannot, becomes its escape.
    return text.encode("utf-8", "backslashreplace")


def encode_predict_reply(
    outputs: Mapping[str, np.ndarray], *, row_format: bool
) -> bytes:
    """Encode what a signature returned.

    Args:
        outputs: Arrays by the name of the output, at least one. Strings are object
            arrays of bytes; they go out as base64 if the name ends in "_bytes".
        row_format: True for `predictions`, one entry a row; False for `outputs`.

    Returns:
        JSON. With one output, its name is left out.

    Raises:
        StatusError: A dtype has no JSON form, or the arrays have no common number of
            rows (row format only).
    """
    if not outputs:
        refuse("Cannot convert empty tensor map to JSON")
    names = sorted(outputs)
    if row_format:
        text = _rows(names, outputs)
    elif len(names) == 1:
        value = _lines(outputs[names[0]], names[0], level=1)
        text = f'{{\n{_INDENT}"outputs": {value}\n}}'
    else:
        members = {name: _lines(outputs[name], name, level=2) for name in names}
        text = f'{{\n{_INDENT}"outputs": {_object(members, level=1)}\n}}'
    # Strings that are not UTF-8 go out as the bytes they are, as in TF Serving.
    return text.encode("utf-8", "surrogateescape")


def _rows(names: list[str], outputs: Mapping[str, np.ndarray]) -> str:
    rows = len(outputs[names[0]]) if outputs[names[0]].ndim else 0
    for name in names:
        if outputs[name].ndim == 0:
            refuse(f"Tensor name: {name} has no shape information ")
        if len(outputs[name]) != rows:
            refuse(
                f"Tensor name: {name} has inconsistent batch size: "
                f"{len(outputs[name])} expecting: {rows}"
            )
    one = len(names) == 1
    level = 2 if one else 3
    columns = [
        [
            _nested(texts, outputs[name].shape[1:])
            for texts in _split(_values(outputs[name], name, level), rows)
        ]
        for name in names
    ]
    if rows == 0:
        return f'{{\n{_INDENT}"predictions": []\n}}'
    if one:
        # RapidJSON is set to write each row on one line, and reset afterwards.
        body = ", ".join(columns[0])
    else:
        objects = (
            _object(dict(zip(names, row, strict=True)), level=2)
            for row in zip(*columns, strict=True)
        )
        body = ",".join(f"\n{_INDENT * 2}{text}" for text in objects)
    return f'{{\n{_INDENT}"predictions": [{body}\n{_INDENT}]\n}}'


def _object(members: Mapping[str, str], level: int) -> str:
    inner = ",".join(
        f"\n{_INDENT * (level + 1)}{_string(name)}: {value}"
        for name, value in members.items()
    )
    return f"{{{inner}\n{_INDENT * level}}}"


def _split(texts: list[str], parts: int) -> list[list[str]]:
    size = len(texts) // parts if parts else 0
    return [texts[part * size : (part + 1) * size] for part in range(parts)]


def _nested(texts: list[str], shape: tuple[int, ...]) -> str:
    """Nest the texts of the values of an array, on one line."""
    if not shape:
        return texts[0]
    if len(shape) > 1:
        texts = [_nested(part, shape[1:]) for part in _split(texts, shape[0])]
    return f"[{', '.join(texts)}]"


def _lines(array: np.ndarray, name: str, level: int) -> str:
    """Nest an array with each value on its own line."""

    def nest(texts: list[str], shape: tuple[int, ...], level: int) -> str:
        if not shape:
            return texts[0]
        if shape[0] == 0:
            return "[]"
        if len(shape) > 1:
            texts = [
                nest(part, shape[1:], level + 1) for part in _split(texts, shape[0])
            ]
        start = f"\n{_INDENT * (level + 1)}"
        return f"[{start}{f',{start}'.join(texts)}\n{_INDENT * level}]"

    return nest(_values(array, name, level + array.ndim), array.shape, level)


def _values(array: np.ndarray, name: str, level: int) -> list[str]:
    """Print each value; `level` is the number of enclosing lists and objects."""
    flat = array.ravel()
    if array.dtype in (np.float32, np.float64):
        return _decimals(flat)
    if array.dtype.name in _NUMBERS:
        return list(map(str, flat.tolist()))
    if array.dtype == np.bool_:
        return ["true" if value else "false" for value in flat.tolist()]
    if array.dtype != object:
        refuse(
            f"Failed to write JSON value for tensor type: {type_name(array.dtype.name)}"
        )
    if not name.endswith("_bytes"):
        return [_string(value.decode("utf-8", "surrogateescape")) for value in flat]
    start, end = f"{{\n{_INDENT * (level + 1)}", f"\n{_INDENT * level}}}"
    return [
        f'{start}"b64": "{base64.b64encode(value).decode()}"{end}' for value in flat
    ]


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _decimals(values: np.ndarray) -> list[str]:
    """Print decimals as TF Serving does.

    Six digits where they give the number back, else 9 (float32) or 17 (float64); a
    whole number that is not in scientific notation gets ".0".
    """
    if not len(values):
        return []
    digits = 9 if values.dtype == np.float32 else 17
    short = _six_digits_suffice(values)
    size = np.abs(values)
    whole = (values == np.rint(values)) & (size < np.where(short, 1e6, 10.0**digits))
    formats = np.full(len(values), f"%.{digits}g", object)
    formats[short] = "%.6g"
    formats[whole] = "%.1f"
    texts = ("\n".join(formats.tolist()) % tuple(values.tolist())).split("\n")
    for index in np.flatnonzero(~np.isfinite(values)).tolist():
        value = float(values[index])
        texts[index] = (
            "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        )
    return texts


def _six_digits_suffice(values: np.ndarray) -> np.ndarray:
    """Return whether `%.6g`, read back, is the same number."""
    wide = values.astype(np.float64)
    size = np.abs(wide)
    # In this range the power of ten is exact, so one rounding decides.
    usual = (size >= 1e-16) & (size < 1e21)
    shift = 5 - np.floor(np.log10(np.where(usual, size, 1.0))).astype(np.int64)
    power = _POWERS[np.abs(shift)]
    usual_size = np.where(usual, size, 1.0)
    kept = np.where(
        shift >= 0,
        np.rint(usual_size * power) / power,
        np.rint(usual_size / power) * power,
    )
    suffice = usual & (kept.astype(values.dtype) == np.abs(values))
    for index in np.flatnonzero(~usual & np.isfinite(size)).tolist():
        read_back = values.dtype.type(float(f"{wide[index]:.6g}"))
        suffice[index] = read_back == values[index]
    return suffice
