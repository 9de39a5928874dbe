"""Readers of published data sets, from the files of their releases."""
