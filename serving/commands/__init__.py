"""The commands of `python -m serving`, a file for each group."""
