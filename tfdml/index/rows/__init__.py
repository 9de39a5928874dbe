"""The items of an index in memory: ids, attributes, embeddings."""
