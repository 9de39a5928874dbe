"""Speak TF Serving's gRPC protocol, without TensorFlow."""

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from tfdml.command_parser import command
from tfdml.messages import cut
from tfdml.model_version import DESCRIBE

from ..web.tracing import outgoing_headers
from .address import ModelAddress
from .credentials import Credentials, refused_certificate
from .metadata import DEFAULT
from .reply import FINGERPRINT, Reply
from .retries import EndpointError, Failure, unexpected
from .tensors import to_array
from .wire import DTYPES, message_class

_SERVICE = "/tensorflow.serving.PredictionService"
_MAY_PASS = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,  # the server gave up a message that arrived too slowly
)
_TOO_LARGE = ("larger than max", "at most")
"""In the details of RESOURCE_EXHAUSTED: of a message that will be too large again."""

_NOT_TRUSTED = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification Check failed")
"""In the details of UNAVAILABLE: of a certificate that gRPC refuses."""

_OPTIONS = [
    # gRPC's own limit is 4 MB.
    ("grpc.max_receive_message_length", 64 * 2**20),
    ("grpc.max_send_message_length", -1),
    # gRPC waits a second before it connects again, and ever longer; until then each
    # call fails with the old error, so that no retry would reach a server that is back.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Several servers behind one name share the calls.
    ("grpc.lb_policy_name", "round_robin"),
]


class GrpcConnection:
    """Speaks TF Serving's gRPC protocol with one model. May be used from many threads.

    Args:
        address: The model.
        timeout: Seconds to wait for an answer.
        credentials: Token and certificates.
    """

    def __init__(
        self, address: ModelAddress, *, timeout: float, credentials: Credentials
    ) -> None:
        self._url = address.url
        self._timeout = timeout
        self._headers = tuple(credentials.headers.items())
        self._spec = message_class("ModelSpec")(name=address.name)
        if address.version is not None:
            self._spec.version.value = address.version
        elif address.label is not None:
            self._spec.version_label = address.label
        options = [*_OPTIONS, ("grpc.enable_http_proxy", int(not address.is_loopback))]
        if address.is_encrypted:
            self._channel = grpc.secure_channel(
                address.target, credentials.for_grpc(), options
            )
        else:
            self._channel = grpc.insecure_channel(address.target, options)

    def close(self) -> None:
        """Close the connection; calls under way are cancelled."""
        self._channel.close()

    def metadata(self) -> Reply[dict[str, Any]]:
        """Return TF Serving's metadata, as the JSON that REST would give.

        Raises:
            EndpointError: The endpoint did not answer.
        """
        request = message_class("GetModelMetadataRequest")(
            model_spec=self._spec, metadata_field=["signature_def"]
        )
        response, fingerprint = self._call("GetModelMetadata", request)
        packed = response.metadata["signature_def"].value
        try:
            signatures = message_class("SignatureDefMap").FromString(packed)
        except DecodeError as error:
            reason = f"its metadata cannot be read: {error}"
            raise unexpected(self._url, reason) from error
        spec, signature_defs = (
            json_format.MessageToDict(part, preserving_proto_field_name=True)
            for part in (response.model_spec, signatures)
        )
        metadata = {"signature_def": signature_defs}
        return Reply({"model_spec": spec, "metadata": metadata}, fingerprint)

    def predict(
        self, input_name: str, encoded: Sequence[bytes], signature: str = DEFAULT
    ) -> Reply[list[Any]]:
        """Send encoded images, or texts, to a signature.

        Args:
            input_name: Name of its only input.
            encoded: At least one image or text.
            signature: Name of the signature.

        Returns:
            A prediction for each: a dict with an array for each output.

        Raises:
            EndpointError: The endpoint did not answer, or not with one row per image.
        """
        outputs, fingerprint = self._predict(signature, input_name, encoded)
        for name, output in outputs.items():
            if not output.ndim or len(output) != len(encoded):
                raise unexpected(
                    self._url,
                    f"`{name}` must have {len(encoded)} rows, its shape is "
                    f"{list(output.shape)}",
                )
        if not outputs:
            raise unexpected(self._url, "it has no outputs")
        if len(outputs) == 1:
            return Reply(list(next(iter(outputs.values()))), fingerprint)
        rows = [
            {name: output[row] for name, output in outputs.items()}
            for row in range(len(encoded))
        ]
        return Reply(rows, fingerprint)

    def describe(self) -> str:
        """Return the text with which the model describes itself.

        Raises:
            EndpointError: As `predict`; a model without a description refuses.
        """
        outputs, _ = self._predict(DESCRIBE, "request", [b""])
        for output in outputs.values():
            for text in output.ravel():
                if isinstance(text, bytes):
                    return text.decode("utf-8", "replace")
        raise unexpected(self._url, "its description is not text")

    def _predict(
        self, signature: str, input_name: str, values: Sequence[bytes]
    ) -> Reply[dict[str, Any]]:
        request = message_class("PredictRequest")(model_spec=self._spec)
        request.model_spec.signature_name = signature
        proto = request.inputs[input_name]
        proto.dtype = DTYPES["DT_STRING"]
        proto.tensor_shape.dim.add(size=len(values))
        proto.string_val.extend(values)
        response, fingerprint = self._call("Predict", request)
        try:
            outputs = {
                name: to_array(output) for name, output in response.outputs.items()
            }
        except ValueError as error:
            reason = f"its tensors cannot be read: {error}"
            raise unexpected(self._url, reason) from error
        return Reply(outputs, fingerprint)

    def _call(self, name: str, request: Any) -> Reply[Any]:
        method = self._channel.unary_unary(
            f"{_SERVICE}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=message_class(f"{name}Response").FromString,
        )
        metadata = (*self._headers, *outgoing_headers().items())
        try:
            response, call = method.with_call(
                request, timeout=self._timeout, metadata=metadata
            )
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or ""
            is_down = code == grpc.StatusCode.UNAVAILABLE
            if is_down and any(words in details for words in _NOT_TRUSTED):
                raise refused_certificate(self._url, details) from error
            failure = Failure.REFUSED
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                failure = Failure.LATE
                message = f"did not answer within {self._timeout:g} seconds."
            elif is_down:
                failure = Failure.UNREACHABLE
                message = (
                    f"cannot be reached or is not ready ({cut(details, 300)}). Is it "
                    f"running? `{command('serving', 'serve')}` starts one."
                )
            else:
                message = (
                    f"refused the request with status {code.name}: {cut(details, 300)}"
                )
            is_too_large = code == grpc.StatusCode.RESOURCE_EXHAUSTED and any(
                words in details for words in _TOO_LARGE
            )
            raise EndpointError(
                f"The embedding endpoint {self._url} {message}",
                failure=failure,
                status=code.name,
                may_pass=code in _MAY_PASS and not is_too_large,
            ) from error
        return Reply(response, dict(call.trailing_metadata() or ()).get(FINGERPRINT))
