"""Hold the messages of TF Serving's gRPC protocol that the client sends and reads.

The numbers and types of the fields are those of TF Serving 2.20 and TensorFlow 2.20,
and of every version that speaks with them. Names do not travel.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..web.message_tables import Field, message_classes

_PACKAGE = "tfdml.client"
_TENSOR = f".{_PACKAGE}.TensorProto"
_SHAPE = f".{_PACKAGE}.TensorShapeProto"
_DTYPE = f".{_PACKAGE}.DataType"
_SPEC = f".{_PACKAGE}.ModelSpec"
_INFO = f".{_PACKAGE}.TensorInfo"

_MESSAGES: Mapping[str, Sequence[Field]] = {
    "ModelSpec": [
        ("name", 1, "STRING"),
        ("version", 2, ".google.protobuf.Int64Value"),
        ("signature_name", 3, "STRING"),
        ("version_label", 4, "STRING"),
    ],
    "Dim": [("size", 1, "INT64"), ("name", 2, "STRING")],
    "TensorShapeProto": [
        ("dim", 2, f"repeated .{_PACKAGE}.Dim"),
        ("unknown_rank", 3, "BOOL"),
    ],
    "TensorProto": [
        ("dtype", 1, _DTYPE),
        ("tensor_shape", 2, _SHAPE),
        ("tensor_content", 4, "BYTES"),
        ("float_val", 5, "repeated FLOAT"),
        ("double_val", 6, "repeated DOUBLE"),
        ("int_val", 7, "repeated INT32"),
        ("string_val", 8, "repeated BYTES"),
        ("scomplex_val", 9, "repeated FLOAT"),
        ("int64_val", 10, "repeated INT64"),
        ("bool_val", 11, "repeated BOOL"),
        ("dcomplex_val", 12, "repeated DOUBLE"),
        ("half_val", 13, "repeated INT32"),
        ("uint32_val", 16, "repeated UINT32"),
        ("uint64_val", 17, "repeated UINT64"),
    ],
    "PredictRequest": [
        ("model_spec", 1, _SPEC),
        ("inputs", 2, f"map {_TENSOR}"),
    ],
    "PredictResponse": [
        ("outputs", 1, f"map {_TENSOR}"),
        ("model_spec", 2, _SPEC),
    ],
    "GetModelMetadataRequest": [
        ("model_spec", 1, _SPEC),
        ("metadata_field", 2, "repeated STRING"),
    ],
    "GetModelMetadataResponse": [
        ("model_spec", 1, _SPEC),
        ("metadata", 2, "map .google.protobuf.Any"),
    ],
    "TensorInfo": [
        ("name", 1, "STRING"),
        ("dtype", 2, _DTYPE),
        ("tensor_shape", 3, _SHAPE),
    ],
    "SignatureDef": [
        ("inputs", 1, f"map {_INFO}"),
        ("outputs", 2, f"map {_INFO}"),
        ("method_name", 3, "STRING"),
    ],
    "SignatureDefMap": [("signature_def", 1, f"map .{_PACKAGE}.SignatureDef")],
}

# TensorFlow's, up to what a message can carry and NumPy can hold.
DTYPES = {
    "DT_INVALID": 0,
    "DT_FLOAT": 1,
    "DT_DOUBLE": 2,
    "DT_INT32": 3,
    "DT_UINT8": 4,
    "DT_INT16": 5,
    "DT_INT8": 6,
    "DT_STRING": 7,
    "DT_COMPLEX64": 8,
    "DT_INT64": 9,
    "DT_BOOL": 10,
    "DT_BFLOAT16": 14,
    "DT_UINT16": 17,
    "DT_COMPLEX128": 18,
    "DT_HALF": 19,
    "DT_UINT32": 22,
    "DT_UINT64": 23,
}


def message_class(name: str) -> Any:
    """Return the class of a message, such as "PredictRequest"."""
    return _class_of()(name)


@functools.cache
def _class_of() -> Callable[[str], Any]:
    return message_classes(_PACKAGE, _MESSAGES, {"DataType": DTYPES})
