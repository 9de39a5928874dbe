"""Check arguments, labels and embeddings, and compute on every backend."""
