"""Build the index of a gallery in memory, or in a database by its address.

The folder of the index is written either way. Where a database keeps the items, the
folder holds its address, the images that were added, and what else belongs to the
gallery, so every command takes the same folder.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tfdml.index import LocalIndex, MilvusIndex
from tfdml.messages import shown

_OPTIONS_OF_MEMORY = (
    *("dimensions", "target_recall", "engine", "codes", "code_dimensions"),
)


@dataclass(frozen=True)
class Collection:
    """A new collection in a database.

    Args:
        kind: Which database.
        address: Where it is, as its own clients take it.
        name: What to call the collection.
    """

    kind: Literal["milvus"]
    address: str
    name: str


def collection_of(
    store: str | None, collection: str | None, index_folder: str | PathLike[str]
) -> Collection | None:
    """Read the address of a database.

    Args:
        store: `http://` or `https://` with the host and port of Milvus, or the path of
            milvus-lite, which ends with `.db`; None for an index in memory.
        collection: The name of the collection; by default that of the folder, whose
            characters other than letters, digits and underscores become underscores.
        index_folder: The folder of the index.

    Raises:
        ValueError: It is no such address, or a name is given and no address.
    """
    if store is None:
        if collection is not None:
            raise ValueError(
                "`collection` must be given with `store`, the address of the database. "
                f"Received: {shown(collection)}."
            )
        return None
    if collection is None:
        words = re.sub(r"[^A-Za-z0-9_]", "_", Path(index_folder).resolve().name)
        collection = words if re.match(r"[A-Za-z_]", words) else f"_{words}"
    if re.match(r"https?://", store) or (store.endswith(".db") and "://" not in store):
        return Collection("milvus", store, collection)
    raise ValueError(
        "`store` must be the address of Milvus, such as http://host:19530, or a path "
        f"that ends with .db for milvus-lite. Received: {shown(store)}."
    )


def check_options(target: Collection | None, options: Mapping[str, Any]) -> None:
    """Check that a database is given no option of an index in memory.

    Raises:
        ValueError: It is given one.
    """
    if target is None:
        return
    for name in _OPTIONS_OF_MEMORY:
        if options.get(name) is not None:
            raise ValueError(
                f"`{name}` must not be given with `store`: the database has its own "
                f"way to search. Received: {name}={shown(options[name])}."
            )


def check_store(target: Collection | None, metric: Any, dimension: int | None) -> None:
    """Check, before hours of work, that an index may be built in a database.

    Args:
        target: Where; None for memory, which is not checked.
        metric: As in `build_in`.
        dimension: Of the embeddings, if it is known.

    Raises:
        ValueError: The collection exists, or the database lacks the metric.
        ConnectionError: The database does not answer, or refuses the password.
        ImportError: The package of the database is not installed.
    """
    if target is not None:
        none = np.empty((0, dimension or 2), np.float32)
        _build_there(target, none, ids=np.empty(0, np.str_), metric=metric).drop()


def build_in(
    target: Collection | None,
    embeddings: NDArray[np.float32],
    ids: Sequence[str] | NDArray[np.str_],
    attributes: Mapping[str, Sequence[Any]],
    metric: Any,
    model_fingerprint: str,
    options: Mapping[str, Any],
) -> LocalIndex | MilvusIndex:
    """Build an index.

    Args:
        target: Where; None for memory.
        embeddings: float32 `[N, D]`.
        ids: `N` of them.
        attributes: Of each, by name.
        metric: As in `LocalIndex.build`.
        model_fingerprint: Of the model that made the embeddings.
        options: Further ones of `LocalIndex.build`.

    Raises:
        ValueError, ConnectionError: As `build` of the index.
    """
    given: dict[str, Any] = {
        "ids": ids,
        "attributes": attributes,
        "metric": metric,
        "model_fingerprint": model_fingerprint,
    }
    if target is None:
        return LocalIndex.build(embeddings, **given, **options)
    return _build_there(target, embeddings, **given)


def _build_there(
    target: Collection, embeddings: NDArray[np.float32], **options: Any
) -> MilvusIndex:
    return MilvusIndex.build(
        embeddings, **options, uri=target.address, collection=target.name
    )
