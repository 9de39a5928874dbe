"""Data sets: where images come from."""
