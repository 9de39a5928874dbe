"""Create and describe a Milvus collection: schema, index and tfdml's own notes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tfdml.index._interface import Metric
from tfdml.index.milvus._connection import is_lite
from tfdml.index.milvus._filters import ATTRIBUTES, ID, key_of, name_of
from tfdml.index.rows import LONGEST_ID
from tfdml.messages import cut, shown
from tfdml.versioned_folder import IndexFileError

EMBEDDING = "embedding"
METRICS: dict[Metric, str] = {"cosine": "COSINE", "dot_product": "IP"}

LITE_TYPES = ("FLAT", "IVF_FLAT", "IVF_SQ8", "HNSW", "HNSW_SQ", "AUTOINDEX")
"""What milvus-lite has: of others it says nothing, and compares with every item."""

_FORMAT = 1
_FACTS = "tfdml"
_STATE = "tfdml.state"
_KIND = "tfdml.attribute."


@dataclass(frozen=True)
class Facts:
    """What stays as it is while a collection lives.

    Attributes:
        ids: Their kind, `"string"` or `"integer"`.
        dimension: Numbers in an embedding.
        metric: How embeddings are compared.
        model_fingerprint: Of the model that made them, or "".
        consistency: Milvus' consistency level.
        index_type: Milvus' name of it.
        index_parameters: What it is built with.
        search_parameters: What it is searched with, if the caller does not say.
    """

    ids: str
    dimension: int
    metric: Metric
    model_fingerprint: str
    consistency: str
    index_type: str
    index_parameters: Mapping[str, Any]
    search_parameters: Mapping[str, Any]


def create(client: Any, collection: str, facts: Facts, timeout: float) -> None:
    """Create an empty collection, marked as not finished."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    if facts.ids == "string":
        # In bytes of UTF-8, of which a character has up to four.
        longest = 4 * LONGEST_ID
        schema.add_field(ID, DataType.VARCHAR, is_primary=True, max_length=longest)
    else:
        schema.add_field(ID, DataType.INT64, is_primary=True)
    schema.add_field(EMBEDDING, DataType.FLOAT_VECTOR, dim=facts.dimension)
    schema.add_field(ATTRIBUTES, DataType.JSON)
    client.create_collection(
        collection,
        schema=schema,
        consistency_level=facts.consistency,
        properties={
            _FACTS: json.dumps({"format": _FORMAT, **asdict(facts)}),
            _STATE: "building",
        },
        timeout=timeout,
    )


def make_searchable(client: Any, collection: str, facts: Facts) -> None:
    """Index and load a filled collection."""
    # Only flushed segments are indexed. All may take long: no timeout.
    client.flush(collection)
    parameters = client.prepare_index_params()
    parameters.add_index(
        EMBEDDING,
        index_name=EMBEDDING,
        index_type=facts.index_type,
        metric_type=METRICS[facts.metric],
        # pymilvus 3.0 flattens what is not nested; milvus-lite 3.2 reads only `params`.
        params={"params": dict(facts.index_parameters)},
    )
    # milvus-lite 3.2 indexes when it loads, and logs an error where it is waited for.
    client.create_index(collection, parameters, sync=not is_lite(client))
    client.load_collection(collection)


def finish(client: Any, collection: str, timeout: float) -> None:
    """Mark a collection as finished."""
    client.alter_collection_properties(
        collection, properties={_STATE: "ready"}, timeout=timeout
    )


def declare(
    client: Any, collection: str, kinds: Mapping[str, str], timeout: float
) -> None:
    """Note the kinds of new attributes."""
    if kinds:
        properties = {f"{_KIND}{key_of(name)}": kind for name, kind in kinds.items()}
        client.alter_collection_properties(
            collection, properties=properties, timeout=timeout
        )


def kinds_of(client: Any, collection: str, timeout: float) -> dict[str, str]:
    """Return the kind of each attribute, as noted now."""
    properties = _properties(client, collection, timeout)
    return {
        name_of(key.removeprefix(_KIND)): kind
        for key, kind in properties.items()
        if key.startswith(_KIND)
    }


def read_facts(client: Any, collection: str, place: str, timeout: float) -> Facts:
    """Read what `create` noted, and check it against the collection's index.

    Raises:
        IndexFileError: The collection does not exist, or is not a complete and
            unchanged one of `MilvusIndex`.
    """
    if not client.has_collection(collection, timeout=timeout):
        raise IndexFileError(
            f"`collection` must be in Milvus at {cut(place)}. Received: "
            f"{shown(collection)}. Use `build` to make it."
        )
    properties = _properties(client, collection, timeout)
    try:
        noted = json.loads(properties[_FACTS])
        version = noted.pop("format")
    except (KeyError, ValueError, AttributeError):
        raise IndexFileError(
            "`collection` must be one that `MilvusIndex.build` has made. "
            f"Received: {shown(collection)}, which lacks the property {shown(_FACTS)}."
        ) from None
    if version != _FORMAT:
        raise IndexFileError(
            f"`collection` must have the format {_FORMAT}. Received: "
            f"{shown(collection)}, of the format {shown(version)}. Use the tfdml that "
            "built it."
        )
    if properties.get(_STATE) != "ready":
        raise IndexFileError(
            f"`collection` must be complete. Received: {shown(collection)}, whose "
            "`build` is still running, or was killed: then drop it and build again."
        )
    facts = Facts(**noted)
    index = client.describe_index(collection, EMBEDDING, timeout=timeout) or {}
    found = index.get("metric_type")
    if found != METRICS[facts.metric]:
        raise IndexFileError(
            "`collection` must have an index of the metric it was built with, "
            f"{METRICS[facts.metric]}. Received: {shown(collection)}, of "
            f"{shown(found)}."
        )
    return facts


def _properties(client: Any, collection: str, timeout: float) -> dict[str, str]:
    described = client.describe_collection(collection, timeout=timeout)
    return dict(described.get("properties") or {})
