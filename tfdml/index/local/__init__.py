"""The indexes in the memory of this process."""
