"""Measure an embedder on a split of a data set."""
