"""Benchmarks of the search."""
