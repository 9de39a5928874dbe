"""Hold the token of a client, and the certificates that it trusts and shows."""

import re
import ssl
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from tfdml.messages import shortened, shown
from tfdml.text_files import decode

from .address import ModelAddress
from .retries import EndpointError

_TOKEN = re.compile(r"[\x21-\x7e]+")

File = str | PathLike[str]


def read_token(file: File) -> str:
    """Read a token from a file, which may be the endpoint's own file of tokens.

    Args:
        file: Blank lines and lines that begin with # are skipped; the first other one
            is the token, without the spaces around it.

    Returns:
        The token.

    Raises:
        OSError: The file cannot be read.
        ValueError: It has no token.
    """
    for line in decode(Path(file).read_bytes())[0].split("\n"):
        token = line.strip()
        if token and not token.startswith("#"):
            return token
    raise ValueError(f"{file} must have at least one token.")


def refused_certificate(url: str, reason: object) -> EndpointError:
    """Return the error for an endpoint that is not trusted, which no retry changes."""
    return EndpointError(
        f"The certificate of the embedding endpoint {url} is not trusted ({reason}). "
        "It must be issued for the host in the address, by an authority that is "
        "trusted: name the endpoint's own with `--ca-file`, or "
        "`Credentials(ca_file=...)`."
    )


@dataclass(frozen=True)
class Credentials:
    """The token and the certificates of a client.

    Args:
        token: Sent with each request as `Authorization: Bearer TOKEN`; printable ASCII
            without spaces. No error and no `repr` shows it.
        ca_file: Certificates (PEM) of the authorities that are trusted, in place of
            the system's.
        certificate_file: The client's own certificate (PEM), where the endpoint asks
            for one.
        key_file: The key (PEM, not encrypted) of that certificate.

    Raises:
        ValueError: The token cannot be sent, or of certificate and key one is missing.
    """

    token: str | None = field(default=None, repr=False)
    ca_file: File | None = None
    certificate_file: File | None = None
    key_file: File | None = None

    def __post_init__(self) -> None:
        is_token = isinstance(self.token, str) and _TOKEN.fullmatch(self.token)
        if self.token is not None and not is_token:
            raise ValueError(
                "`token` must have at least one character, all of them printable ASCII "
                "without spaces. It is not shown here."
            )
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError(
                "`certificate_file` and `key_file` must be given together. Received: "
                f"certificate_file={shown(self.certificate_file)}, "
                f"key_file={shown(self.key_file)}."
            )

    def check(self, address: ModelAddress) -> None:
        """Make sure that what was given for TLS can be used.

        Raises:
            ValueError: The connection is not encrypted.
        """
        if address.is_encrypted:
            return
        for name in ("ca_file", "certificate_file"):
            if (file := getattr(self, name)) is not None:
                raise ValueError(
                    f"`{name}` needs an encrypted connection: an address that begins "
                    "with https:// or grpcs://. "
                    f"Received: {name}={shown(str(file))}, url={shown(address.url)}."
                )

    @property
    def headers(self) -> dict[str, str]:
        """The header that carries the token; empty without one."""
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}

    def for_rest(self) -> ssl.SSLContext:
        """Return what an HTTP client checks certificates with.

        Raises:
            OSError: A file is missing.
            ValueError: A file does not hold what it should.
        """
        context = ssl.create_default_context()
        try:
            if self.ca_file is not None:
                # A context that is made with it trusts no one else.
                data = Path(self.ca_file).read_text("ascii")
                context = ssl.create_default_context(cadata=data)
            if self.certificate_file is not None and self.key_file is not None:
                for file in (self.certificate_file, self.key_file):
                    Path(file).open().close()  # whose error names the file
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise ValueError(
                "Certificates and keys must be in PEM, and the key that of the "
                f"certificate ({shortened(error)}). Received: {self}."
            ) from error
        return context

    def for_grpc(self) -> Any:
        """Return the `grpc.ChannelCredentials` of an encrypted connection.

        Raises:
            OSError: A file is missing.
            ValueError: A file does not hold what it should.
        """
        import grpc

        self.for_rest()  # gRPC itself finds fault with a file when it connects
        files = (self.ca_file, self.key_file, self.certificate_file)
        return grpc.ssl_channel_credentials(
            *(None if file is None else Path(file).read_bytes() for file in files)
        )
