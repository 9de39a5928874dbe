"""Embedders, and what wraps a model for training."""
