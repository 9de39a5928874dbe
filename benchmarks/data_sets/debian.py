"""Fetch pinned Debian packages with apt-get and check their SHA-256.

Nothing is installed: the package is unpacked below a folder of the data set. The
machine's own apt configuration (mirror, proxy) is respected.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tfdml.files import sha256_of, whole_folder
from training.data.emoji.npm import FetchError


@dataclass(frozen=True)
class DebianPackage:
    """One exact version of a package for every architecture.

    Args:
        name: Name of the package.
        version: Exact version, with its epoch if it has one.
        sha256: Hexadecimal SHA-256 digest of the `.deb` file, as apt prints it.
    """

    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Name that `apt-get download` gives the file."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_all.deb"

    @property
    def folder_name(self) -> str:
        """Name of the folder that the package is unpacked to."""
        return f"{self.name}-{self.version.partition(':')[2] or self.version}"


def fetch_debian(package: DebianPackage, folder: Path) -> Path:
    """Fetch and unpack a package unless that is done already.

    Args:
        package: What to fetch.
        folder: Where the `.deb` file and what it unpacks to go. A `.deb` file that
            somebody put there is used, on a system without apt too.

    Returns:
        Folder with the files of the package, such as `usr/share`.

    Raises:
        FetchError: A tool is missing, apt-get failed, or the SHA-256 differs from the
            pinned one.
    """
    unpacked = folder / package.folder_name
    if unpacked.is_dir():
        return unpacked
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / package.file_name
    if not (archive.exists() and _digest(archive) == package.sha256):
        archive.unlink(missing_ok=True)
        remedy = f"Or put the file {package.file_name} into {folder}."
        request = f"{package.name}={package.version}"
        _run(["apt-get", "download", "--quiet", request], folder, remedy)
    received = _digest(archive)
    if received != package.sha256:
        archive.unlink()
        raise FetchError(
            f"{package.file_name}: the SHA-256 must be {package.sha256}. "
            f"Received: {received}. The file was deleted; run the command again."
        )
    with whole_folder(unpacked) as unfinished:
        _run(
            ["dpkg-deb", "--extract", archive.name, unfinished.name],
            folder,
            "It comes with Debian's dpkg.",
        )
    return unpacked


def _run(command: list[str], folder: Path, remedy: str) -> None:
    name = " ".join(command[:2])
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise FetchError(f"`{command[0]}` is not on this system. {remedy}") from error
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip() or f"exit {done.returncode}"
        raise FetchError(f"`{name}` failed: {reason}\n{remedy}")


def _digest(path: Path) -> str:
    return sha256_of(path) if path.exists() else "no file"
