"""Check who may call a server: bearer tokens, loopback addresses and proxies.

One check serves the `Authorization` header of REST and the `authorization` metadata of
gRPC. Only hashes of the tokens are kept in memory.
"""

import hashlib
import hmac
import ipaddress
import logging
import os
import re
import stat
import threading
from os import PathLike

from tfdml.messages import shown
from tfdml.text_files import decode

from .status import StatusCode, StatusError

_SHORTEST_TOKEN = 16
# What RFC 6750 allows in the header.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_BEARER = re.compile(r"Bearer +(\S+) *", re.I)

_log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Return whether a host, by name or address, is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_proxy(address: str) -> str:
    """Check the address of a proxy, or of a network of them.

    Returns:
        The address.

    Raises:
        ValueError: It is neither.
    """
    try:
        ipaddress.ip_network(address)
    except ValueError as error:
        raise ValueError(
            "`trusted_proxies` must be IP addresses, or networks such as 10.0.0.0/8. "
            f"Received: {shown(address)}."
        ) from error
    return address


class TokenAccess:
    """Lets in those who show a token of a file. `check` may be called from any thread.

    The file has one token per line; blank lines, and lines that begin with #, are
    skipped.
    It is read again when it changes, so that tokens are added and taken away without a
    restart: write a new file beside it and rename it over the old one. If the
    new file is broken or missing, this is logged and the old tokens stay valid.

    Args:
        file: The file. Users other than its owner and group must not be able to read
            it, and nobody but its owner to write to it; in Kubernetes, give the secret
            the `defaultMode` 0440 and the pod an `fsGroup`.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: The file cannot be read.
        ValueError: The file is open to others, has no token, or has a line that is not
            a token.
    """

    def __init__(self, file: str | PathLike[str]) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._hashes, self._seen = _read_hashes(file)

    def check(self, authorization_header: str | None) -> None:
        """Refuse a request that does not show a token of the file.

        Args:
            authorization_header: "Bearer TOKEN"; None if there is no such header.

        Raises:
            StatusError: UNAUTHENTICATED. The text never shows what was sent.
        """
        self._read_again_if_changed()
        shown = _BEARER.fullmatch(authorization_header or "")
        if shown is None:
            raise StatusError(
                StatusCode.UNAUTHENTICATED,
                "This server needs the header `Authorization: Bearer TOKEN`.",
            )
        digest = _digest(shown[1])
        # All are compared, so that the time does not reveal which one it was.
        matches = [hmac.compare_digest(digest, known) for known in self._hashes]
        if not any(matches):
            raise StatusError(
                StatusCode.UNAUTHENTICATED, "The bearer token is not valid here."
            )

    def _read_again_if_changed(self) -> None:
        found = _state(self._file)
        if found == self._seen:
            return
        with self._lock:
            if found == self._seen:
                return
            try:
                self._hashes, self._seen = _read_hashes(self._file)
            except (OSError, ValueError) as error:
                self._seen = found
                _log.error("The tokens read before stay valid: %s", error)
            else:
                _log.info("Read %d tokens from %s.", len(self._hashes), self._file)


_State = tuple[int, ...] | None


def _state(file: str | PathLike[str]) -> _State:
    """Return what changes when the file does; None if it cannot be looked at."""
    try:
        return _state_of(os.stat(file))
    except OSError:
        return None


def _state_of(status: os.stat_result) -> _State:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _read_hashes(file: str | PathLike[str]) -> tuple[tuple[bytes, ...], _State]:
    with open(file, "rb") as opened:
        # Of the file that is read, whatever now has its name.
        status = os.fstat(opened.fileno())
        mode = stat.S_IMODE(status.st_mode)
        if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
            raise ValueError(
                f"{file} must not be open to other users: run `chmod 600` on it. Its "
                f"mode is {mode:04o}."
            )
        content = opened.read()
    hashes = []
    for number, line in enumerate(decode(content)[0].split("\n"), 1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        if len(token) < _SHORTEST_TOKEN or not _TOKEN.fullmatch(token):
            raise ValueError(
                f"Line {number} of {file} must be a token of at least "
                f"{_SHORTEST_TOKEN} letters, digits and -._~+/, with = only at its "
                "end."
            )
        hashes.append(_digest(token))
    if not hashes:
        raise ValueError(f"{file} must have at least one token.")
    return tuple(hashes), _state_of(status)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
