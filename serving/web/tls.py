"""Read TF Serving's `ssl_config_file`: TLS for gRPC and for REST.

The file is an `SSLConfig` in the text format of protocol buffers, whose fields hold the
PEM texts themselves. TF Serving applies it to gRPC alone; here REST takes it as well.
The package `cryptography` is imported when such a file is read.
"""

import contextlib
import logging
import os
import ssl
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import PathLike
from typing import Any

from tfdml.messages import cut, shortened

from .config_messages import message_class, read_text_message

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SslConfig:
    """Key and certificates of a server, checked against each other.

    Attributes:
        server_key: Private key, PEM, without a password.
        server_cert: Certificate, PEM, followed by intermediate certificates, if any.
        custom_ca: Certificates of the authorities that sign those of the clients, PEM.
        client_verify: Whether a client must show a certificate.
    """

    server_key: bytes = field(repr=False)
    server_cert: bytes
    custom_ca: bytes = b""
    client_verify: bool = False


def read_ssl_config(file: str | PathLike[str]) -> SslConfig:
    """Read TF Serving's `ssl_config_file`, and check what is in it.

    A file that other users can read is taken, with a warning in the log.

    Args:
        file: An `SSLConfig` in the text format of protocol buffers.

    Returns:
        What it holds.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not such a message; a PEM text is missing or cannot be read;
            the key does not belong to the certificate, or needs a password; a
            certificate has ended or not begun; clients are to be verified without
            `custom_ca`. The error never holds a part of the key.
    """
    try:
        message = read_text_message(file, message_class("SSLConfig"))
    except ValueError as error:
        # The parser's own message may quote a line of the key.
        line = getattr(error.__cause__, "GetLine", lambda: None)()
        where = f" (line {line})" if line else ""
        raise ValueError(
            f"{file} must hold a `tensorflow.serving.SSLConfig` in the text format of "
            f"protocol buffers{where}."
        ) from None
    if os.stat(file).st_mode & stat.S_IROTH:
        _log.warning(
            "%s holds a private key, and all users can read it: run `chmod 600` on it.",
            file,
        )
    config = SslConfig(
        server_key=message.server_key.encode(),
        server_cert=message.server_cert.encode(),
        custom_ca=message.custom_ca.encode(),
        client_verify=message.client_verify,
    )
    _check(config, file)
    return config


def ssl_context_for_uvicorn(config: SslConfig) -> ssl.SSLContext:
    """Make the context for a server in Python.

    uvicorn takes it as `uvicorn.Config(..., ssl_context_factory=lambda *_: context)`
    from version 0.47 on.

    Args:
        config: As `read_ssl_config` returned it.

    Returns:
        A context for TLS 1.2 and later.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with _file_in_memory(config.server_key + b"\n" + config.server_cert) as name:
        context.load_cert_chain(name)
    if config.client_verify:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=config.custom_ca.decode())
    return context


def grpc_credentials(config: SslConfig) -> Any:
    """Make the credentials for `grpc.Server.add_secure_port`.

    Args:
        config: As `read_ssl_config` returned it.

    Returns:
        A `grpc.ServerCredentials`.
    """
    import grpc

    return grpc.ssl_server_credentials(
        [(config.server_key, config.server_cert)],
        root_certificates=config.custom_ca if config.client_verify else None,
        require_client_auth=config.client_verify,
    )


def _check(config: SslConfig, file: str | PathLike[str]) -> None:
    certificates = _certificates(config.server_cert, "server_cert", file)
    key = _private_key(config.server_key, file)
    if key.public_key() != certificates[0].public_key():
        raise ValueError(
            f"`server_key` in {file} must be the key of the first certificate in "
            f"`server_cert`, which is {cut(_name(certificates[0]))}."
        )
    for certificate in certificates:
        _check_dates(certificate, file)
    if config.custom_ca:
        _certificates(config.custom_ca, "custom_ca", file)
    elif config.client_verify:
        raise ValueError(
            f"`custom_ca` in {file} must hold the CA certificates that sign "
            "those of the clients, because `client_verify` is true."
        )


def _private_key(pem: bytes, file: str | PathLike[str]) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(pem, None)
    except TypeError:
        reason = "must be a private key without a password"
    except (ValueError, UnsupportedAlgorithm):
        reason = "must be the PEM text of a private key"
    raise ValueError(f"`server_key` in {file} {reason}.")


def _certificates(pem: bytes, name: str, file: str | PathLike[str]) -> list[Any]:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise ValueError(
            f"`{name}` in {file} must be the PEM text of one or more certificates "
            f"({shortened(error)})."
        ) from error


def _check_dates(certificate: Any, file: str | PathLike[str]) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    now = datetime.now(UTC)
    if not begin <= now <= end:
        raise ValueError(
            f"The certificate {cut(_name(certificate))} in {file} must be valid now. "
            f"It is valid from {begin:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} "
            f"UTC; it is {now:%Y-%m-%d %H:%M:%S} UTC."
        )


def _name(certificate: Any) -> str:
    return certificate.subject.rfc4514_string() or f"number {certificate.serial_number}"


@contextlib.contextmanager
def _file_in_memory(content: bytes) -> Iterator[str]:
    """Give a name under which OpenSSL, which reads keys from files only, finds it.

    On Linux it is never on a disk. Elsewhere it is a file that its owner alone can
    read, gone when the block ends.
    """
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("tls"), "wb") as memory:
            memory.write(content)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
        return
    # Windows opens no file a second time that is to be deleted when it is closed.
    descriptor, name = tempfile.mkstemp()  # its mode is 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield name
    finally:
        os.unlink(name)
