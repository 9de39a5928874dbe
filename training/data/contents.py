"""Compare images by what the network sees of them."""

import hashlib
from collections.abc import Mapping

import numpy as np

from tfdml.messages import cut
from training.data.data_set import DataSet

_SIDE = 512  # rows and columns of a large image that are looked at


def content_of(form: np.ndarray) -> str:
    """Return a digest of an image, the same for the same pixels alone.

    Of a large image evenly spread rows and columns are taken, which another photograph
    does not share.

    Args:
        form: uint8 `[height, width, 3]`.

    Returns:
        16 hexadecimal digits.
    """
    height, width = form.shape[:2]
    some = form[:: max(1, height // _SIDE), :: max(1, width // _SIDE)]
    digest = hashlib.blake2b(f"{form.shape}".encode(), digest_size=8)
    digest.update(some.tobytes())
    return digest.hexdigest()


def shared_images(data: DataSet, contents: Mapping[int, str]) -> str | None:
    """Return a line on images that are in more than one class; None without any.

    Args:
        data: The images, in classes.
        contents: The digest of each image that can be read, by its position.
    """
    if data.is_continuous:
        return None
    places: dict[str, dict[int, int]] = {}  # of a content, by class
    for position, content in contents.items():
        label = int(data.labels[position])
        places.setdefault(content, {}).setdefault(label, position)
    shared = [sorted(own.values()) for own in places.values() if len(own) > 1]
    if not shared:
        return None
    first, second = (data.name_of(position) for position in min(shared)[:2])
    some = "1 image is" if len(shared) == 1 else f"{len(shared)} images are"
    return (
        f"{some} in more than one class, pixel by pixel, such as {cut(first)} and "
        f"{cut(second)}. No loss can tell them apart: remove one of each."
    )
