"""Fetch pinned packages from the npm registry, and check their integrity.

No npm is needed: a package is a file that HTTP brings. The registry, proxy,
certificates and login are those that npm is set up for.
"""

import base64
import hashlib
import json
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx2

from tfdml.files import written
from tfdml.messages import cut, shortened

from .npm_settings import NpmSettings, NpmSettingsError, read_npm_settings

_MOST_SECONDS = 600.0  # for one answer, however slowly it trickles
_PAUSE = 1.0  # seconds before the second attempt; then twice as long each time
_AGAIN = (408, 425, 429, 500, 502, 503, 504)  # answers that may be others next time


class FetchError(RuntimeError):
    """A package could not be fetched, or what came is not what was asked for."""


class _UnfitError(Exception):
    """An answer that may be another one next time."""


@dataclass(frozen=True)
class NpmPackage:
    """One exact version of an npm package.

    Args:
        name: Name with its scope, such as `@iconify-json/noto`.
        version: Exact version.
        sha512: Base64 SHA-512 digest of the tarball, as npm prints it.
    """

    name: str
    version: str
    sha512: str

    @property
    def tarball_name(self) -> str:
        """File name that `npm pack` gives the tarball."""
        return f"{self.name.lstrip('@').replace('/', '-')}-{self.version}.tgz"


def fetch(
    package: NpmPackage, folder: Path, say: Callable[[str], None] = lambda text: None
) -> Path:
    """Fetch a package unless an intact copy is already there.

    A tarball that somebody put there, as `npm pack` names it, is used.

    Args:
        package: What to fetch.
        folder: Where the tarball goes.
        say: Called with a few words again and again: what is being fetched, and how
            much of it is here.

    Returns:
        Path of the tarball.

    Raises:
        FetchError: The registry cannot be reached, is too slow or refuses, npm's
            settings cannot be used, or the SHA-512 of the tarball differs from the
            pinned one. What is broken is asked for again before, as often as npm does.
        OSError: The tarball cannot be written.
    """
    tarball = folder / package.tarball_name
    if tarball.exists() and _digest(tarball.read_bytes()) == package.sha512:
        return tarball
    try:
        settings = read_npm_settings()
        registry = settings.registry(package.name)
        data = _fetched(package, settings, registry, say)
    except NpmSettingsError as error:
        raise FetchError(str(error)) from None
    folder.mkdir(parents=True, exist_ok=True)
    with written(tarball) as new:
        new.write_bytes(data)
    return tarball


def _fetched(
    package: NpmPackage,
    settings: NpmSettings,
    registry: str,
    say: Callable[[str], None],
) -> bytes:
    login, reason = settings.authorization(registry), ""
    with settings.client() as client:
        for attempt in range(settings.retries + 1):
            if attempt:
                say(f"{package.name} once more ({reason})")
                time.sleep(_PAUSE * 2 ** (attempt - 1))
            else:
                say(package.name)
            try:
                data = _tarball(client, registry, login, package, say)
                return _checked(package, data)
            except (httpx2.HTTPError, httpx2.InvalidURL, _UnfitError) as error:
                reason = shortened(error)
    raise FetchError(
        f"{package.name}@{package.version} could not be fetched from "
        f"{cut(registry, 150)} in {attempt + 1} attempts: {reason}. Check that the npm "
        "registry can be reached, or set another: npm_config_registry=URL."
    )


def _tarball(
    client: httpx2.Client,
    registry: str,
    login: dict[str, str],
    package: NpmPackage,
    say: Callable[[str], None],
) -> bytes:
    """Return what stands where registries keep tarballs, or where one says it does."""
    base = package.name.rpartition("/")[2]
    url = f"{registry}{package.name}/-/{base}-{package.version}.tgz"
    data = _content(client, url, login, say)
    if data is None:
        name = quote(package.name, safe="@")
        about = _content(client, f"{registry}{name}/{package.version}", login, say)
        if other := _tarball_url(about):
            # The login is for the registry alone.
            own = login if other.startswith(registry) else {}
            data = _content(client, other, own, say)
    if data is None:
        raise FetchError(
            f"{cut(registry, 150)} has no {package.name}@{package.version}. Is it a "
            "mirror of npm's registry? Set another: npm_config_registry=URL."
        )
    return data


def _content(
    client: httpx2.Client,
    url: str,
    login: dict[str, str],
    say: Callable[[str], None],
) -> bytes | None:
    """Return what is at a URL; None if there is nothing.

    Raises:
        FetchError: The registry wants a login, or takes too long. Another attempt would
            take as long.
    """
    end = time.monotonic() + _MOST_SECONDS
    # Some servers say of an archive that it is encoded: it is taken as it comes.
    headers = {"Accept-Encoding": "identity", **login}
    with client.stream("GET", url, headers=headers) as response:
        status = response.status_code
        if status in (404, 405, 410):
            return None
        if status in (401, 403, 407):
            raise FetchError(
                f"{cut(url, 200)} answers {status}: the registry or proxy wants a "
                "login. `npm login` writes one to ~/.npmrc."
            )
        if status in _AGAIN:
            raise _UnfitError(f"{cut(url, 200)} answers {status}.")
        if status != 200:
            raise FetchError(f"{cut(url, 200)} answers {status}.")
        data = bytearray()
        for chunk in response.iter_raw():
            data += chunk
            say(f"{len(data) / 1e6:.1f} MB of {url.rpartition('/')[2]}")
            if time.monotonic() > end:
                raise FetchError(
                    f"{cut(url, 200)} takes over {_MOST_SECONDS:.0f} seconds: "
                    f"{len(data):,} bytes have come. Try again with a better network, "
                    "or set another registry: npm_config_registry=URL."
                )
    return bytes(data)


def _tarball_url(about: bytes | None) -> str | None:
    try:
        url = json.loads(about or b"{}").get("dist", {}).get("tarball")
    except (ValueError, AttributeError):
        return None
    return url if isinstance(url, str) else None


def _checked(package: NpmPackage, data: bytes) -> bytes:
    received = _digest(data)
    if received != package.sha512:
        raise _UnfitError(
            f"the SHA-512 of the package must begin with {package.sha512[:20]}. "
            f"Received: {received[:20]} ({len(data):,} bytes)."
        )
    return data


def read_members(tarball: Path) -> dict[str, bytes]:
    """Read all files of a package tarball: path inside the package -> bytes."""
    members = {}
    with tarfile.open(tarball) as archive:
        for member in archive:
            reader = archive.extractfile(member) if member.isfile() else None
            if reader is not None:
                members[member.name.removeprefix("package/")] = reader.read()
    return members


def _digest(data: bytes) -> str:
    return base64.b64encode(hashlib.sha512(data).digest()).decode("ascii")
