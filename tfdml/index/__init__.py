"""Search indexes: a gallery of embeddings that is built, searched, changed and saved.

`ExactIndex` compares a query with every item. `ScannIndex` answers from Google's ScaNN,
with settings chosen by the recall that they reach. `MilvusIndex` is a collection in a
Milvus cluster, for galleries that one machine cannot hold. All have one interface,
`Index`, and check all that they are given: the libraries behind them end the process,
or answer with wrong ids, on some inputs that are easily met.
"""

import os
from typing import Any

from tfdml.index._checks import check_load
from tfdml.index._filters import Not, Range, Where
from tfdml.index._interface import Embed, Index, IndexStats, Items, SearchResult
from tfdml.index._recall import MeasuredRecall
from tfdml.index._verify import LOCAL_CLASSES, VerifyReport, verify_index
from tfdml.index.local._exact import ExactIndex
from tfdml.index.milvus._index import MilvusIndex
from tfdml.index.rows._ids import Ids
from tfdml.index.scann._index import ScannIndex
from tfdml.index.scann._searcher import ScannSettings
from tfdml.index.storage._files import IndexFileError, read_version
from tfdml.index.storage._log import LockedError

__all__ = [
    "Embed",
    "ExactIndex",
    "Ids",
    "Index",
    "IndexFileError",
    "IndexStats",
    "Items",
    "LockedError",
    "MeasuredRecall",
    "MilvusIndex",
    "Not",
    "Range",
    "ScannIndex",
    "ScannSettings",
    "SearchResult",
    "VerifyReport",
    "Where",
    "load_index",
    "verify_index",
]

_Loaded = type[ExactIndex] | type[ScannIndex] | type[MilvusIndex]


def load_index(
    folder: str | os.PathLike[str],
    *,
    model_fingerprint: str | None = None,
    embed: Embed | None = None,
) -> ExactIndex | ScannIndex | MilvusIndex:
    """Load the index in a folder, of whichever class it is.

    Arguments and errors are those of the `load` of the class.

    Returns:
        An `ExactIndex`, a `ScannIndex` or a `MilvusIndex`.
    """
    check_load(model_fingerprint, embed)
    classes: dict[str, _Loaded] = {**LOCAL_CLASSES, "MilvusIndex": MilvusIndex}

    def kind(manifest: dict[str, Any]) -> _Loaded:
        if manifest["class"] not in classes:
            raise IndexFileError(
                f"`folder` must hold one of {list(classes)}. Received: {folder}, "
                f"which holds a {manifest['class']}. Use the tfdml that wrote it."
            )
        return classes[manifest["class"]]

    return read_version(
        folder,
        lambda manifest, data: kind(manifest)._restore(
            manifest, data, model_fingerprint, embed
        ),
    )
