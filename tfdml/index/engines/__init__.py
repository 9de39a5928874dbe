"""Search with ScaNN, FAISS, or by comparing with all."""

from tfdml.index.engines._index import LocalIndex
from tfdml.index.engines._scann_library import import_scann
from tfdml.index.engines._settings import (
    CodeKind,
    Engine,
    IndexSettings,
    tree_training,
)

__all__ = [
    "CodeKind",
    "Engine",
    "IndexSettings",
    "LocalIndex",
    "import_scann",
    "tree_training",
]
