"""Speak TF Serving's REST protocol."""

import base64
import datetime
import email.utils
import gzip
import json
import ssl
from collections.abc import Sequence
from typing import Any

import httpx2

from tfdml.command_parser import command
from tfdml.messages import cut, shortened
from tfdml.model_version import DESCRIBE

from ..web.tracing import outgoing_headers
from .address import ModelAddress
from .credentials import Credentials, refused_certificate
from .metadata import DEFAULT
from .reply import FINGERPRINT, Reply
from .retries import EndpointError, Failure, unexpected

_MAY_PASS = (429, 503)
_NOT_CONNECTED = (httpx2.NetworkError, httpx2.RemoteProtocolError)


class RestConnection:
    """Speaks TF Serving's REST protocol with one model. May be used from many threads.

    Args:
        address: The model.
        timeout: Seconds to wait for each part of an answer.
        credentials: Token and certificates.
        gzip_requests: Whether the bodies of requests are compressed.
    """

    def __init__(
        self,
        address: ModelAddress,
        *,
        timeout: float,
        credentials: Credentials,
        gzip_requests: bool,
    ) -> None:
        self._url = address.url
        self._timeout = timeout
        self._gzip_requests = gzip_requests
        self._http = httpx2.Client(
            timeout=timeout,
            headers=credentials.headers,
            verify=credentials.for_rest() if address.is_encrypted else True,
            # A proxy from the environment cannot reach the loopback address.
            trust_env=not address.is_loopback,
            # Shorter than the 5 seconds after which uvicorn hangs up: a request on a
            # connection that the server is just closing would fail.
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=2.0),
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def metadata(self) -> Reply[dict[str, Any]]:
        """Return TF Serving's metadata, as its JSON.

        Raises:
            EndpointError: The endpoint did not answer, or not with a JSON object.
        """
        return self._request("GET", "/metadata")

    def predict(
        self, input_name: str, encoded: Sequence[bytes], signature: str = DEFAULT
    ) -> Reply[list[Any]]:
        """Send encoded images, or texts, to a signature.

        Args:
            input_name: Name of its only input, which the row format can do without.
            encoded: At least one image or text.
            signature: Name of the signature.

        Returns:
            A prediction for each, as it came; a dict if the model has several outputs.

        Raises:
            EndpointError: The endpoint did not answer, or not with one prediction per
                image.
        """
        instances = [{"b64": base64.b64encode(item).decode()} for item in encoded]
        body: dict[str, object] = {"instances": instances}
        if signature != DEFAULT:
            body["signature_name"] = signature
        return self._predictions(body, len(encoded))

    def describe(self) -> str:
        """Return the text with which the model describes itself.

        Raises:
            EndpointError: As `predict`; a model without a description refuses.
        """
        body = {"signature_name": DESCRIBE, "instances": [""]}
        (text,) = self._predictions(body, 1).content
        return str(text)

    def _predictions(self, body: object, count: int) -> Reply[list[Any]]:
        reply, fingerprint = self._request("POST", ":predict", body)
        predictions = reply.get("predictions")
        if not isinstance(predictions, list) or len(predictions) != count:
            raise unexpected(
                self._url,
                f"there must be {count} `predictions`, there are "
                f"{len(predictions) if isinstance(predictions, list) else 'none'}",
            )
        return Reply(predictions, fingerprint)

    def _request(
        self, method: str, suffix: str, body: object = None
    ) -> Reply[dict[str, Any]]:
        response = self._send(method, suffix, body)
        try:
            reply = response.json()
        except ValueError:  # bad JSON, or bytes that are not text
            reply = None
        if response.is_error:
            stated = reply.get("error") if isinstance(reply, dict) else None
            raise EndpointError(
                f"The embedding endpoint {self._url} refused the request with status "
                f"{response.status_code}: {cut(stated or response.reason_phrase, 300)}",
                failure=Failure.REFUSED,
                status=response.status_code,
                may_pass=response.status_code in _MAY_PASS,
                retry_after=_retry_after(response.headers.get("retry-after")),
            )
        if not isinstance(reply, dict):
            raise unexpected(self._url, "the reply is not a JSON object")
        return Reply(reply, response.headers.get(FINGERPRINT))

    def _send(self, method: str, suffix: str, body: object) -> httpx2.Response:
        headers, content = outgoing_headers(), None
        if body is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(body, separators=(",", ":")).encode()
            if self._gzip_requests:
                headers["content-encoding"] = "gzip"
                # Base64 has no repetitions: more effort finds no more than level 1.
                content = gzip.compress(content, compresslevel=1)
        address = self._url + suffix
        request = self._http.build_request(
            method, address, content=content, headers=headers
        )
        has_answered = False
        try:
            response = self._http.send(request, stream=True)
            has_answered = True
            try:
                response.read()
            finally:
                response.close()
        except httpx2.ReadTimeout as error:
            raise self._timed_out() from error
        except httpx2.TimeoutException as error:
            # Not connected, or nobody took the request: it has not been answered.
            raise self._timed_out(may_pass=not has_answered) from error
        except httpx2.HTTPError as error:
            refused = _certificate_error(error)
            if refused is not None:
                raise refused_certificate(self._url, refused) from error
            raise EndpointError(
                f"The embedding endpoint {self._url} cannot be reached "
                f"({shortened(error)}). Is it running? "
                f"`{command('serving', 'serve')}` starts one.",
                failure=Failure.UNREACHABLE,
                may_pass=isinstance(error, _NOT_CONNECTED) and not has_answered,
            ) from error
        return response

    def _timed_out(self, *, may_pass: bool = False) -> EndpointError:
        return EndpointError(
            f"The embedding endpoint {self._url} did not answer within "
            f"{self._timeout:g} seconds.",
            failure=Failure.LATE,
            may_pass=may_pass,
        )


def _certificate_error(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """Find out whether it was the endpoint's certificate that ended a connection."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _retry_after(value: str | None) -> float | None:
    """Read the header, which holds seconds or a date; None for anything else."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=datetime.UTC)
    return max(0.0, (date - datetime.datetime.now(datetime.UTC)).total_seconds())
