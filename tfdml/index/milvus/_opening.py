"""Create and fill a collection in Milvus, or open an existing one."""

import json
from collections.abc import Mapping
from typing import Any

from tfdml._core.arguments import above_zero, one_of, whole
from tfdml.index.milvus._collection import (
    LITE_TYPES,
    Facts,
    create,
    declare,
    finish,
    make_searchable,
    read_facts,
)
from tfdml.index.milvus._connection import (
    check_collection,
    check_is_there,
    connect,
    disconnect,
    is_lite,
    place_of,
)
from tfdml.index.milvus._rows import Rows
from tfdml.index.milvus._store import Store
from tfdml.messages import cut, shown
from tfdml.versioned_folder import IndexFileError

Address = tuple[str, str | None, str]
"""The uri, the token and the database, as `MilvusIndex.connect` takes them."""

BATCH_SIZE = 5_000
TIMEOUT = 60.0
_CONSISTENCIES = ("Strong", "Session", "Bounded", "Eventually")
_INDEX_PARAMETERS: dict[str, dict[str, int]] = {
    "HNSW": {"M": 16, "efConstruction": 200}
}
_SEARCH_PARAMETERS: dict[str, dict[str, int]] = {"HNSW": {"ef": 128}}


def check_settings(
    collection: str, consistency: str, batch_size: int, timeout: float
) -> int:
    """Check what `build` and `connect` are both given, and return the batch size.

    Raises:
        ValueError: A setting is not as stated there.
    """
    check_collection(collection)
    one_of("consistency", consistency, _CONSISTENCIES)
    above_zero("timeout", timeout)
    return whole("batch_size", batch_size)


def settings(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of parameters by name.

    Raises:
        ValueError: They are not a dictionary of JSON types with strings as keys.
    """
    try:
        if isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
            copied: dict[str, Any] = json.loads(json.dumps(dict(given)))
            return copied
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"`{name}` must be a dictionary of Milvus' parameters by name, in JSON types. "
        f"Received: {shown(given)}."
    )


def type_and_parameters(
    index_type: str,
    index_parameters: Mapping[str, Any] | None,
    search_parameters: Mapping[str, Any] | None,
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return what `build` is to build and search with, where it is not given too.

    Raises:
        ValueError: One of them is not as stated in `MilvusIndex.build`.
    """
    if not isinstance(index_type, str) or not index_type:
        raise ValueError(
            "`index_type` must be Milvus' name of an index. Received: "
            f"{shown(index_type)}."
        )
    if index_parameters is None:
        index_parameters = _INDEX_PARAMETERS.get(index_type, {})
    if search_parameters is None:
        search_parameters = _SEARCH_PARAMETERS.get(index_type, {})
    return (
        index_type,
        settings("index_parameters", index_parameters),
        settings("search_parameters", search_parameters),
    )


def _check_saved(facts: Facts, manifest: Mapping[str, Any]) -> None:
    """Check that a collection is the one whose place was saved.

    Raises:
        IndexFileError: It is another one.
    """
    for name in ("dimension", "metric", "model_fingerprint"):
        if getattr(facts, name) != manifest[name]:
            raise IndexFileError(
                f"The collection {shown(manifest['collection'])} is not the one that "
                f"was saved: its {name} must be {shown(manifest[name])}. Received: "
                f"{shown(getattr(facts, name))}."
            )


def build_store(
    address: Address,
    collection: str,
    facts: Facts,
    kinds: Mapping[str, str],
    rows: Rows,
    batch_size: int,
    timeout: float,
) -> Store:
    """Make a collection, fill it and open it; on an error, drop it.

    Args:
        address: Where.
        collection: A name that is new.
        facts: What the collection is.
        kinds: The kinds of its attributes.
        rows: Its items.
        batch_size: Most items in one request.
        timeout: Seconds to wait for an answer.

    Raises:
        ValueError: The collection exists, or milvus-lite lacks the index type.
        ConnectionError: A request was lost, or reached Milvus twice.
    """
    client = connect(*address, timeout)
    try:
        _check_type(client, facts)
        if client.has_collection(collection, timeout=timeout):
            raise ValueError(
                f"`collection` must be new. Received: {shown(collection)}, which is in "
                f"Milvus at {cut(place_of(address[0]))} already. Use `connect`, or "
                "drop it."
            )
        store = Store(
            client,
            collection,
            facts,
            facts.search_parameters,
            facts.consistency,
            batch_size,
            timeout,
            place_of(address[0]),
            address[2],
        )
        create(client, collection, facts, timeout)
        try:
            declare(client, collection, kinds, timeout)
            store.fill(rows)
            make_searchable(client, collection, facts)
            count = store.count(True, consistency="Strong")
            if count != len(rows.ids):
                raise ConnectionError(
                    f"Milvus at {cut(place_of(address[0]))} must hold the "
                    f"{len(rows.ids)} items that were written. It holds {count}. Build "
                    "again."
                )
            finish(client, collection, timeout)
        except BaseException:
            client.drop_collection(collection, timeout=timeout)
            raise
    except BaseException:
        disconnect(client)
        raise
    return store


def open_store(
    address: Address,
    collection: str,
    *,
    dimension: int | None = None,
    model_fingerprint: str | None = None,
    search_parameters: Mapping[str, Any] | None = None,
    consistency: str | None = None,
    batch_size: int = BATCH_SIZE,
    timeout: float = TIMEOUT,
    saved: Mapping[str, Any] | None = None,
) -> Store:
    """Open a collection that `build_store` has made.

    Args:
        address: As in `MilvusIndex.connect`, as of all that follow.
        collection: Its name.
        dimension: If given, another dimension is rejected.
        model_fingerprint: If given, another model's embeddings are rejected.
        search_parameters: What to search with.
        consistency: How recent the data is that a search sees.
        batch_size: The most items in one request.
        timeout: Seconds to wait for each answer.
        saved: The manifest of the folder that the collection was saved to. If given,
            another collection is rejected.
    """
    batch_size = check_settings(
        collection, consistency or "Strong", batch_size, timeout
    )
    if search_parameters is not None:
        search_parameters = settings("search_parameters", search_parameters)
    check_is_there(address[0])
    client = connect(*address, timeout)
    try:
        facts = read_facts(client, collection, place_of(address[0]), timeout)
        for name, given, has in (
            ("dimension", dimension, facts.dimension),
            ("model_fingerprint", model_fingerprint, facts.model_fingerprint),
        ):
            if given not in (None, has):
                raise IndexFileError(
                    f"`{name}` must be that of the model which the collection was "
                    f"built from, {shown(has)}. Received: {shown(given)}. Build the "
                    "collection again with the new model."
                )
        if saved is not None:
            _check_saved(facts, saved)
        _check_type(client, facts)
        client.load_collection(collection)  # may take long: no timeout
    except BaseException:
        disconnect(client)
        raise
    return Store(
        client,
        collection,
        facts,
        facts.search_parameters if search_parameters is None else search_parameters,
        consistency or facts.consistency,
        batch_size,
        timeout,
        place_of(address[0]),
        address[2],
    )


def _check_type(client: Any, facts: Facts) -> None:
    if is_lite(client) and facts.index_type not in LITE_TYPES:
        raise ValueError(
            f"`index_type` must be one of {', '.join(LITE_TYPES)} on milvus-lite, "
            "which accepts others silently and compares with every item. "
            f"Received: {shown(facts.index_type)}."
        )
