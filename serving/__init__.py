"""Application: from a trained embedder to an endpoint and an image search."""
