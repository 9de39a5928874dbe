"""Read folders of S3, Google Cloud Storage and Azure, by fsspec.

Credentials come from where the tools of each cloud look for them: the environment, a
file of the user, or the machine. They never stand in an address, and what an error says
is freed of them.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tfdml.messages import cut, shortened, shown

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRET = re.compile("KEY|SECRET|TOKEN|SAS|PASSWORD|CREDENTIAL|CONNECTION", re.I)
_SHORTEST_SECRET = 8
_MARKS = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime")
_SECONDS = 20
_S3 = {
    "connect_timeout": _SECONDS,
    "read_timeout": _SECONDS,
    "retries": {"max_attempts": 3},
}
_SCHEMES = ("s3", "gs", "gcs", "az", "abfs")


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is an address, such as `s3://bucket/models`."""
    return isinstance(path, str) and _ADDRESS.match(path) is not None


@dataclass(frozen=True)
class RemoteFile:
    """A file as its folder lists it.

    Attributes:
        size: Its length in bytes.
        mark: Changes with its content.
    """

    size: int
    mark: str


@dataclass(frozen=True)
class RemoteFolder:
    """A folder in the cloud.

    Attributes:
        url: Its address, without a slash at its end.

    Raises:
        ValueError: It is of no cloud that can be read, or holds credentials.
    """

    url: str

    def __post_init__(self) -> None:
        """Check the address."""
        parts = urlsplit(self.url)
        if parts.query or parts.fragment or ":" in parts.netloc.rpartition("@")[0]:
            raise ValueError(
                f"An address at {parts.scheme}:// must be a bucket and a path alone. "
                "Give credentials as the tools of the cloud take them, such as by "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment."
            )
        if parts.scheme not in _SCHEMES or not parts.netloc:
            raise ValueError(
                "The address of a folder must begin with s3://BUCKET, gs://BUCKET or "
                f"az://CONTAINER. Received: {shown(self.url)}."
            )
        object.__setattr__(self, "url", self.url.rstrip("/"))

    def __str__(self) -> str:
        """Return the address."""
        return self.url

    def __truediv__(self, name: str) -> "RemoteFolder":
        """Return a folder in it."""
        return RemoteFolder(f"{self.url}/{name}")

    def files(self) -> dict[str, RemoteFile]:
        """List all files below it, as they are now.

        Returns:
            Each file by its path below the folder; none if there is no such folder.

        Raises:
            OSError: It cannot be read; the message names it and says why.
            MissingPackageError: The package for this cloud is not installed.
        """
        with _named_errors(self.url):
            system, path = self._opened()
            found = system.find(path, detail=True)
        start = len(path.rstrip("/")) + 1
        return {
            name[start:]: RemoteFile(int(about["size"] or 0), _mark(about))
            for name, about in found.items()
            if about["type"] == "file" and len(name) > start and name[-1] != "/"
        }

    def resolve(self) -> "RemoteFolder":
        """Return the folder itself, which has no links."""
        return self

    def has(self, name: str) -> bool:
        """Return whether there is a file below it.

        Raises:
            OSError: The cloud refuses.
        """
        try:
            with _named_errors(f"{self.url}/{name}"):
                system, path = self._opened()
                kind: str = system.info(f"{path}/{name}")["type"]
        except FileNotFoundError:
            return False
        return kind == "file"

    def read(self, name: str) -> bytes:
        """Return the content of a file below it.

        Raises:
            FileNotFoundError: There is no such file.
            OSError: It cannot be read.
        """
        with _named_errors(f"{self.url}/{name}"):
            system, path = self._opened()
            content: bytes = system.cat_file(f"{path}/{name}")
        return content

    def copy(self, name: str, file: Path) -> None:
        """Copy a file below it to this machine.

        Raises:
            FileNotFoundError: There is no such file.
            OSError: It cannot be read, or not be written here.
        """
        with _named_errors(f"{self.url}/{name}"):
            system, path = self._opened()
            system.get_file(f"{path}/{name}", str(file))

    def _opened(self) -> tuple[Any, str]:
        # Without its lists of folders from before: others write to them.
        options: dict[str, Any] = {"use_listings_cache": False}
        scheme = self.url.partition(":")[0]
        # By name, so that a missing package is named with its extra.
        if scheme == "s3":
            import s3fs  # noqa: F401

            options["config_kwargs"] = _S3
        elif scheme in ("gs", "gcs"):
            import gcsfs  # noqa: F401
        else:
            import adlfs  # noqa: F401
        import fsspec

        system, path = fsspec.url_to_fs(self.url, **options)
        return system, path


@contextlib.contextmanager
def _named_errors(url: str) -> Iterator[None]:
    """Name the address, and the reason without credentials, in errors of a block."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # each cloud has its own
        reason = without_secrets(shortened(error) or "no reason given")
        text = f"{cut(url)} cannot be read ({type(error).__name__}: {reason})"
        kinds = (FileNotFoundError, PermissionError)
        kind = next((kind for kind in kinds if isinstance(error, kind)), OSError)
        # Not the error itself: it may hold a request with its headers.
        raise kind(text) from None


def without_secrets(text: str) -> str:
    """Return a text without the credentials of this process's environment."""
    for name, value in os.environ.items():
        if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "***")
    return text


def _mark(about: Mapping[str, Any]) -> str:
    return next((str(about[name]) for name in _MARKS if about.get(name)), "")
