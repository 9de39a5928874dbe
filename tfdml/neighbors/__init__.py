"""Exact nearest neighbors, and the ranks of positives."""
