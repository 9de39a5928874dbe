"""Search with ScaNN."""

from tfdml.index.scann._index import ScannIndex
from tfdml.index.scann._settings import ScannSettings, tree_training

__all__ = ["ScannIndex", "ScannSettings", "tree_training"]
