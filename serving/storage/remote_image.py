"""Read images where they are: on this machine, or in the cloud."""

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from tfdml.images import (
    FoundImages,
    UnreadableImageError,
    is_image_name,
    read_image,
)
from tfdml.messages import shown

from .remote_folder import RemoteFolder, is_remote


@dataclass(frozen=True)
class RemoteImage:
    """An image in the cloud, which is read each time.

    Attributes:
        folder: A folder that it is below.
        name: Its path below the folder.
    """

    folder: RemoteFolder
    name: str

    def __str__(self) -> str:
        """Return its address."""
        return f"{self.folder}/{self.name}"

    @property
    def suffix(self) -> str:
        """Return the ending of its name, such as `.jpg`."""
        return PurePosixPath(self.name).suffix

    def is_file(self) -> bool:
        """Return whether there is such an image.

        Raises:
            OSError: The cloud refuses.
        """
        return self.folder.has(self.name)

    def read_bytes(self) -> bytes:
        """Return its content.

        Raises:
            FileNotFoundError: There is no such image.
            OSError: It cannot be read.
        """
        return self.folder.read(self.name)


def place_of(path: str | os.PathLike[str]) -> Path | RemoteFolder:
    """Return the folder that a path or an address names, without links in a path.

    Raises:
        ValueError: It is an address that cannot be read.
    """
    if is_remote(path):
        return RemoteFolder(os.fspath(path))
    return Path(path).resolve()


def image_at(root: Path | RemoteFolder, path: str) -> Path | RemoteImage:
    """Return an image below a folder, or at a path or address of its own."""
    if isinstance(root, Path):
        return root / path
    if os.path.isabs(path):
        return Path(path)
    return RemoteImage(root, path.removeprefix(f"{root}/"))


def content_of(image: Path | RemoteImage | bytes) -> Path | bytes:
    """Return what `read_image` takes: of an image in the cloud, the content.

    Raises:
        OSError: The cloud refuses, or there is no such image.
    """
    return image.read_bytes() if isinstance(image, RemoteImage) else image


def read_image_at(
    root: Path | RemoteFolder, path: str, max_pixels: int | None
) -> np.ndarray:
    """Read an image below a folder, as `read_image`.

    Raises:
        UnreadableImageError: It is gone or broken.
        OSError: The machine, or the cloud, cannot read it now.
    """
    image = image_at(root, path)
    if isinstance(image, Path):
        return read_image(image, max_pixels=max_pixels)
    try:
        return read_image(image.read_bytes(), max_pixels=max_pixels)
    except FileNotFoundError as error:
        raise UnreadableImageError(str(error)) from error
    except UnreadableImageError as error:
        reason = str(error).removeprefix("image bytes: ")
        raise UnreadableImageError(f"{image}: {reason}") from error


def find_remote_images(folder: RemoteFolder) -> FoundImages:
    """List the images below a folder in the cloud, by the endings of their names.

    Raises:
        ValueError: It has none.
        OSError: It cannot be read.
    """
    names = [
        name
        for name in folder.files()
        if not any(part.startswith(".") for part in name.split("/"))
    ]
    paths = sorted(name for name in names if is_image_name(name))
    if not paths:
        raise ValueError(
            f"There is no image in {shown(str(folder))}: no file whose name ends in "
            ".jpg, .png, .webp or another ending that is read."
        )
    return FoundImages(tuple(paths))
