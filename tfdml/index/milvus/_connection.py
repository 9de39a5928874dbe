"""Connect to Milvus by the address of a cluster, or a path for milvus-lite."""

import contextlib
import functools
import logging.config
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tfdml.messages import cut, shortened, shown
from tfdml.versioned_folder import IndexFileError, LockedError

_TOKEN = "MILVUS_TOKEN"  # noqa: S105

# pymilvus 3.0 pings every 10 seconds, and the server of milvus-lite 3.2 takes that for
# an attack: after some rest it may hang up in the middle of a call ("too_many_pings").
_NO_PINGS = {"grpc.keepalive_time_ms": 2**31 - 1}

_COLLECTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


def check_collection(collection: str) -> None:
    """Check the name of a collection.

    Raises:
        ValueError: It is not a word of letters, digits and underscores.
    """
    if not isinstance(collection, str) or not _COLLECTION.fullmatch(collection):
        raise ValueError(
            "`collection` must be a word of up to 255 letters, digits and underscores "
            f"that does not start with a digit. Received: {shown(collection)}."
        )


def check_is_there(uri: str) -> None:
    """Check that a path exists: milvus-lite would make a new, empty database.

    Raises:
        IndexFileError: It does not exist.
    """
    is_path = isinstance(uri, str) and _is_path(uri) and uri.endswith(".db")
    if is_path and not Path(uri).exists():
        raise IndexFileError(
            "`uri` must be where milvus-lite keeps the collection. Received: "
            f"{cut(place_of(uri))}, which does not exist. If it was moved, open its "
            "new path with `MilvusIndex.connect`, and `save` to the folder of the "
            "index again. `build` makes a new one."
        )


def connect(uri: str, token: str | None, database: str, timeout: float) -> Any:
    """Return a client of pymilvus.

    Args:
        uri: `"http://host:19530"` or the like; or, for milvus-lite, a path that ends
            with ".db", in an existing folder.
        token: `"user:password"` or an API key. Default: the environment variable
            MILVUS_TOKEN, if it is set.
        database: The database of the cluster.
        timeout: Seconds to wait for the server.

    Raises:
        ImportError: pymilvus, or for a path milvus-lite, is not installed.
        ValueError: `uri` is neither.
        LockedError: Another process has the path open.
        ConnectionError: The server does not answer, or refuses the token.
    """
    _check_uri(uri)
    try:
        with _logging_kept():
            import pymilvus

            if _is_path(uri):
                import milvus_lite  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "`MilvusIndex` needs pymilvus, and milvus-lite where `uri` is a path: "
            'pip install "tfdml[milvus]".'
        ) from error
    token = os.environ.get(_TOKEN, "") if token is None else token
    options = {"grpc_options": _NO_PINGS} if _is_path(uri) else {}
    place = place_of(uri)
    try:
        return _Client(
            pymilvus.MilvusClient(
                place if _is_path(uri) else uri,
                token=token,
                db_name=database,
                timeout=timeout,
                **options,
            )
        )
    except pymilvus.MilvusException as error:
        if _is_path(uri):
            raise LockedError(
                f"milvus-lite cannot open {cut(place)}. Another process may have it "
                "open, and it serves one at a time: close that one, or run a Milvus "
                "server for several."
            ) from error
        raise ConnectionError(
            f"Milvus at {cut(place)} does not answer, or refuses the token: "
            f"{shortened(error)}."
        ) from error


@contextlib.contextmanager
def _logging_kept() -> Iterator[None]:
    """Keep the program's own logging while pymilvus is imported.

    pymilvus 3.0 configures logging then, which closes the handlers of everybody else;
    that of absl closes the standard error with it.
    """
    configure = logging.config.dictConfig
    logging.config.dictConfig = lambda config: None
    try:
        yield
    finally:
        logging.config.dictConfig = configure


class _Client:
    """A client of pymilvus whose errors are also `ConnectionError`s.

    Whoever does not know which server is behind an index can catch those.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not callable(method):
            return method

        @functools.wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            import pymilvus

            try:
                return method(*arguments, **options)
            except pymilvus.MilvusException as error:
                raise _server_error()(code=error.code, message=error.message) from error

        return call


@functools.cache
def _server_error() -> Any:
    """Make the class of errors of a server; pymilvus loads when it is needed."""
    import pymilvus

    class MilvusServerError(pymilvus.MilvusException, ConnectionError):
        """Milvus refused a request, or did not answer."""

        def __str__(self) -> str:
            return f"Milvus refused a request, or did not answer: {self.message}"

    return MilvusServerError


def disconnect(client: Any) -> None:
    """Close a client."""
    client.close()


def is_lite(client: Any) -> bool:
    """Return whether milvus-lite is at the other end."""
    return str(client.get_server_version()).startswith("milvus_lite")


def place_of(uri: str) -> str:
    """Return where Milvus is: the address without user and password, or the path."""
    if _is_path(uri):
        return str(Path(uri).absolute())
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _is_path(uri: str) -> bool:
    return "://" not in uri and not uri.startswith("unix:")


def _check_uri(uri: str) -> None:
    if not isinstance(uri, str) or not uri:
        raise ValueError(f"`uri` must be an address or a path. Received: {shown(uri)}.")
    if not _is_path(uri):
        return
    if not uri.endswith(".db"):
        raise ValueError(
            '`uri` must be an address, such as "http://host:19530", or a path for '
            f'milvus-lite that ends with ".db". Received: {shown(uri)}.'
        )
    if not Path(uri).absolute().parent.is_dir():
        raise ValueError(
            f"`uri` must be a path in an existing folder. Received: {shown(uri)}."
        )
