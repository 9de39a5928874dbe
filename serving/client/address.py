"""Parse the address of a model."""

import re
from dataclasses import dataclass
from urllib.parse import unquote

import httpx2

from tfdml.messages import shown

from ..web.access import is_loopback

_VERSION = re.compile(r"(/versions/[0-9]+|/labels/\w+)$")
_CHOICE = r"(?:/versions/(?P<version>[0-9]{1,18})|/labels/(?P<label>\w+))?"
_PATHS = {
    # REST may be below a path of a proxy, a gRPC call cannot.
    "http": re.compile(rf"(?:/[^?#]*)?/v1/models/(?P<name>[^/:]+){_CHOICE}"),
    "grpc": re.compile(rf"(?:/v1/models)?/(?P<name>[^/:]+){_CHOICE}"),
}
_PORTS = {"http": 80, "https": 443, "grpc": 8500, "grpcs": 8500}


@dataclass(frozen=True)
class ModelAddress:
    """A model at an endpoint.

    Attributes:
        url: The address as it was written, without "/" at its end.
        is_grpc: Whether the endpoint is spoken to by gRPC; else by REST.
        is_encrypted: Whether the connection is encrypted by TLS.
        target: Host and port.
        name: Name of the model.
        version: The version that is asked for, or None.
        label: The label that is asked for, or None. Without both, the latest version.
        is_loopback: Whether the endpoint is on this machine.
    """

    url: str
    is_grpc: bool
    is_encrypted: bool
    target: str
    name: str
    version: int | None
    label: str | None
    is_loopback: bool


def parse_address(url: str) -> ModelAddress:
    """Take the address of a model apart.

    Args:
        url: `http://HOST:PORT/v1/models/NAME` or `grpc://HOST:PORT/NAME`, each with
            `/versions/N` or `/labels/LABEL` behind it where one is meant; `https` and
            `grpcs` for an encrypted connection. gRPC takes the path of REST as well,
            and its port is 8500 unless it is written.

    Returns:
        Its parts.

    Raises:
        ValueError: It is not the address of a model, or holds a password.
    """
    if not isinstance(url, str):
        raise _no_address(url)
    url = url.rstrip("/")
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        raise _no_address(url) from None
    if parsed.userinfo:
        # Addresses are printed; this one is not, as it holds a secret.
        raise ValueError(
            "`url` must not hold a user name or password. Give the endpoint's token as "
            "`Credentials(token=...)`."
        )
    protocol = parsed.scheme.removesuffix("s")
    if protocol not in _PATHS or not parsed.host or parsed.query or parsed.fragment:
        raise _no_address(url)
    match = _PATHS[protocol].fullmatch(parsed.raw_path.decode("ascii"))
    if match is None:
        raise _no_address(url)
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    return ModelAddress(
        url=url,
        is_grpc=protocol == "grpc",
        is_encrypted=parsed.scheme.endswith("s"),
        target=f"{host}:{parsed.port or _PORTS[parsed.scheme]}",
        name=unquote(match["name"]),
        version=None if match["version"] is None else int(match["version"]),
        label=match["label"],
        is_loopback=is_loopback(parsed.host),
    )


def at_version(url: str, version: int) -> str:
    """Return the address of one version of the same model."""
    return _VERSION.sub("", url.rstrip("/")) + f"/versions/{version}"


def _no_address(url: str) -> ValueError:
    return ValueError(
        "`url` must be the address of a model, such as "
        "http://127.0.0.1:8501/v1/models/emoji, "
        "http://127.0.0.1:8501/v1/models/emoji/versions/1 or "
        f"grpc://127.0.0.1:8500/emoji. Received: url={shown(url)}."
    )
