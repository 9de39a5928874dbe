"""The index that is a collection in Milvus."""
