"""A client of the embedding endpoint: pictures in, embeddings out.

It speaks the REST protocol of TF Serving, so the endpoint may be
`python -m serving run` or the official `tensorflow/serving`. Each picture is brought
into the form that training saw (upright, on white, as small as the view of the model
allows) before it is sent: the exported graph cannot see an EXIF orientation.
"""

import base64
import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self

import httpx
import numpy as np

from tfdml.images import encode_png, read_image
from tfdml.views import View, view_of_signatures

__all__ = ["EndpointClient", "EndpointError", "ModelMetadata"]

_VERSION = re.compile(r"(/versions/[0-9]+|/labels/\w+)$")
_MODEL_PATH = re.compile(r"/v1/models/[^/:]+(/versions/[0-9]+|/labels/\w+)?$")
_OUTPUT = "embedding"
_REQUEST_BYTES = 16_000_000

Picture = bytes | str | PathLike[str]


class EndpointError(RuntimeError):
    """The endpoint is down, refused the request or answered something else."""


@dataclass(frozen=True)
class ModelMetadata:
    """What the endpoint says about its model; None where it does not say."""

    name: str
    version: int | None
    image_size: int | None
    dimension: int | None
    view: View | None


class EndpointClient:
    """Embeds pictures through a served model. May be used from several threads.

    Example:
        >>> with EndpointClient("http://127.0.0.1:8501/v1/models/emoji") as client:
        ...     embeddings = client.embed(["cat.jpg", "dog.png"])

    Args:
        url: Address of the model, such as `http://127.0.0.1:8501/v1/models/emoji`.
            With `/versions/N` at its end, that version; else the endpoint's latest.
        timeout: Seconds to wait for one answer, above 0.
        batch_size: Most pictures in one request, at least 1.
        max_pixels: Width times height above which a picture is refused.

    Raises:
        ValueError: An argument is out of its range, or `url` is not the address of
            a model.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 30.0,
        batch_size: int = 32,
        max_pixels: int = 100_000_000,
    ) -> None:
        self.url = url.rstrip("/")
        self._host = _checked_host(self.url)
        if not timeout > 0:
            raise ValueError(f"`timeout` must be above 0. Received: timeout={timeout}.")
        if batch_size < 1:
            raise ValueError(
                f"`batch_size` must be at least 1. Received: batch_size={batch_size}."
            )
        self._timeout = timeout
        self._batch_size = batch_size
        self._max_pixels = max_pixels
        self._metadata: ModelMetadata | None = None
        self._http = httpx.Client(
            timeout=timeout,
            # A proxy from the environment cannot reach the loopback address.
            trust_env=not _is_loopback(self._host),
            # Shorter than the 5 seconds after which uvicorn hangs up: a request on a
            # connection that the server is just closing would fail.
            limits=httpx.Limits(keepalive_expiry=2.0),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def at_version(self, version: int) -> Self:
        """Return a client of one version of the same model, with the same settings."""
        return type(self)(
            _VERSION.sub("", self.url) + f"/versions/{version}",
            timeout=self._timeout,
            batch_size=self._batch_size,
            max_pixels=self._max_pixels,
        )

    def metadata(self) -> ModelMetadata:
        """Return what the endpoint says about its model; asked once, then kept.

        Raises:
            EndpointError: The endpoint did not answer, or answered something else.
        """
        if self._metadata is None:
            reply = self._request("GET", "/metadata")
            self._metadata = self._parse_metadata(reply)
        return self._metadata

    def embed(self, images: Sequence[Picture]) -> np.ndarray:
        """Embed pictures.

        Args:
            images: Paths of picture files, or their encoded bytes.

        Returns:
            float32 `[len(images), dimension]`; `[0, dimension]` for no pictures.

        Raises:
            UnreadableImageError: One is not a picture; the message names it.
            FileNotFoundError: There is no such file.
            EndpointError: The endpoint did not answer, or not with embeddings.
        """
        if isinstance(images, bytes | str | PathLike):
            raise TypeError(
                "`images` must be a list of pictures; write [picture] for a single "
                f"one. Received: {type(images).__name__}."
            )
        dimension = self.metadata().dimension
        if not len(images):
            return np.zeros((0, dimension or 0), np.float32)
        prepared = (self._prepare(image) for image in images)
        rows = [self._predict(batch) for batch in self._batches(prepared)]
        widths = {len(row) for batch in rows for row in batch}
        if len(widths) > 1 or dimension not in (None, *widths):
            raise self._wrong_reply(
                f"embeddings of length {sorted(widths)}, the model says {dimension}"
            )
        return np.concatenate(rows)

    def _prepare(self, image: Picture) -> bytes:
        pixels = read_image(image, max_pixels=self._max_pixels)
        view = self.metadata().view
        return encode_png(pixels if view is None else view.reduced(pixels))

    def _batches(self, prepared: Iterable[bytes]) -> Iterator[list[bytes]]:
        batch: list[bytes] = []
        total = 0
        for encoded in prepared:
            full = len(batch) == self._batch_size
            if batch and (full or total + len(encoded) > _REQUEST_BYTES):
                yield batch
                batch, total = [], 0
            batch.append(encoded)
            total += len(encoded)
        yield batch

    def _predict(self, encoded: list[bytes]) -> np.ndarray:
        instances = [{"b64": base64.b64encode(item).decode()} for item in encoded]
        reply = self._request("POST", ":predict", {"instances": instances})
        predictions = reply.get("predictions")
        if not isinstance(predictions, list) or len(predictions) != len(encoded):
            raise self._wrong_reply(
                f"there must be {len(encoded)} `predictions`, there are "
                f"{len(predictions) if isinstance(predictions, list) else 'none'}"
            )
        if all(isinstance(row, dict) and _OUTPUT in row for row in predictions):
            predictions = [row[_OUTPUT] for row in predictions]
        try:
            rows = np.asarray(predictions, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise self._wrong_reply(f"rows of numbers are expected: {error}") from error
        if rows.ndim != 2 or not rows.shape[1] or not np.isfinite(rows).all():
            raise self._wrong_reply("an embedding must be a row of finite numbers")
        if not rows.any(axis=1).all():
            raise self._wrong_reply("an embedding of zeros has no direction")
        return rows

    def _request(self, method: str, suffix: str, body: object = None) -> dict[str, Any]:
        address = self.url + suffix
        try:
            response = self._http.request(method, address, json=body)
        except httpx.TimeoutException as error:
            raise EndpointError(
                f"The embedding endpoint {self.url} did not answer within "
                f"{self._timeout:g} seconds."
            ) from error
        except httpx.HTTPError as error:
            raise EndpointError(
                f"The embedding endpoint {self.url} cannot be reached ({error}). "
                "Is it running? `python -m serving run` starts one."
            ) from error
        try:
            reply = response.json()
        except ValueError:  # bad JSON, or bytes that are no text
            reply = None
        if response.is_error:
            stated = reply.get("error") if isinstance(reply, dict) else None
            raise EndpointError(
                f"The embedding endpoint {self.url} refused the request with status "
                f"{response.status_code}: {stated or response.reason_phrase}"
            )
        if not isinstance(reply, dict):
            raise self._wrong_reply("the reply is not a JSON object")
        return reply

    def _parse_metadata(self, reply: dict[str, Any]) -> ModelMetadata:
        spec = _member(reply, "model_spec")
        version = str(spec.get("version", ""))
        signatures = _member(reply, "metadata", "signature_def", "signature_def")
        inputs = _member(signatures, "serving_default", "inputs")
        kinds = [_member(inputs, name).get("dtype") for name in inputs]
        if kinds != ["DT_STRING"]:
            raise self._wrong_reply(
                "the model must take encoded images (one input of type DT_STRING in "
                f"`serving_default`), its metadata lists {kinds or 'none'}"
            )
        pixels = _dims(signatures, "tensors", "inputs", "images")
        output = _dims(signatures, "serving_default", "outputs", _OUTPUT)
        is_square = len(pixels) == 4 and pixels[1] == pixels[2]
        size = pixels[1] if is_square else None
        try:
            view = None if size is None else view_of_signatures(signatures, size)
        except ValueError as error:
            raise self._wrong_reply(str(error)) from error
        return ModelMetadata(
            name=str(spec.get("name", "")),
            version=int(version) if version.isdigit() else None,
            image_size=size,
            dimension=output[1] if len(output) == 2 else None,
            view=view,
        )

    def _wrong_reply(self, reason: str) -> EndpointError:
        return EndpointError(
            f"The embedding endpoint {self.url} gave an unexpected answer: {reason}."
        )


def _checked_host(url: str) -> str:
    try:
        parsed = httpx.URL(url)
        is_model = parsed.scheme in ("http", "https") and bool(
            parsed.host and _MODEL_PATH.search(parsed.path) and not parsed.query
        )
    except httpx.InvalidURL:
        is_model = False
    if not is_model:
        raise ValueError(
            "`url` must be the address of a model, such as "
            "http://127.0.0.1:8501/v1/models/emoji or "
            f"http://127.0.0.1:8501/v1/models/emoji/versions/1. Received: url={url!r}."
        )
    return parsed.host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _dims(signatures: dict[str, Any], *way: str) -> list[int | None]:
    dims = _member(signatures, *way, "tensor_shape").get("dim", [])
    if not isinstance(dims, list):
        return []
    sizes = [str(_member({"dim": dim}, "dim").get("size", "")) for dim in dims]
    return [int(size) if size.isdigit() and int(size) else None for size in sizes]


def _member(value: Any, *way: str) -> dict[str, Any]:
    for name in way:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
