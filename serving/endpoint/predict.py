"""Answer the messages of Predict; checks, order and texts are TF Serving 2.20's."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from ..web.status import StatusCode, refuse
from .models.servable import (
    DEFAULT_SIGNATURE,
    Servable,
    Signature,
    input_mismatch,
    type_name,
)
from .tensor_proto import (
    decode_tensor,
    dtype_of,
    encode_tensor,
    lacks_strings,
    unpacked_bytes,
)

Run = Callable[[str, dict[str, np.ndarray]], dict[str, np.ndarray]]


def predict(
    servable: Servable,
    request: Any,
    *,
    max_unpacked_bytes: int,
    run: Run | None = None,
) -> Any:
    """Answer a `PredictRequest`.

    Args:
        servable: The version that the request means.
        request: The request.
        max_unpacked_bytes: Memory that all its tensors together may take. A tensor may
            be much larger than its message, because TensorFlow repeats the last value.
        run: Runs a signature, from its name and inputs to its outputs; by default the
            version does.

    Returns:
        The `PredictResponse`.

    Raises:
        StatusError: The request does not fit the model, or the model refuses it.
    """
    from tensorflow_serving.apis import predict_pb2

    key = request.model_spec.signature_name or DEFAULT_SIGNATURE
    signature = servable.signature(key)
    _check_names(servable, key, request)
    dtypes, inputs = _decode(request.inputs, signature, max_unpacked_bytes)
    wanted = _wanted_outputs(request.output_filter, signature.outputs)
    _check_dtypes(servable, key, dtypes)
    outputs = servable.predict(inputs, key) if run is None else run(key, inputs)
    response = predict_pb2.PredictResponse()
    response.model_spec.name = request.model_spec.name
    response.model_spec.version.value = servable.version
    response.model_spec.signature_name = key
    for name in wanted:
        response.outputs[name].CopyFrom(encode_tensor(outputs[name]))
    return response


def _check_names(servable: Servable, key: str, request: Any) -> None:
    sent, specs = set(request.inputs), servable.signatures[key].inputs
    if len(sent) != len(specs):
        raise input_mismatch(sent, specs)
    for alias in specs:
        if alias not in sent:
            feed = servable.signature_defs[key].inputs[alias].name
            refuse(
                f"Signature input alias: {alias}(feed name: {feed}) not found in "
                "request and no default value provided. Inputs expected to be in the "
                f"request {{{','.join(sorted(sent))}}}, or default input alias set: "
            )


def _decode(
    protos: Mapping[str, Any], signature: Signature, max_bytes: int
) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Decode the inputs; one of another dtype than the signature's is left out."""
    dtypes: dict[str, str] = {}
    total = 0
    for alias in signature.inputs:
        dtype = dtype_of(protos[alias])
        size = None if dtype is None else unpacked_bytes(protos[alias], dtype)
        if dtype is None or size is None:
            refuse(f"tensor parsing error: {alias}")
        dtypes[alias] = dtype
        total += size
        if total > max_bytes:
            refuse(
                f"The inputs may take at most {max_bytes} bytes unpacked. Send fewer "
                "or smaller instances.",
                StatusCode.RESOURCE_EXHAUSTED,
            )
    inputs = {}
    for alias, spec in signature.inputs.items():
        if dtypes[alias] != spec.dtype:
            continue
        if spec.dtype == "string" and lacks_strings(protos[alias]):
            refuse(
                f'Input "{alias}" must have one string for each element of its shape. '
                f"Received: {len(protos[alias].string_val)}."
            )
        array = decode_tensor(protos[alias], spec.dtype)
        if array is None:
            refuse(f"tensor parsing error: {alias}")
        inputs[alias] = array
    return dtypes, inputs


def _wanted_outputs(
    output_filter: Collection[str], outputs: Mapping[str, Any]
) -> list[str]:
    seen: list[str] = []
    for alias in output_filter:
        if alias not in outputs:
            refuse(
                f"output tensor alias not found in signature: {alias} Outputs expected "
                f"to be in the set {{{','.join(sorted(outputs))}}}."
            )
        if alias in seen:
            refuse(f"duplicate output tensor alias: {alias}")
        seen.append(alias)
    return seen or sorted(outputs)


def _check_dtypes(servable: Servable, key: str, dtypes: Mapping[str, str]) -> None:
    """Compare dtypes, in the order in which TensorFlow's session takes the inputs."""
    infos = servable.signature_defs[key].inputs
    specs = servable.signatures[key].inputs
    for place, alias in enumerate(sorted(specs, key=lambda alias: infos[alias].name)):
        wanted, sent = specs[alias].dtype, dtypes[alias]
        if sent != wanted:
            refuse(
                f"Expects arg[{place}] to be {type_name(wanted)} but "
                f"{type_name(sent)} is provided"
            )
