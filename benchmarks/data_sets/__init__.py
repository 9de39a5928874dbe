"""Data sets that are made for the benchmarks, and the commands that make them."""
