"""Embedders, and what wraps a model for training."""

from tfdml.models._cross_batch_memory import CrossBatchMemory
from tfdml.models._embedder import build_embedder, load_embedder

__all__ = ["CrossBatchMemory", "build_embedder", "load_embedder"]
