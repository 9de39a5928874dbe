"""Layers of an embedder, and the layers that hold what a loss learns."""
