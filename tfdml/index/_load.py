"""Load an index of any class from its folder."""

import os
from typing import Any

from tfdml.files import short_names
from tfdml.index._checks import check_load
from tfdml.index._interface import Embed
from tfdml.index.engines import LocalIndex
from tfdml.index.local import ExactIndex
from tfdml.index.milvus import MilvusIndex
from tfdml.messages import cut
from tfdml.versioned_folder import IndexFileError, read_version

LOCAL_CLASSES: dict[str, type[ExactIndex] | type[LocalIndex]] = {
    "ExactIndex": ExactIndex,
    "LocalIndex": LocalIndex,
    "ScannIndex": LocalIndex,  # its former name
}
"""The classes that hold their items themselves, by their names in the manifest."""

_Loaded = type[ExactIndex] | type[LocalIndex] | type[MilvusIndex]


@short_names()
def load_index(
    folder: str | os.PathLike[str],
    *,
    model_fingerprint: str | None = None,
    embed: Embed | None = None,
) -> ExactIndex | LocalIndex | MilvusIndex:
    """Load the index in a folder, whatever its class.

    Arguments and errors are those of the `load` of the class.

    Returns:
        An `ExactIndex`, a `LocalIndex` or a `MilvusIndex`.
    """
    check_load(model_fingerprint, embed)
    classes: dict[str, _Loaded] = {**LOCAL_CLASSES, "MilvusIndex": MilvusIndex}

    def kind(manifest: dict[str, Any]) -> _Loaded:
        if manifest["class"] not in classes:
            raise IndexFileError(
                f"`folder` must hold one of {list(classes)}. Received: {cut(folder)}, "
                f"which holds a {cut(manifest['class'])}. Use the tfdml that wrote it."
            )
        return classes[manifest["class"]]

    return read_version(
        folder,
        lambda manifest, data: kind(manifest)._restore(
            manifest, data, model_fingerprint, embed
        ),
    )
