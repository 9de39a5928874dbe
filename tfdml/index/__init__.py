"""Build, search, change and save indexes of embeddings.

`LocalIndex` holds its items in memory and chooses its engine: it compares a query with
all of few items, and searches many with ScaNN or FAISS, with settings chosen by the
recall that they reach. `ExactIndex` always compares with all. `MilvusIndex` is a
collection in a Milvus cluster, for galleries that one machine cannot hold. All have one
interface, `Index`, and check all arguments: on some common inputs the libraries behind
them end the process or answer with wrong ids. `ScannIndex` and `ScannSettings` are the
former names of `LocalIndex` and `IndexSettings`.
"""

from tfdml.index._expanded import expanded_search
from tfdml.index._filters import Not, Range, Where, where_from_json
from tfdml.index._interface import Embed, Index, IndexStats, Items, SearchResult
from tfdml.index._load import load_index
from tfdml.index._near_duplicates import NearDuplicates, near_duplicates
from tfdml.index._recall import MeasuredRecall
from tfdml.index._verify import VerifyReport, verify_index
from tfdml.index.engines import CodeKind, Engine, IndexSettings, LocalIndex
from tfdml.index.local import ExactIndex
from tfdml.index.milvus import MilvusIndex
from tfdml.index.rows import Ids, check_ids
from tfdml.versioned_folder import IndexFileError, LockedError

ScannIndex = LocalIndex
ScannSettings = IndexSettings

__all__ = [
    "CodeKind",
    "Embed",
    "Engine",
    "ExactIndex",
    "Ids",
    "Index",
    "IndexFileError",
    "IndexSettings",
    "IndexStats",
    "Items",
    "LocalIndex",
    "LockedError",
    "MeasuredRecall",
    "MilvusIndex",
    "NearDuplicates",
    "Not",
    "Range",
    "ScannIndex",
    "ScannSettings",
    "SearchResult",
    "VerifyReport",
    "Where",
    "check_ids",
    "expanded_search",
    "load_index",
    "near_duplicates",
    "verify_index",
    "where_from_json",
]
