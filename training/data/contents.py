"""Compare images by what the network sees of them."""

from collections.abc import Mapping

from tfdml.messages import cut

from .data_set import DataSet


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
