"""The commands of `tfdml` that serve and search, a file for each group."""
