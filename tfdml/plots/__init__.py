"""Figures of losses, embeddings and results, drawn with matplotlib."""
