"""Write status and metadata of served models as messages of TF Serving's protocol."""

from collections.abc import Iterable
from typing import Any

from .servable import Servable
from .version_states import VersionStatus


def model_status(versions: Iterable[VersionStatus]) -> Any:
    """Return the `GetModelStatusResponse` for versions, the newest first."""
    from tensorflow_serving.apis import get_model_status_pb2

    response = get_model_status_pb2.GetModelStatusResponse()
    for status in sorted(versions, key=lambda status: -status.version):
        message = response.model_version_status.add(
            version=status.version, state=int(status.state)
        )
        message.status.SetInParent()
        message.status.error_code = int(status.error_code)
        message.status.error_message = status.error_message
    return response


def model_status_json(response: Any) -> bytes:
    """Return the body of a status call for a `GetModelStatusResponse`."""
    return f"{_to_json(response)}\n".encode()


def metadata_response(servable: Servable) -> Any:
    """Return the `GetModelMetadataResponse` with the signatures of a version."""
    from tensorflow_serving.apis import get_model_metadata_pb2

    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name = servable.name
    response.model_spec.version.value = servable.version
    definitions = get_model_metadata_pb2.SignatureDefMap()
    for key, definition in servable.signature_defs.items():
        definitions.signature_def[key].CopyFrom(definition)
    response.metadata["signature_def"].Pack(definitions)
    return response


def metadata_json(servable: Servable) -> bytes:
    """Return the body of a metadata call.

    TF Serving prints the two parts by themselves and joins them, which leaves out the
    `@type` that an `Any` would print; so does this.
    """
    from tensorflow_serving.apis import get_model_metadata_pb2

    response = metadata_response(servable)
    definitions = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(definitions)
    return (
        "{\n"
        f'"model_spec":{_to_json(response.model_spec)}\n,\n'
        f'"metadata": {{"signature_def": {_to_json(definitions)}\n}}\n'
        "}\n"
    ).encode()


def _to_json(message: Any) -> str:
    from google.protobuf import json_format

    return json_format.MessageToJson(
        message,
        always_print_fields_with_no_presence=True,
        preserving_proto_field_name=True,
        indent=1,
        ensure_ascii=False,
    )
