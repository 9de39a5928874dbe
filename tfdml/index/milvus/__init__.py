"""Search and change a collection in Milvus."""

from tfdml.index.milvus._index import MilvusIndex

__all__ = ["MilvusIndex"]
